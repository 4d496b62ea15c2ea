"""What tenure costs, next to its peers on the same servers in the same minute: `python -m benchmarks`.

    __main__.py     the command: which parts, how much of each, where the report goes
    ground.py       what every part is given: efforts, servers
    findings.py     what every part hands back: sections, floors, plots; report.py and svg.py show them
    measure.py      contestants in turns, and ratios: other work shares the machine
    contestants/    who takes part, and the bare operations as the floor
    players.py      contestants in processes of their own, and their protocol; play.py is such a process

The parts, each with a `run(ground)`:

    imports.py      what `import tenure` costs and brings in
    cycles.py       one uncontended acquire and release; the first acquire after connect
    contended.py    2 to 128 contenders over processes: hand-overs, and their fairness
    takeover.py     leaders killed, stopped, cut off, resigned, closed: how long nobody leads
    scale.py        many holds, many waiters: crowd.py is the process that has them, meter.py counts
    guards/         what each guard costs, next to the bare operation
    service.py      a cycle through `tenure serve`, and what its waiters cost
    soak.py         half an hour of mixed work: soaker.py is the process that does it
"""
