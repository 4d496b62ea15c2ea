"""The service behind which programs in any language take holds: next to a pod, or as a small service of its own.

In reading order, how holds live on behalf of owners behind HTTP:

    keeping.py    the Keeper: acquire, renew and release on behalf of owners who live by a TTL of their own
    errors.py     what is raised here beside the library's errors
    holdids.py    what a hold's id says, and to whom
    own.py        holds that live by a lease of their own, for any replica to renew
    timed.py      holds that share the service's lease: their TTLs are timers here
    gate.py       so many calls at a time put their tickets
    once.py       one hold per idempotency key, within this process
    waits.py      the calls that wait, so that closing can end them

and the HTTP application over it:

    serving.py    a service's life, from the first socket to the last answer; settings.py, sockets.py, protocol.py
    app.py        one request: route, caller, fields, handler, answer; exchange.py, what it reads and sends
    admission.py  who may; auth.py, the tokens; tenants.py, whose names they are; limits.py, how much
    table.py      all routes; what they do: locks.py, lines.py, mending.py, changes.py, elections.py, probes.py
    fields.py     what requests may say: read strictly, and shown in openapi.py; schemas.py, what is answered
    dashboard.py  the page for whoever is on call: the files in ui/, of which main.js is the one to read first
    problems.py   what is refused, in one table; access.py, the log; traffic.py, the counts
    service.py    what handlers work with: leaders.py and candidates.py, elections; feeds.py and events.py, streams;
                  shapes.py, what lines look like; drain.py, the end; bounds.py, all bounds
"""
