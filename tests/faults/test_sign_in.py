"""etcd with users: what a token that is refused costs the server."""

from __future__ import annotations

import threading

import tenure
from tenure.testing.servers import EtcdSpec, FaultProxy, Provider, etcdctl_popen, start
from tests.faults.transports import ETCD, SIGN_IN, EtcdKind, count, over

THREADS = 12


@ETCD
def test_threads_whose_token_is_refused_sign_in_once(provider: Provider, kind: EtcdKind) -> None:
    """A sign-in takes the server up to 0.1 s of a processor: a dozen at once, of each client, and none is in time."""
    cluster = over(start(provider, EtcdSpec(auth=("root", "word"))), kind)
    try:
        with FaultProxy(cluster.endpoints[0], kind) as proxy:
            address = cluster.url("users").replace(cluster.endpoints[0], proxy.endpoint)
            with tenure.connect(address, ttl=20, timeout=10) as client:
                client.lock("warm").acquire(timeout=10).release()
                with etcdctl_popen(cluster, "user", "passwd", "root", "--interactive=false") as told:
                    told.communicate("word\n")  # the password stays, and every token is void
                before = count(proxy.requests, SIGN_IN)
                failed = _at_once(client)
                assert not failed
                # one for the old token; and the keep-alive may have asked for another in the same moment
                assert 1 <= count(proxy.requests, SIGN_IN) - before <= 2
    finally:
        cluster.close()


def _at_once(client: tenure.Client) -> list[BaseException]:
    failed: list[BaseException] = []
    together = threading.Barrier(THREADS)

    def use(number: int) -> None:
        try:
            together.wait()
            client.lock(f"lock-{number}").acquire(timeout=10).release()
        except BaseException as error:  # told by the test
            failed.append(error)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failed
