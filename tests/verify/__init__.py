"""Verification of the library itself, run from a clone: no part of the distribution.

    mutants/     small faults in the code that keeps the laws, each with the fast tests that have to notice
    simulation/  the library over the memory store under random schedules of faults, each replayed by its seed
    traces/      the memory store compared with real stores, verb by verb
    torture/     real processes on real servers while nemeses break both

Each is a command: `python -m tests.verify.mutants`, `… .simulation`, `… .traces`, `… .torture`.
"""
