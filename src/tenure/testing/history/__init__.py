"""Histories of what clients did, and the checkers that judge them.

In reading order:

    event                  one thing that happened; the table of kinds
    history                recorders, and the history they make
    record                 a client of either face that records what it does
    verdicts               passed, failed with violations, unknown with a reason
    intervals              beliefs, pauses and faults: what lasts
    replay                 the store's own word, replayed
    quiet                  when nothing was broken, and who waited and held meanwhile
    check_promises         safety by what clients saw: S1, S2, S3, S6, S7
    check_truth            safety by what the store says: S4, S8, S9, S11
    check_fencing          safety by what a fenced store did: S5
    check_linearizability  S10, for small histories
    check_liveness         L1 to L6, judged where nothing was broken
    report                 all checkers over one history, and a table of what they found
"""
