"""A server in a process of its own, and clients that talk to it."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

import uringcore
import uringcore.http3
from tests.support.child_processes import bound
from tests.support.fork_server import forks
from uringcore.http3._unpooled_connection import connect as connect_origin

ROOT = Path(__file__).resolve().parents[2]
APPLICATION = "tests.server.application:app"
STARTED = re.compile(r"HTTP/3 running on UDP port (\d+)")
STARTED_TCP = re.compile(r"Uvicorn running on \w+://[^ ]*:(\d+)")

PATIENT = """
import sys
from tests.server.application import app
from uringcore.server import run, _client_liveness_at_shutdown as watch

watch.SILENCE_SECONDS = 60.0
run(app, port=0, ssl_certfile=sys.argv[1], ssl_keyfile=sys.argv[2], backend={backend!r})
"""
"""A program whose server never gives a silent client up: a busy machine may delay a client for seconds."""


class Server:
    """Runs `uringcore APP ...` as a user would start it; its output goes to a file.

    `program` is Python source to run instead of the command.
    """

    def __init__(
        self,
        folder,
        certificate,
        *arguments,
        backend=None,
        app=APPLICATION,
        http3=True,
        program=None,
    ):
        self.certificate, key = certificate
        self._log = Path(folder) / "server.log"
        command = [sys.executable, "-m", "uringcore", app, "--port", "0", *arguments]
        if "--dev-cert" not in arguments and key is not None:
            command += ["--ssl-certfile", self.certificate, "--ssl-keyfile", key]
        if backend is not None:
            command += ["--backend", backend]
        if program is not None:
            command = [sys.executable, "-c", program, self.certificate, key]
        with self._log.open("wb") as output:
            self.process = self._launch(command, output)
        self.port = int(self.wait_log(STARTED if http3 else STARTED_TCP).group(1))
        self.url = f"https://localhost:{self.port}"

    def _launch(self, command, output):
        return subprocess.Popen(
            bound(command), cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, env=environment()
        )

    def wait_log(self, pattern, seconds=60):
        """Returns the first match of a pattern in the server's output."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            match = re.search(pattern, self.log())
            if match:
                return match
            if self.process.poll() is not None and not re.search(pattern, self.log()):
                raise AssertionError(f"server ended with {self.process.returncode}:\n{self.log()}")
            time.sleep(0.02)
        raise AssertionError(f"no {pattern!r} within {seconds} s in:\n{self.log()}")

    def wait_listening(self, seconds=60):
        """Waits until TCP clients can connect: a worker starts its application before it listens."""
        deadline = time.monotonic() + seconds
        while True:
            with contextlib.suppress(ConnectionRefusedError):
                return socket.create_connection(("localhost", self.port), timeout=20).close()
            if time.monotonic() > deadline:
                raise AssertionError(f"no server listens within {seconds} s:\n{self.log()}")
            time.sleep(0.02)

    def log(self):
        return self._log.read_text(errors="replace")

    def send_signal(self, sig=signal.SIGTERM):
        self.process.send_signal(sig)

    def stop(self, sig=signal.SIGTERM):
        """Stops the server and returns its exit status."""
        self.send_signal(sig)
        return self.wait_stopped()

    def wait_stopped(self, seconds=20):
        """Waits for the end of a server that has already been signalled."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"did not stop within {seconds} s:\n{self.log()}") from None

    def check_log(self):
        """Errors of the application are logged, but our own code must raise none."""
        log = self.log()
        for fault in ("Exception in quic_event_received", "was never retrieved", "never awaited"):
            assert fault not in log, log

    def kill(self):
        self.process.kill()
        self.process.wait()

    def resident_bytes(self):
        fields = Path(f"/proc/{self.process.pid}/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")

    # Clients

    def connect(self):
        """Returns our own HTTP/3 client."""
        return connect_origin(self.url, cafile=self.certificate)

    def get(self, path, method="GET", headers=(), content=None):
        """Makes one HTTP/3 request with our own client."""

        async def fetch():
            async with self.connect() as client:
                return await client.request(method, path, headers=headers, content=content)

        return uringcore.run(fetch())

    @contextlib.contextmanager
    def http1(self):
        """Returns the standard library's HTTP/1.1 client."""
        trust = ssl.create_default_context(cafile=self.certificate)
        connection = http.client.HTTPSConnection("localhost", self.port, context=trust, timeout=20)
        try:
            yield connection
        finally:
            connection.close()


OTHERS = {"--workers", "--reload"}
"""Options with which a server starts interpreters itself."""


class ForkedServer(Server):
    """A server without an interpreter's start (tests/support/fork_server.py), except with `OTHERS`."""

    def _launch(self, command, output):
        fork_server = forks(environment())
        if fork_server is None or command[1:3] != ["-m", "uringcore"] or OTHERS & {*command}:
            return super()._launch(command, output)
        return fork_server.start(command[3:], output)


async def until(condition):
    """Waits until a condition holds."""
    while not condition():
        await asyncio.sleep(0.01)


def environment():
    """Returns this process's environment without the variable that selects a backend."""
    return {key: value for key, value in os.environ.items() if key != "URINGCORE_BACKEND"}


def command(*arguments, **options):
    """Runs `uringcore ...` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "uringcore", *arguments],
        cwd=options.pop("cwd", ROOT),
        env=environment(),
        capture_output=True,
        text=options.pop("text", True),
        timeout=60,
        **options,
    )


def forked_command(*arguments, **options):
    """Like `command`, without an interpreter's start if there are no options; its standard input is empty."""
    fork_server = forks(environment())
    if fork_server is None or options:
        return command(*arguments, **options)
    status, *texts = fork_server.run(arguments, timeout=60)
    # As `subprocess` reads text.
    texts = [text.decode().replace("\r\n", "\n").replace("\r", "\n") for text in texts]
    return subprocess.CompletedProcess(["uringcore", *arguments], status, *texts)
