"""The suite of `tenure.testing.conformance` on our own backends: memory, etcd and ZooKeeper, both faces.

store_worlds says how each of them is reached, broken, and asked what it has.
"""
