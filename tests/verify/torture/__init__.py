"""The torture: real processes use the library as its users do, on real servers, while nemeses break everything else.

    python -m tests.verify.torture --backend etcd --nemesis kill-leader,partition-client --seconds 60 --seed 1

Every call, look and loss is written down (`tenure.testing.history.record`), and so are the store's own word on every
ticket and what a fenced store did; then the checkers of `tenure.testing` judge it all. What was seen is proven, what
was not seen is not: a run that shows too little says "unknown".

In reading order:

    parts       the protocols: rig, workers, fault log, nemesis
    run         one run, from the first worker to the verdict
    worker/     one worker: a real process that uses the library
    workers     the workers of a run as processes
    tail        what a worker holds, by the newest records of its history
    register    the fenced store, in a process of its own
    rig/        the servers and the network around them
    nemeses/    what breaks servers, network and workers
    fault_log   what was broken, and when
    pulse       when the whole machine stood still
    observers/  the store's own word
    versions    the versions of the library and of the servers
    verdict     what a run amounts to
    summary     a run's outcome as text and as JSON
    command     the command line
    profiles    many runs at a time
    table       what many runs covered
"""
