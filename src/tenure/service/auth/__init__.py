"""Access: which caller may use which route on which names, and how much of the service.

In reading order:

    tokens    the file of tokens, tenants and their names, scopes, and the check of a request
    limits    requests a second, holds, waiting requests and streams of one tenant; failures of one address
"""
