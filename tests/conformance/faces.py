"""Both faces, used the same way: see holdfast.testing.conformance.faces."""

from holdfast.testing.conformance.faces import Blocking, Face, Loop

__all__ = ["Blocking", "Face", "Loop"]
