"""CMD under a hold: `holdfast run` and `holdfast elect`. Knows no click; commands/run.py and commands/elect.py do.

    term.py      one term: wait for the hold, run CMD under it, end CMD in time, give the hold up
    ward.py      CMD as holdfast sees it: orders to the watchdog, reports from it
    watchdog.py  the process between the two, which ends CMD in time whatever becomes of holdfast
    pace.py      how much time is kept before the deadline
    inbox.py     the one place where holdfast waits: signals, reports, the hold
    running.py   one term, or one after the other
    health.py    readiness and liveness over HTTP, for probes

Three processes: holdfast, which holds; the watchdog, its child; and CMD, the watchdog's child. Each of the first two
ends CMD if the other one fails:

* holdfast is killed: the watchdog's pipe ends, and it kills CMD at once. Holdfast is stopped, or stalls: no deadline
  comes any more, and the watchdog kills CMD before the last one.
* the watchdog is killed: the kernel kills CMD, what CMD had started becomes holdfast's, and holdfast kills it.
* Both are killed at the same moment: the kernel kills CMD, but nobody is left for what CMD had started.
* Both are stopped, and CMD is not: nobody ends CMD before one of them goes on. (A frozen container's CMD is, too.)

What can't be ended: a process of another user (CMD is a `sudo`), and one that hangs in the kernel. Both are told.

Terminals. Where there is one, CMD runs in holdfast's own process group: Ctrl-C, Ctrl-\\, Ctrl-Z, `fg`, `bg` and the
window's size reach it as if holdfast were not there, pipelines included. What the terminal has sent to all of them is
not passed on a second time; what `kill` sent to holdfast is (so that a `kill` of the whole job reaches CMD twice).
Ctrl-Z stops holdfast too: it renews nothing then, and a job that stays stopped for longer than the hold can be proven
is ended. Without a terminal CMD has a process group of its own. CMD starts with SIGINT and SIGQUIT at their defaults,
even where holdfast was started in the background by a shell that ignores them; other ignored signals stay ignored.
"""
