"""A server's accepts: multishot on sockets that it does not share, and one connection a turn on all others.

The kernel shows a ring's armed operations in ``fdinfo``.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import pytest

import uringcore
from tests.server.conftest import every_backend
from tests.server.harness import APPLICATION, ROOT, environment
from tests.server.worker_application import processes
from tests.support.child_processes import bound

ACCEPTS_AHEAD = "op=13"
"""``IORING_OP_ACCEPT`` in ``fdinfo``."""

pytestmark = pytest.mark.skipif(
    "uring" not in every_backend(), reason="only io_uring accepts ahead"
)

STARTED = "Application startup complete"

FORKING = """
import os
from tests.server.application import app as served

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
    else:
        await served(scope, receive, send)
"""

GIVEN = """
import socket
from uringcore.server import Config, Server
listener = socket.create_server(("127.0.0.1", 0))
server = Server(Config("tests.server.application:app", http3=False, backend="uring"))
print("Uvicorn running on http://127.0.0.1:%d" % listener.getsockname()[1], flush=True)
server.run(sockets=[listener])
"""


class Plain:
    """A server without TLS; `arguments` follow the interpreter."""

    def __init__(self, folder, *arguments, **options):
        self._log = folder / "server.log"
        with self._log.open("wb") as output:
            self.process = subprocess.Popen(
                bound([sys.executable, *arguments]),
                cwd=ROOT,
                env=environment(),
                stdout=output,
                stderr=subprocess.STDOUT,
                **options,
            )

    def wait_log(self, pattern):
        deadline = time.monotonic() + 60
        while (match := re.search(pattern, self._log.read_text())) is None:
            assert self.process.poll() is None and time.monotonic() < deadline, (
                self._log.read_text()
            )
            time.sleep(0.02)
        return match

    def address(self):
        self.wait_log(STARTED)
        return "127.0.0.1", int(self.wait_log(r"Uvicorn running on http://127.0.0.1:(\d+)")[1])

    def stop(self):
        """Terminates the server, which ends its children too; a SIGKILL would leave them running."""
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise


def ask(address, path="/"):
    """Makes a request on a new connection."""
    client = http.client.HTTPConnection("localhost", timeout=60)
    client.sock = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
    client.sock.settimeout(60)
    with contextlib.closing(client):
        client.sock.connect(address)
        client.request("GET", path)
        return client.getresponse().read()


def accepts_ahead(pid):
    """Returns true if one of the process's rings has a multishot accept armed."""
    for number in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            if "io_uring" in os.readlink(f"/proc/{pid}/fd/{number}"):
                with open(f"/proc/{pid}/fdinfo/{number}") as info:
                    if ACCEPTS_AHEAD in info.read():
                        return True
    return False


@pytest.fixture
def run(tmp_path):
    """Starts a server of one process; returns after it has answered a request."""
    started = []

    def run_server(*arguments, address=None, **options):
        server = Plain(tmp_path, *arguments, **options)
        started.append(server)
        if address is None:
            address = server.address()
        else:
            server.wait_log(STARTED)
        assert ask(address) == b"hello"
        return server.process.pid

    yield run_server
    for server in started:
        server.stop()


COMMAND = ("-m", "uringcore", APPLICATION, "--no-http3", "--backend", "uring")


def test_a_single_process_accepts_ahead(run):
    assert accepts_ahead(run(*COMMAND, "--port", "0"))


def test_a_single_process_accepts_ahead_on_a_unix_socket(run, tmp_path):
    path = str(tmp_path / "socket")
    assert accepts_ahead(run(*COMMAND, "--uds", path, address=path))


def test_on_a_descriptor_that_it_was_given_it_does_not(run):
    with socket.create_server(("127.0.0.1", 0)) as given:
        number = str(given.fileno())
        arguments = (*COMMAND, "--fd", number)
        pid = run(*arguments, address=given.getsockname(), pass_fds=[given.fileno()])
        assert not accepts_ahead(pid)


def test_on_a_socket_of_the_programs_it_does_not(run):
    assert not accepts_ahead(run("-c", GIVEN))


def test_an_application_that_has_forked_may_share_the_socket(run, tmp_path):
    (tmp_path / "forking.py").write_text(FORKING)
    command = ["-m", "uringcore", "forking:app", *COMMAND[3:], "--app-dir", str(tmp_path)]
    assert not accepts_ahead(run(*command, "--port", "0"))


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as children:
        return [int(child) for child in children.read().split()]


@pytest.mark.parametrize("how", [("--workers", "2"), ("--reload",)])
def test_children_that_have_a_parents_socket_do_not(run, how):
    parent = run(*COMMAND, "--port", "0", *how)
    assert children_of(parent)
    assert not any(accepts_ahead(child) for child in children_of(parent))


def test_while_a_worker_computes_the_other_takes_all_clients(crowd):
    server = crowd("--timeout-worker-healthcheck", "600", backend="uring")
    pids = uringcore.run(processes(server, 2))
    with contextlib.ExitStack() as stack:
        blocked = stack.enter_context(server.http1())
        blocked.request("GET", "/block")
        server.wait_log("BLOCKED")
        answered = set()
        for _ in range(10):
            connection = stack.enter_context(server.http1())
            connection.request("GET", "/")
            answered.add(json.loads(connection.getresponse().read())[0])
        assert len(answered) == 1 and answered < pids
        # This worker would outlive its supervisor.
        os.kill((pids - answered).pop(), signal.SIGKILL)
