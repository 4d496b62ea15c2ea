"""HTTP: from the bytes of a connection to a handler that is given checked fields, and back.

In reading order:

    listener      connections accepted, as many as there is room for
    connection    one HTTP/1.1 connection, with bounds on heads and time
    app           the ASGI application: route, caller, fields, handler, answer
    request       one request as handlers read it, and the answers they return
    routing       the table of routes, and the search in it
    fields        the fields of requests: how each is read and documented
    problems      all refusals in one table, with their codes and texts
    streams       server-sent events, and feeds: one watch of the store shared by all streams of the same thing
"""
