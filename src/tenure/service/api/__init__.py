"""The routes: each module has its handlers first, and then the table from which routing and documentation are made.

In reading order:

    locks         acquire, renew, release
    lines         which names are in use, one of them in full, its past, and why it is as it is
    audit         force release, and the records of it
    events        every change of lines, as a stream of events
    elections     who leads, once and as a stream
    health        probes and metrics
    dashboard     the page for people on call: the files in ../ui/, of which main.js is the one to read first
    openapi       all routes in one table, and the OpenAPI document made from it
    schemas       the JSON of answers, as the document shows it
    serialize     the JSON of answers, as it is made
"""
