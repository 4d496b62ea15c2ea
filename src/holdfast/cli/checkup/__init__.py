"""What `holdfast doctor` looks at. Knows no click and no screen.

finding.py     what a check says: ok, warn or fail, and what to do
plain.py       one question to one endpoint over HTTP or as a four-letter word, with TLS where the URL says so
versions.py    server versions with known bugs
etcd.py        each endpoint of an etcd          zookeeper.py   each server of a ZooKeeper
service.py     the store as a client finds it: permission, TTLs, tickets that nothing will end; this machine's clock
rounds.py      all of it, in order
"""
