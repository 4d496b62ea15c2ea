"""Tests that take Docker: partitions and pauses of real servers, images, compose files. tests/containers/run runs it.

conformance/         the whole conformance suite over containers: a client is cut off by taking its network away
test_partitions.py   the laws that partitions and pauses of members try, on three etcd and three ZooKeeper
test_image.py        the image of tenure itself: programs under a hold in containers that are cut off and stopped
"""
