"""The suite of `holdfast.testing.conformance` on our own backends: memory, etcd and ZooKeeper, both faces.

worlds.py says how each of them is reached, broken, and asked what it has.
"""
