"""Drivers: they carry out the steps that turns and holds yield, and decide nothing.

In reading order:

    blocking     in the calling thread
    asyncio      as part of a task, requests on worker threads
    greenlets    lanes: requests on the event loop's own thread, for the service
"""
