"""The reference for our own protobuf: etcd.proto, compiled by protoc and read by protobuf's own runtime.

Nothing of the library under test is in it but the .proto file itself.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import tenure

PROTO = Path(tenure.__file__).parent / "_backends" / "etcd" / "grpc" / "etcd.proto"


@functools.cache
def etcd_messages() -> Any:
    """The message classes of etcd.proto, by name. Any: made at run time."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # type: ignore[import-untyped]
    from grpc_tools import protoc  # type: ignore[import-untyped]

    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "etcd.descriptors"
        status = protoc.main(["protoc", f"-I{PROTO.parent}", f"--descriptor_set_out={out}", PROTO.name])
        assert status == 0, f"protoc does not take {PROTO.name}"
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    (file,) = files.file
    pool.Add(file)
    named = {
        message.name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.{message.name}"))
        for message in file.message_type
    }
    return SimpleNamespace(**named)
