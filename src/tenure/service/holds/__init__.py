"""Holds of owners behind HTTP: taken, renewed and released for them, and ended when an owner no longer renews.

In reading order:

    keeper        the Keeper: acquire, renew and release; the promises to owners; which of the two models a store has
    delegated     holds with a store lease of their own, which any replica renews (etcd)
    timer         holds on the service's shared lease, each ended by a timer here (ZooKeeper, memory)
    idempotency   one hold per idempotency key, within this process
    concurrency   how many calls enter a line at the same time, and the calls that wait, so that closing can end them
    hold_id       the id of a hold: what it carries, and the errors for an id that leads to no hold here
"""
