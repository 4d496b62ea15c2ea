"""What holdfast costs, next to its peers on the same servers in the same minute: `python -m benchmarks`.

contestants.py  who runs: one uncontended acquire and release each
measure.py      runs them in turns and compares; ratios only, because other work shares the machine
guards.py       what each guard costs, next to the bare operation
scale.py        what the servers count: per cycle, and per hand-over with 10 and with 200 waiters
imports.py      what `import holdfast` costs and brings in
report.py       the tables, and the floors that must hold
"""
