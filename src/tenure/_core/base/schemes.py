"""Schemes, which stand before `://` in a URL: our own, those that were registered, and those of installed packages.

A package that brings a backend names its opener in its own metadata, and is imported only when a URL names it:

    [project.entry-points."tenure.backends"]
    toy = "toystore.tenure:open_toy"

Or it calls `tenure.backends.register("toy", open_toy)` before the first connect. Our own schemes can't be
replaced, and one scheme has one opener: which store a URL means must not depend on the order of imports.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tenure.errors import InvalidOption, InvalidURL

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "tenure.backends"
BUILT_IN: Final = {"etcd": 2379, "etcd+grpc": 2379, "zookeeper": 2181, "memory": 0, "http": 80, "https": 443}
"""Our own schemes, and their ports where a URL names none."""

Opener: TypeAlias = Callable[[Any, Any], Any]  # Any: the words of upper layers; see tenure.backends.Opener
_NAME: Final = re.compile(r"[a-z][a-z0-9+-]{0,31}\Z")
_guard = threading.RLock()  # guards _registered
_registered: dict[str, Opener] = {}


def register(scheme: str, opener: Opener) -> None:
    """Let `opener` open `scheme`:// from now on. Raises InvalidOption where that can't be."""
    if not isinstance(scheme, str) or not _NAME.match(scheme):
        raise InvalidOption(f"a scheme is up to 32 of a-z, 0-9, + and -, a letter first; not {scheme!r}")
    if not callable(opener):
        raise InvalidOption(f"what opens {scheme}:// is called with options and a context: {opener!r} can't be called")
    if scheme in BUILT_IN:
        raise InvalidOption(f"{scheme}:// is tenure's own; choose another scheme")
    with _guard:
        if _registered.setdefault(scheme, opener) != opener:  # not `is`: a method is another object each time
            raise InvalidOption(
                f"{scheme}:// is opened by {_registered[scheme]!r} already; it can't be {opener!r} as well"
            )


def known() -> list[str]:
    """Schemes that a URL may have, in alphabetical order."""
    return sorted({*BUILT_IN, *_registered, *(entry.name for entry in _installed())})


def is_known(scheme: str) -> bool:
    """True where a URL may have this scheme. Imports no backend."""
    return scheme in BUILT_IN or scheme in _registered or bool(_installed(scheme))


def opener(scheme: str) -> Opener:
    """The opener of a scheme that is not our own. Raises InvalidURL where it can't be had."""
    found = _registered.get(scheme)
    return _loaded(scheme) if found is None else found


def _loaded(scheme: str) -> Opener:
    entries = _installed(scheme)
    if len(entries) != 1:
        offered = ", ".join(sorted(map(_shown, entries))) or "no installed package"
        raise InvalidURL(f"{scheme}:// must be brought by one package; it is by {offered}. Known: {', '.join(known())}")
    try:
        found = entries[0].load()
    except Exception as error:  # whatever importing somebody's package raises: which one it was is what helps
        raise InvalidURL(f"{scheme}:// is brought by {_shown(entries[0])}, which can't be loaded: {error}") from error
    register(scheme, found)
    opener: Opener = found
    return opener


def _installed(scheme: str | None = None) -> list[EntryPoint]:
    """Entry points of this scheme, or all."""
    from importlib import metadata  # not before it is needed: our own schemes never do

    found = metadata.entry_points(group=GROUP)
    # By name and value: a path that is listed twice in sys.path gives the same entry twice.
    return list({(entry.name, entry.value): entry for entry in found if scheme in (None, entry.name)}.values())


def _shown(entry: EntryPoint) -> str:
    return f"{entry.value} of {entry.dist.name if entry.dist else 'an unknown package'}"
