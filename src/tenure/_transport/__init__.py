"""Requests to servers and their answers, for every backend that has servers.

    session    ConnectionPool: endpoints, failover, TLS, users; one `ask` is one try
    http       one connection over HTTP/1.1, kept open; and a stream of lines
    remote     lines, tickets and records as JSON, between thin clients and the service

The walk of one request, with nothing wrong: `ask` (away from a loop's own thread where it would block), `_signed_in`
(the user's token), `_exchange` (a slot; refusals become errors), `_send` (an idle connection or a new one), then the
connection's `exchange`.
"""
