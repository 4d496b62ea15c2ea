"""Contestants in other languages: Go's clientv3/concurrency and Apache Curator, from harness/ and Debian's packages.

Built once per run into a directory that ends with the process. Nothing is downloaded: Go's packages are those of
Debian's golang-etcd-server-dev, in GOPATH mode; Curator's jars those of libcurator-recipes-java.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from benchmarks.contestants.place import Contestant, Missing, Program

_SOURCES: Final = Path(__file__).parent.parent / "harness"
_GO_ROOT: Final = Path(os.environ.get("TENURE_BENCH_GOPATH", "/usr/share/gocode"))
_GO_PACKAGE: Final = "src/go.etcd.io/etcd/clientv3/concurrency"
_JARS_ROOT: Final = Path(os.environ.get("TENURE_BENCH_JARS", "/usr/share/java"))
_JARS: Final = (
    "curator-recipes",
    "curator-framework",
    "curator-client",
    "zookeeper",
    "zookeeper-jute",
    "guava",
    "slf4j-api",
    "slf4j-simple",
)
_JAVA_OPTIONS: Final = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xshare:auto")
_BUILD_SECONDS: Final = 300
GO_MUTEX: Final = "Go Mutex"
_GO_HINT: Final = "apt-get install golang-go golang-etcd-server-dev"
_CURATOR_HINT: Final = "apt-get install default-jdk-headless libcurator-recipes-java"


@functools.cache
def _directory() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="tenure-harness-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


@functools.cache
def _go() -> tuple[str, ...] | Missing:
    """The compiled harness, or what is missing; either is found out once."""
    go = shutil.which("go")
    if go is None:
        return Missing(f"there is no Go toolchain: `{_GO_HINT}`")
    if not (_GO_ROOT / _GO_PACKAGE).is_dir():
        return Missing(f"etcd's Go client is not in {_GO_ROOT}: `{_GO_HINT}`")
    program = _directory() / "harness"
    environment = {**os.environ, "GO111MODULE": "off", "GOPATH": str(_GO_ROOT), "GOFLAGS": ""}
    return _built([go, "build", "-o", str(program), str(_SOURCES / "harness.go")], environment) or (str(program),)


@functools.cache
def _curator() -> tuple[str, ...] | Missing:
    java, compiler = shutil.which("java"), shutil.which("javac")
    if java is None or compiler is None:
        return Missing(f"there is no Java compiler: `{_CURATOR_HINT}`")
    jars = [_JARS_ROOT / f"{jar}.jar" for jar in _JARS]
    if missing := [jar.name for jar in jars if not jar.exists()]:
        return Missing(f"Curator is not in {_JARS_ROOT} (no {', '.join(missing)}): `{_CURATOR_HINT}`")
    path = ":".join(map(str, jars))
    built = [compiler, "-cp", path, "-d", str(_directory()), str(_SOURCES / "Harness.java")]
    run = (
        java,
        *_JAVA_OPTIONS,
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
        "-cp",
        f"{_directory()}:{path}",
        "Harness",
    )
    return _built(built, dict(os.environ)) or run


def _built(command: list[str], environment: dict[str, str]) -> Missing | None:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_BUILD_SECONDS, check=False)
    if done.returncode == 0:
        return None
    return Missing(f"its harness did not compile here: {' '.join(done.stderr.split())[:300]}")


def _go_command() -> list[str]:
    return _words(_go())


def _curator_command() -> list[str]:
    return _words(_curator())


def _words(found: tuple[str, ...] | Missing) -> list[str]:
    if isinstance(found, Missing):
        raise found
    return list(found)


ALL: Final[list[Contestant]] = [
    Program(GO_MUTEX, "etcd", _go_command, "mutex"),
    Program("Go Election", "etcd", _go_command, "election", recipe="election", contends=False, leads=True),
    Program("Curator mutex", "zookeeper", _curator_command, "mutex"),
    Program("Curator semaphore", "zookeeper", _curator_command, "semaphore", recipe="semaphore"),
    Program("Curator latch", "zookeeper", _curator_command, "latch", recipe="election", contends=False, leads=True),
]
