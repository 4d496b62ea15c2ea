"""The stores that come with the library: each has a backend, which opens leases, and its lease, which has the verbs.

    memory       the reference, in this process: the shortest way to see what a backend does
    etcd         through the JSON gateway or gRPC
    zookeeper    through kazoo
    service      the thin client: a store behind `tenure serve`

A backend is found by the scheme of its URL (_core/base/schemes.py). Within a store read `lease` first.
"""
