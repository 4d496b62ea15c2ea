"""The README's lines for a shell run as they stand, against a real store."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

from tests.cli.program import environment
from tests.sidecar.http.program import Service

README = Path(__file__).parents[3] / "README.md"
SECTION = README.read_text().partition("## For programs in any language")[2].partition("\n## ")[0]


def test_curl_lines_do_what_the_readme_says(url: str, tmp_path: Path) -> None:
    """One shell runs the block; each line's answer is the one that is told."""
    (block,) = re.findall(r"^```sh\n(.*?)^```", SECTION, re.DOTALL | re.MULTILINE)
    program = tmp_path / "holdfast"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m holdfast.cli "$@"\n')
    program.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert "holdfast serve --elect" in block
    block = block.replace("holdfast serve", f"holdfast serve --listen {port}").replace("8700", str(port))
    ready = f"until curl -sf 127.0.0.1:{port}/readyz?leader=scheduler >ready; do sleep 0.1; done\n\nS="
    done = subprocess.run(
        ["bash", "-u", "-c", block.replace("\nS=", f"\n{ready}", 1) + "\nkill %1; wait %1; echo; echo exit $?"],
        capture_output=True,
        text=True,
        timeout=110,
        cwd=tmp_path,
        env=environment({"HOLDFAST_URL": url, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOSTNAME": "pod-1"}),
        check=False,
    )
    assert '"renewed": true' in done.stdout, done.stdout + done.stderr
    assert '{"released": true}' in done.stdout
    assert '{"lines": [], "after": null}' in done.stdout
    assert '"leader": {"value": "pod-1:8080"' in done.stdout
    assert '"isLeader": true' in done.stdout
    assert '{"ready": true, "why": null}' in done.stdout
    assert 'event: lines\ndata: {"lines": []}' in done.stdout
    assert done.stdout.rstrip().endswith("exit 0"), done.stdout + done.stderr


def test_thin_client_does_what_the_readme_says(open_service: Service) -> None:
    """The program, against a service."""
    (block,) = re.findall(r"^```py\n(.*?)^```", SECTION, re.DOTALL | re.MULTILINE)
    assert "http://127.0.0.1:8700/" in block
    program = block.replace("http://127.0.0.1:8700", open_service.url.rstrip("/"))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.match(r"holding 0\.\d+@\S+/reports%2Fnightly\n\Z", done.stdout), done.stdout
