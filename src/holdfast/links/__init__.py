"""How a client reaches servers that answer requests: for every backend that does.

session.py  endpoints, failover, TLS, users, a pool of connections; one `ask` is one try
http.py     one connection over HTTP/1.1, kept open; and a stream of lines
"""
