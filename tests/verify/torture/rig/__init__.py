"""The rig of a torture run: three servers, the places of clients, and a network between them that can be broken.

Two kinds, and `make_rig` chooses: of namespaces as root, where each server and each client has a network namespace
of its own and iptables break the links; else of loopback, with a proxy between each client and each server, where no
link between servers can be broken.

In reading order:

    choice      which rig a run gets, and what each kind needs of the machine
    shell       commands of the system
    addresses   the names and addresses of one run
    namespaces  the network laid out
    filters     the network of namespaces, broken by iptables
    loopback    the rig of proxies
    urls        how a place sees the servers
    leftovers   what a killed run left, removed by the next

Lifetimes: a rig lives until its `close()`. Servers end with the process that made it, however that ends; a
namespace or a mount that a killed run left is removed when the next rig is made.
"""

from tests.verify.torture.rig.choice import make_rig, possible
from tests.verify.torture.rig.shell import RigMissing

__all__ = ["RigMissing", "make_rig", "possible"]
