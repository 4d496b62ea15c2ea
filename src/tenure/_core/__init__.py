"""The core: leases, turns and holds. Nothing in here knows a store, and nothing is promised to users.

In reading order; of the core each module imports only those before it, and `base`:

    lease           the protocols of a store, tickets and lines, and the sixteen laws; begin here
    belief          what may be believed of a lease, by the clock alone
    turn            the only waiting loop: enter, decide, wait, look again
    recipes/        lock, rwlock, semaphore, election: a pure rule over the line each
    guarded_keys    the user's own keys, written only while a ticket stands
    hold_watch      the end of a hold: how a loss is found out, and what follows
    hold            what a user gets when the turn has come
    context         the holds that were entered with `with` around a call
    drivers/        who carries out the steps of a turn: a thread, or a task
    heartbeat       the timed renewals of a lease
    reaper          tickets whose owners could not withdraw them
    delegation      holds that others renew
    runtime         one client: backend, leases, threads, clock; and `runtime_of`, the seam for the layers above
    base/           clock, signals, threads, limits: what all of these stand on

Lifetimes: a runtime lives as long as its client; a lease from the first need of its TTL until it is lost or the client
closes; a belief, a heartbeat and a reaper as long as their lease; a turn from `enter` to its outcome; a hold and its
watch from the turn until the hold is released or lost.
"""
