"""The service, `tenure serve`: programs in any language take holds over HTTP, from a sidecar or a few shared replicas.

A third face beside `tenure` and `tenure.aio`: it uses the core directly, for holds that somebody else owns. The owner
believes in its hold by a TTL of the hold's own, which only the owner's renewals move. There are three ways to keep such
a hold, and this is how they differ:

                    delegated                timer                        remote
    for             owners behind HTTP       owners behind HTTP           Python, tenure.connect("http://…")
    on              etcd                     ZooKeeper, memory            every store
    store lease     one per hold             the service's, shared        one per client and TTL
    renewed by      any replica, when the    the service, by itself       this replica, by itself, for as long
                    owner renews                                          as the client renews here
    ended by        the store, at its TTL    a timer here, at the TTL     a timer here, at the TTL of the
                                             of the hold                  lease; the client has the hold
    when a replica  holds live on, others    others can't renew: holds    others can't renew: leases end with
    dies            renew them               end with its lease           the replica's
    code            holds/delegated.py       holds/timer.py               remote/leases.py

In all three the belief of the owner ends before the store, or the timer, lets anybody else in.

The walk of POST /v1/locks/acquire, on etcd (timer.py takes the place of delegated.py elsewhere):

    http/connection.py     HttpProtocol                            bytes ─▶ an ASGI request
    http/app.py            App._handled                            find the route, admit the caller, read the fields
      http/routing.py        Routes.find
      auth/tokens.py         admit
      auth/limits.py         Usage.request
      http/fields.py         read_body
    api/locks.py           acquire                                 the handler: counts the call for the tenant
                           _grant_at_once, _wait_for_grant         without waiting; or in a task, ended by a hang-up
    holds/keeper.py        Keeper.acquire, _wait_for_turn          by way of holds/idempotency.py where there is a key
    holds/delegated.py     DelegatedHolds.take
    holds/concurrency.py   EnterLimit.run                          a slot, until the ticket stands
    holds/delegated.py     _enter_twice, _wait_and_entrust         steps: enter, wait for the turn, entrust to the owner
    _core/turn.py          take_turn                               the only loop that waits
    api/locks.py           _deliver_or_take_back, _hold_json       the grant, unless its caller has gone

The map, in reading order:

    server      a service's life, from its sockets to the last answer
    settings    the options of `tenure serve`, checked
    service     the parts that handlers work with
    shutdown    the end, and how those that wait learn of it
    metrics     what the service counts; events, delivered after the answers
    log         lines about requests, and the way of all lines to standard error
    limits      all bounds
    http        from the bytes of a connection to a handler with checked fields, and back
    auth        tokens, tenants, scopes, and limits of tenants
    holds       holds of owners behind HTTP: delegated, or with a timer
    elections   candidacies of this service, and views of elections
    api         the routes for programs in any language, for probes and for the dashboard
    remote      leases of remote Python clients, and the routes for them

The dashboard's page is in ui/: main.js is the file to read first.
"""
