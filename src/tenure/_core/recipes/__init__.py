"""Recipes: each is one pure rule over the line. None knows a store, a thread or an event loop.

In reading order:

    request      what every recipe makes: a kind of ticket, and its rule
    lock         one at a time
    rwlock       readers together, a writer alone
    semaphore    weighted seats up to a limit
    election     a lock with a value that others read
"""
