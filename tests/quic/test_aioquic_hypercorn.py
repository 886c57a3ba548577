"""hypercorn's HTTP/3, written for aioquic and moving packets itself, on uringcore; curl is its client."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.interop.peers.installed import curl
from tests.support.child_processes import bound
from tests.support.free_ports import free_port
from tests.support.interpreter_roles import is_default_interpreter
from tests.support.third_party_programs import Unavailable

pytestmark = pytest.mark.skipif(
    not is_default_interpreter(), reason="the wire is the same under every interpreter"
)
RENAMED = Path(__file__).parents[1] / "ecosystem" / "inside"
CONNECTIONS = 50
PROGRAM = f"""
import sys
sys.path.insert(0, {str(RENAMED)!r})
import aioquic_renamed
from hypercorn.__main__ import main

async def app(scope, receive, send):
    if scope["type"] == "http":
        await send({{"type": "http.response.start", "status": 200, "headers": []}})
        await send({{"type": "http.response.body", "body": b"hello"}})
        return
    while True:
        message = await receive()
        await send({{"type": message["type"] + ".complete"}})

sys.modules["served"] = sys.modules["__main__"]
main()
"""


def test_every_one_of_many_connections_is_answered(pki, tmp_path):
    pytest.importorskip("hypercorn")
    try:
        client = curl()
    except Unavailable as reason:
        pytest.skip(str(reason))
    port = free_port()
    bind = ["--quic-bind", f"127.0.0.1:{port}", "--bind", f"unix:{tmp_path}/socket"]
    files = ["--certfile", pki.server.certfile, "--keyfile", pki.server.keyfile]
    command = [sys.executable, "-c", PROGRAM, "--workers", "0", *bind, *files, "served:app"]
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            bound(command),
            env=os.environ | {"ECOSYSTEM_LOOP": "renamed"},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + 60
        while "QUIC" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        ask = [*client, "-s", "--http3-only", "--cacert", pki.authority.certfile]
        ask += ["--resolve", f"localhost:{port}:127.0.0.1", "--max-time", "30"]
        for _ in range(CONNECTIONS):
            one = [*ask, f"https://localhost:{port}/"]
            done = subprocess.run(one, capture_output=True, check=False, timeout=60)
            assert (done.returncode, done.stdout) == (0, b"hello"), (done.stderr, log.read_text())
        mapped = Path(f"/proc/{process.pid}/maps").read_text()
        assert "_uringcore" in mapped and "aioquic/" not in mapped
    finally:
        process.kill()
        process.wait()
