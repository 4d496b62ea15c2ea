"""Where a torture run takes place: three servers, the places of clients, and a network between them that can be broken.

Two grounds, and `make_ground` chooses:

    namespaces   as root: each server and each client has a network namespace of its own; iptables break the links
    loopback     otherwise: everything on loopback, a proxy between each client and each server; no link between
                 servers can be broken

Reading order: choice.py (which ground, and what it takes), shell.py (commands of the system), addresses.py (one run's
own names and addresses), namespaces.py (the network laid out), filters.py (and broken), loopback.py (both, by proxies),
urls.py (how a place sees the servers), leftovers.py (what a killed run left, removed by the next).

Lifetimes: a ground lives until its `close()`. Servers end with the process that made it, however that ends; a
namespace or a mount that a killed run left is removed when the next ground is made.
"""

from holdfast.testing.torture.ground.choice import make_ground, possible
from holdfast.testing.torture.ground.shell import GroundMissing

__all__ = ["GroundMissing", "make_ground", "possible"]
