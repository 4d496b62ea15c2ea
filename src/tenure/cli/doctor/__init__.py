"""The checks of `tenure doctor`. Knows no click and no screen.

    findings    a finding (ok, warn or fail, and what to do), and server versions with known bugs
    endpoint    one question to one endpoint over HTTP or as a four-letter word, with TLS where the URL says so
    etcd        each endpoint of an etcd
    zookeeper   each server of a ZooKeeper
    checks      all checks in order, with the store as a client finds it and this machine's clock

commands/doctor.py shows the findings.
"""
