"""A worker: one real process that uses the library as its users do, and writes down what it sees.

plan.py      all that a worker is told
acts.py      what its actors do, once for both faces: a script of steps
faces.py     who carries the steps out: threads, or tasks of an event loop
orders.py    what it is told on its standard input: stall, clock, jump, fork, cancel, hop
skewed.py    a clock that can be made to run wrong
fenced.py    its way to the fenced store
__main__.py  `python -m holdfast.testing.torture.worker PLAN`
"""
