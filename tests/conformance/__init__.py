"""One suite for all backends and both faces: a test per law and per verb.

worlds.py makes a store, clients of it and the faults between them, the same for memory, etcd and
ZooKeeper; faces.py makes the asyncio face look like the blocking one, so that each test is written once.
"""
