"""`holdfast demo`: a story that is played with real processes, and checked while it is.

performance.py  what is needed for it, its parts in order, its exit code
scenes.py       the story that is played
stage.py        what a scene does: wait for reports, tell them, expect things of them
crew.py         the worker processes          worker.py   what runs in each of them
ledger.py       the fenced resource           etcd.py     the store, embedded
inbox.py        the one place the demo waits  screen.py   the terminal
"""
