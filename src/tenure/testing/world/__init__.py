"""A world for tests of code that uses tenure: a store in memory, virtual time, clients of either face, and faults.

In reading order:

    world         World itself
    virtual_time  its time, which moves when everybody waits
    client_clock  the clock, the background work and the locks of one client in that time
    faults        what goes wrong between one client and the store
"""
