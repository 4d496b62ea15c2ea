"""A worker: one real process that uses the library as its users do, and records what it sees.

    plan    the settings of one worker
    acts    what its actors do, once for both faces: a script of steps
    faces   threads, or tasks of an event loop, that carry the steps out
    orders  what it does on order of its standard input: stall, clock, jump, fork, cancel, hop
    skewed  a clock that can be made to run wrong
    fenced  its way to the fenced store

`python -m tests.verify.torture.worker PLAN` runs it (`__main__.py`).
"""
