"""The lines for a shell that start the service, in README.md and docs/, run as they stand, against a real store."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import environment
from tests.pages import Block, blocks, put_tenure
from tests.service.http.program import Service

ANSWERS = {
    "README.md": ['{"released": true}'],
    "docs/service.md": [
        '"renewed": true',
        '{"released": true}',
        '{"lines": [], "after": null}',
        '"leader": {"value": "pod-1:8080"',
        '"isLeader": true',
        '{"ready": true, "why": null}',
        'event: lines\ndata: {"lines": []}',
    ],
}
"""Answers to the lines of each page."""
SERVING = [block for block in blocks("sh") if "tenure serve" in block.text]


def test_every_page_with_such_lines_is_known() -> None:
    """Each page with such lines has one block of them, and answers to expect."""
    assert [block.page for block in SERVING] == list(ANSWERS)


@pytest.mark.parametrize("block", SERVING, ids=lambda block: block.page)
def test_curl_lines_do_what_the_page_says(url: str, tmp_path: Path, block: Block) -> None:
    """A shell runs the block; each line's answer is the one that the page announces."""
    put_tenure(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    text = block.text.replace("tenure serve", f"tenure serve --listen {port}").replace("8700", str(port))
    probe = "readyz?leader=scheduler" if "--elect scheduler=" in text else "readyz"
    ready = f"until curl -sf 127.0.0.1:{port}/{probe} >ready; do sleep 0.1; done\n\nS="
    done = subprocess.run(
        ["bash", "-u", "-c", text.replace("\nS=", f"\n{ready}", 1) + "\nkill %1; wait %1; echo; echo exit $?"],
        capture_output=True,
        text=True,
        timeout=110,
        cwd=tmp_path,
        env=environment({"TENURE_URL": url, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOSTNAME": "pod-1"}),
        check=False,
    )
    for answer in ANSWERS[block.page]:
        assert answer in done.stdout, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("exit 0"), done.stdout + done.stderr


def test_thin_client_does_what_the_page_says(open_service: Service) -> None:
    """The program of the page runs against a service."""
    (block,) = blocks("py")
    assert "http://127.0.0.1:8700/" in block.text
    program = block.text.replace("http://127.0.0.1:8700", open_service.url.rstrip("/"))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.match(r"holding 0\.\d+@\S+/reports%2Fnightly\n\Z", done.stdout), done.stdout
