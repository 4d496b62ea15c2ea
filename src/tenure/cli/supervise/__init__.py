"""CMD under a hold: `tenure run` and `tenure elect`. Parses no arguments; commands/run.py does.

    term       one term: wait for the hold, run CMD under it, end CMD in time, give the hold up
    child      CMD as tenure sees it: orders to the watchdog, reports from it
    watchdog   the process between the two, which ends CMD in time whatever becomes of tenure
    inbox      the one place where tenure waits: signals, reports, the hold
    running    one term, or one after the other
    health     readiness and liveness over HTTP, for probes

Three processes: tenure, which holds; the watchdog, its child; and CMD, the watchdog's child. Each of the first two
ends CMD if the other one fails:

* tenure is killed: the watchdog's pipe ends, and it kills CMD at once. Tenure is stopped, or stalls: no deadline
  comes any more, and the watchdog kills CMD before the last one.
* the watchdog is killed: the kernel kills CMD, what CMD had started becomes tenure's, and tenure kills it.
* Both are killed at the same moment: the kernel kills CMD, but nobody is left for what CMD had started.
* Both are stopped, and CMD is not: nobody ends CMD before one of them goes on. (A frozen container's CMD is, too.)

What can't be ended: a process of another user (CMD is a `sudo`), and one that hangs in the kernel. Both are reported.

Terminals. Where there is one, CMD runs in tenure's own process group: Ctrl-C, Ctrl-\\, Ctrl-Z, `fg`, `bg` and the
window's size reach it as if tenure were not there, pipelines included. What the terminal has sent to all of them is
not passed on a second time; what `kill` sent to tenure is (so that a `kill` of the whole job reaches CMD twice).
Ctrl-Z stops tenure too: it renews nothing then, and a job that stays stopped for longer than the hold can be proven
is ended. Without a terminal CMD has a process group of its own. CMD starts with SIGINT and SIGQUIT at their defaults,
even where tenure was started in the background by a shell that ignores them; other ignored signals stay ignored.
"""
