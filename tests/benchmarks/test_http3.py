"""The HTTP/3 servers under test and their applications all send the responses that the load
generator compares.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.process import Server, children_of
from benchmarks.programs.in_process import Caller
from benchmarks.servers.bulk import pattern
from benchmarks.servers.http3 import APPLICATIONS
from uringcore.devcert import DevelopmentCertificate

BODY = (pattern() * 2)[: 100 * 1024]

SUPERVISED = """
import os, signal, socket, ssl, sys, time
from benchmarks.servers.http3 import say_ready_of
from tests.support.free_ports import free_port
port = free_port()
say_ready_of(port)
listener = socket.create_server(("127.0.0.1", port))
if worker := os.fork():
    def stop(*ignored):
        os.kill(worker, signal.SIGTERM)
        os.wait()
        sys.exit()
    signal.signal(signal.SIGTERM, stop)
    while True:
        time.sleep(0.05)
tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
tls.load_cert_chain(*sys.argv[1:])
while True:
    with tls.wrap_socket(listener.accept()[0], server_side=True) as connection:
        connection.recv(1)
"""


def application_of(name: str) -> Any:
    return importlib.import_module(APPLICATIONS[name]).application


def exchange(caller: Caller) -> tuple[int, bytes]:
    """Makes one request and ignores the response."""
    scope = {**caller.scope, "state": {}}
    asyncio.run(caller.application(scope, caller.receive, caller.send))
    return caller.status, caller.answer


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[str, str]:
    return DevelopmentCertificate.make().write(tmp_path)


@pytest.mark.parametrize("name", APPLICATIONS)
@pytest.mark.parametrize(("path", "upload"), [("/", 0), ("/100k", 0), ("/upload", 102_400)])
def test_every_application_answers_what_is_compared(name: str, path: str, upload: int) -> None:
    sample = asyncio.run(Caller(application_of(name), path, upload).run(0.0, 0.0))
    assert sample["requests"] > 0
    assert sample["server_cpu_ns"] > 0


@pytest.mark.parametrize("name", APPLICATIONS)
def test_a_verified_upload_is_answered_with_its_hash(name: str) -> None:
    caller = Caller(application_of(name), "/verify", len(BODY))
    answer = len(BODY).to_bytes(8, "big") + hashlib.sha256(BODY).digest()
    assert exchange(caller) == (200, answer)


@pytest.mark.parametrize("length", [0, 65_536, 102_400])
def test_a_download_repeats_the_pattern(length: int) -> None:
    caller = Caller(application_of("bare"), "/", 0)
    caller.scope["path"] = f"/download/{length}"
    assert exchange(caller) == (200, BODY[:length])


def test_a_wrong_answer_ends_the_program() -> None:
    caller = Caller(application_of("bare"), "/", 0)
    caller.expected = b"Hello, world?"
    with pytest.raises(SystemExit, match="status 200, 13 bytes that are not expected"):
        asyncio.run(caller.call(1))


@pytest.mark.parametrize("name", ["uringcore-uring", "uringcore-epoll"])
def test_a_server_prints_ready_and_ends_on_request(name: str, certificate: tuple[str, str]) -> None:
    cert, key = certificate
    command = [sys.executable, "-m", "benchmarks.servers.http3", "--server", name]
    options = ["--application", "bare", "--cert", cert, "--key", key]
    with Server(name, [*command, *options], {}) as server:
        sockets = Path(f"/proc/{server.pid}/net/udp").read_text()
        assert f":{server.port:04X} " in sockets


def test_the_worker_of_a_supervisor_is_measured(certificate: tuple[str, str]) -> None:
    with Server("supervised", [sys.executable, "-c", SUPERVISED, *certificate], {}) as server:
        assert server._process is not None
        assert children_of(server._process.pid) == [server.pid]


def test_no_worker_outlives_a_supervisor_that_is_killed(certificate: tuple[str, str]) -> None:
    server = Server("supervised", [sys.executable, "-c", SUPERVISED, *certificate], {})
    server.__enter__()
    server._kill()
    # The process that adopts the orphan reaps it a little later. A worker that survives would hang
    # this loop.
    while running(server.pid):
        time.sleep(0.01)


def running(pid: int) -> bool:
    """Returns true if the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
