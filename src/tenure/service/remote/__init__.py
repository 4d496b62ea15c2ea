"""Remote Python clients, `tenure.connect("http://…")`: leases that run here while their clients renew them over HTTP.

The client has the turn, the belief and the recipes; the service has what only a neighbour of the store can do: store
leases, tickets, watches. The other end of these routes is tenure/_backends/service. In reading order:

    leases       store leases opened for remote clients: found, renewed, ended; their tickets
    lease_api    the verbs of a lease as routes
    waits        what clients wait for: one stream each, waits registered for it, handles that name tickets
    wait_api     waits as routes
    operator     the operators' verbs of a store as routes
"""
