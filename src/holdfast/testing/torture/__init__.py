"""The torture: real processes use the library as its users do, on real servers, while nemeses break everything else.

    python -m holdfast.testing.torture --backend etcd --nemesis kill-leader,partition-client --seconds 60 --seed 1

Every call, look and loss is written down (`holdfast.testing.recorded`), and so are the store's own word on every ticket
and what a fenced store did; then the checkers of `holdfast.testing` judge it all. What was seen is proven, what was not
seen is not: a run that shows too little says "unknown".

In reading order:

    parts.py      ground, crew, diary, nemesis: what a run is made of
    run.py        one run, from the first worker to the verdict
    verdict.py    what it amounts to; summary.py, how it is told
    crew.py       the workers as processes; tail.py, what they did last
    worker/       one of them
    register.py   the fenced store, in a process of its own
    diary.py      what was broken, and when
    observers/    the store's own word
    command.py    the command line; profiles.py, many runs at a time
    ground/       servers and the network around them
    nemeses/      what breaks them
"""
