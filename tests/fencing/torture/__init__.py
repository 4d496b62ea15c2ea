"""Eight processes that fight for one lock, are stopped, deposed and killed, and go on writing all the same.

Each takes its turn: acquire, claim and read a counter, pause, write it plus one and an element of its own, release.
None of them looks whether it still holds the lock: like a program that was stopped between that look and its write,
they leave it to the guard. What they did is in their event files, what came of it is at the resource.

Reading order: events.py (what is written down), check.py (what must be true of it), resources/ (what they fight
over: as the workers see it, and as the test does), worker.py (one of the eight), stores.py (how to depose a
holder), workers.py (the processes), nemesis.py (who is hit, when), run.py (one run, from the first to the last of it).
"""
