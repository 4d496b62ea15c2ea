"""docs/examples/billing.py, four processes on PostgreSQL and etcd: stopped anywhere, they charge each invoice once."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import Engine, create_engine, text

from tests.processes import WorkerProcess, python_module, wait_until_stopped
from tests.servers import Cluster, DatabaseServer

TTL: Final = 3.0


class Service:
    """A billing service with a database and a namespace of its own."""

    def __init__(self, engine: Engine, schema: str, folder: Path, undo: ExitStack) -> None:
        self._engine, self._folder, self._undo = engine, folder, undo
        self._invoices = 0
        with engine.begin() as connection:
            for statement in (
                f"CREATE SCHEMA {schema}",
                "CREATE TABLE invoices (id integer PRIMARY KEY, amount integer, charged boolean DEFAULT false)",
                "CREATE TABLE charges (invoice integer, amount integer, token bigint)",
            ):
                connection.execute(text(statement))

    def add_invoices(self, count: int) -> None:
        """Open that many more."""
        with self._engine.begin() as connection:
            for _ in range(count):
                self._invoices += 1
                connection.execute(text(f"INSERT INTO invoices VALUES ({self._invoices}, {self._invoices * 10})"))

    def start(self, *words: str) -> WorkerProcess:
        """A process of the service that stops itself at that moment."""
        name = "-".join(words)
        command = python_module("tests.examples.billing_process", *words)
        process = WorkerProcess(command, log=self._folder / name, name=name)
        self._undo.callback(process.close)
        return process

    def charges(self) -> list[tuple[int, int]]:
        """Invoices and amounts of all charges."""
        with self._engine.connect() as connection:
            rows = connection.execute(text("SELECT invoice, amount FROM charges ORDER BY invoice, amount"))
            return [(invoice, amount) for invoice, amount in rows]

    def each_once(self) -> list[tuple[int, int]]:
        """The charges that there should be."""
        return [(number, number * 10) for number in range(1, self._invoices + 1)]


@pytest.fixture
def service(
    singles: dict[str, Cluster], postgresql: DatabaseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Service]:
    """Tables without a key that would refuse a second charge."""
    schema = f"billing_{uuid.uuid4().hex}"
    url = f"{postgresql.url()}?options=-csearch_path%3D{schema}"
    monkeypatch.setenv("DATABASE_URL", url)
    monkeypatch.setenv("TENURE_URL", singles["etcd"].url(schema, ttl=TTL))
    with ExitStack() as undo:
        engine = create_engine(url)
        undo.callback(engine.dispose)
        yield Service(engine, schema, tmp_path, undo)


def read_until(process: WorkerProcess, word: str) -> list[str]:
    """What it says before that."""
    said = [process.line().decode()]
    while said[-1] != word:
        said.append(process.line().decode())
    return said[:-1]


def read_until_stopped(process: WorkerProcess) -> list[str]:
    """What it says before it stops."""
    said = read_until(process, "stops")
    wait_until_stopped(process.pid)
    return said


def end(process: WorkerProcess) -> list[str]:
    """What it still says, going on, until it has ended well."""
    process.resume()
    said = read_until(process, "done")
    assert process.wait() == 0
    return said


def test_stopped_processes_charge_nothing_twice_and_keep_nobody_waiting(service: Service) -> None:
    """Three stand still, one with a lock and two in a transaction; the fourth charges all the same, theirs too."""
    service.add_invoices(12)
    moments = ("outside", "reading", "writing")
    stopped = {moment: service.start(moment) for moment in moments}
    for process in stopped.values():
        read_until_stopped(process)
    fourth = service.start("idle")
    said = read_until_stopped(fourth)
    assert service.charges() == service.each_once()
    assert not [line for line in said if line.endswith("Error")], "it waited for a lock longer than its hold had left"

    service.add_invoices(12)
    for process in (fourth, *stopped.values()):
        process.resume()  # all of them at once
    ends = {moment: end(process) for moment, process in stopped.items()}
    end(fourth)
    assert service.charges() == service.each_once()
    assert re.fullmatch(r"gave up \d+: LeaseLost", ends["outside"][0])
    for moment in ("reading", "writing"):
        assert re.fullmatch(r"gave up \d+: \w+Error", ends[moment][0]), "the database ended its transaction"


def test_without_the_guard_a_process_that_was_stopped_charges_twice(service: Service) -> None:
    """The control: the lock alone does not keep it from writing what it read before."""
    service.add_invoices(1)
    stopped = service.start("reading", "unguarded")
    read_until_stopped(stopped)
    other = service.start("idle", "unguarded")
    read_until_stopped(other)
    assert service.charges() == [(1, 10)]
    end(stopped)
    assert service.charges() == [(1, 10), (1, 10)]
    end(other)
