"""The runner of mutants: it names the survivor, and says nothing of the others where their tests fail by themselves."""

from __future__ import annotations

import pytest

from tests.verify.mutants import Mutant, command

_PROOF = ("tests/unit/test_zookeeper_proof.py",)
_FILE = "_backends/zookeeper/connection.py"
FOUND = Mutant("found", _FILE, "self._heard[0] <= sent - self._tick", "self._heard[0] <= sent", _PROOF)
HARMLESS = Mutant("harmless", _FILE, '"""Forget all heartbeats: ', '"""Forget heartbeats: ', _PROOF)
STALE = Mutant("stale", _FILE, "no such text", "", _PROOF)
NO_TEST = Mutant("without a test", _FILE, HARMLESS.text, HARMLESS.becomes, ("tests/unit/test_no_such_file.py",))


@pytest.mark.parametrize(
    ("mutants", "code", "out", "err"),
    [
        ((FOUND, HARMLESS), 1, f"SURVIVED {_FILE}: harmless", ""),
        ((FOUND,), 0, "1 found, 0 survived", ""),
        ((FOUND, STALE), 2, "", "'stale': its text is 0 times"),
        ((NO_TEST,), 2, "", "do not pass without one"),
    ],
    ids=["one survives", "all are found", "stale", "no such test"],
)
def test_runner_tells_what_its_mutants_came_to(
    mutants: tuple[Mutant, ...],
    code: int,
    out: str,
    err: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A survivor fails the run by its name; a list or a test that says nothing is an error, and not a survivor."""
    monkeypatch.setattr(command, "MUTANTS", mutants)
    assert command.main(["--processes", "2"]) == code
    told = capsys.readouterr()
    assert out in told.out
    assert err in told.err
    assert ("SURVIVED" in told.out) is (code == 1)


def test_words_choose_mutants_by_name_and_file(capsys: pytest.CaptureFixture[str]) -> None:
    """While one line is worked on, its mutants are enough."""
    assert command.main(["--list", "etcd/lease.py", "margin"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert "_core/belief.py: no margin for clocks that drift apart" in told
    assert {line.partition(":")[0] for line in told} == {"_core/belief.py", "_backends/etcd/lease.py"}
    with pytest.raises(SystemExit) as ended:
        command.main(["no such word"])
    assert ended.value.code == 2
