"""Tools that every layer may use. None of them knows a lease.

In reading order:

    limits        limits and defaults, in one place
    signals       one-shot events for threads, tasks and callbacks
    clock         time, injected: readings, waits, timers
    threads       helper threads, waiting for a lock, telling a forked child from its parent; the caller's line
    validation    checks of names, numbers and texts that users pass in
    options       URLs and keyword arguments of `connect`
    schemes       which URL schemes there are, and who opens them
    retry         the retry policy of all stores
    yielding      waiting in a thread or in a lane of the event loop
"""
