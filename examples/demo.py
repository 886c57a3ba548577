"""`make demo`: one server, three protocols, two independent HTTP/3 clients, and a table of the
results.

It starts `uringcore examples.fastapi_app:app` in a process of its own with a fresh certificate,
fetches it over HTTP/1.1, WebSocket and HTTP/3, checks every byte, and stops it with SIGTERM. Exits
with status 0 only if all of it worked. `URINGCORE_BACKEND=epoll` runs the demonstration without
io_uring.
"""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import json
import re
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from websockets.asyncio.client import connect as websocket_connect

import uringcore
import uringcore.http3
from uringcore.devcert import DevelopmentCertificate

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from examples.aioquic_peer import Peer, connect_peer  # noqa: E402 - needs the path above

BULK_BYTES = 100 * 1024 * 1024
SMALL_REQUESTS = 200
WEBSOCKET_MESSAGES = 200
PART = hashlib.shake_128(b"demo").digest(256 * 1024)
START_SECONDS = 30
STOP_SECONDS = 15


class DemoFailed(Exception):
    """A step failed; the text describes it."""


@dataclass
class Row:
    """One line of the table."""

    protocol: str
    what: str
    status: int
    requests: int
    transferred: int
    seconds: float
    syscalls: float


def main() -> int:
    """Runs the demonstration and returns the exit status."""
    with tempfile.TemporaryDirectory(prefix="uringcore-demo-") as folder:
        certificate, key = DevelopmentCertificate.make().write(folder)
        server = Server(certificate, key, Path(folder) / "server.log")
        try:
            rows = demonstrate(server, certificate)
            server.stop()
        except (DemoFailed, OSError, AssertionError, asyncio.TimeoutError) as exc:
            server.kill()
            print(f"demo: {type(exc).__name__}: {exc}\n\n{server.log()}", file=sys.stderr)
            return 1
    show(rows, server.backend)
    return 0


class Server:
    """The server process."""

    def __init__(self, certificate: str, key: str, log: Path) -> None:
        self._log_path = log
        self.backend = "?"
        command = [sys.executable, "-m", "uringcore", "examples.fastapi_app:app"]
        command += ["--ssl-certfile", certificate, "--ssl-keyfile", key, "--port", "0"]
        command += ["--no-access-log"]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT
            )
        self.port = 0

    def wait_started(self) -> None:
        """Waits until both protocols are served; the log contains the port."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            match = re.search(r"HTTP/3 running on UDP port (\d+)", self.log())
            if match:
                self.port = int(match.group(1))
                return
            if self._process.poll() is not None:
                raise DemoFailed(f"the server ended with status {self._process.returncode}")
            time.sleep(0.05)
        raise DemoFailed(f"the server did not start within {START_SECONDS} s")

    def stop(self) -> None:
        """Sends SIGTERM, after which the server must exit cleanly."""
        self._process.send_signal(signal.SIGTERM)
        try:
            status = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise DemoFailed(f"the server did not stop within {STOP_SECONDS} s") from None
        if status != 0:
            raise DemoFailed(f"the server stopped with status {status}")

    def kill(self) -> None:
        """Kills the server after a failure."""
        self._process.kill()
        self._process.wait()

    def log(self) -> str:
        """Returns the server's output so far."""
        return self._log_path.read_text(errors="replace")


def demonstrate(server: Server, certificate: str) -> list[Row]:
    server.wait_started()
    trust = ssl.create_default_context(cafile=certificate)
    table = Table(server, trust)
    origin = f"https://localhost:{server.port}"
    http1 = HTTP1(server.port, trust)
    table.measure("HTTP/1.1", "hello", lambda: http1.hello("1.1"))
    table.measure("HTTP/1.1", "download", http1.download)
    table.measure("HTTP/1.1", "upload", http1.upload)
    http1.close()
    table.measure("WebSocket", "echo", lambda: uringcore.run(websocket(server.port, trust)))
    table.measure("HTTP/3", "uringcore get", lambda: command(origin, certificate))
    uringcore.run(over_http3(table, origin, certificate))
    asyncio.run(over_aioquic(table, origin, certificate))
    return table.rows


class Table:
    """Measures each step, in time and in the server's system calls."""

    def __init__(self, server: Server, trust: ssl.SSLContext) -> None:
        self._server = server
        self._trust = trust
        self.rows: list[Row] = []

    def measure(self, protocol: str, what: str, run: Callable[[], tuple[int, int, int]]) -> None:
        """Runs ``run``, which returns status, number of requests and bytes."""
        before = self.begin()
        self.end(protocol, what, before, *run())

    def begin(self) -> tuple[int, float]:
        """Returns the counters before a step."""
        return self._syscalls(), time.perf_counter()

    def end(
        self,
        protocol: str,
        what: str,
        before: tuple[int, float],
        status: int,
        requests: int,
        size: int,
    ) -> None:
        """Returns a row of the counters after a step."""
        seconds = time.perf_counter() - before[1]
        if status != 200 and status != 101:
            raise DemoFailed(f"{protocol} {what}: status {status}")
        syscalls = (self._syscalls() - before[0]) / requests
        self.rows.append(Row(protocol, what, status, requests, size, seconds, syscalls))

    def _syscalls(self) -> int:
        connection = http.client.HTTPSConnection(
            "localhost", self._server.port, context=self._trust, timeout=30
        )
        connection.request("GET", "/stats")
        stats = json.load(connection.getresponse())
        connection.close()
        self._server.backend = stats["backend"]
        return int(stats["counters"]["syscalls"])


class HTTP1:
    """HTTP/1.1 over TLS with the standard library's client."""

    def __init__(self, port: int, trust: ssl.SSLContext) -> None:
        self._connection = http.client.HTTPSConnection("localhost", port, context=trust, timeout=60)

    def hello(self, version: str) -> tuple[int, int, int]:
        size = 0
        for _ in range(SMALL_REQUESTS):
            self._connection.request("GET", "/")
            response = self._connection.getresponse()
            body = response.read()
            check_hello(body, version)
            size += len(body)
        alternative = response.getheader("alt-svc", "")
        if f'h3=":{self._connection.port}"' not in alternative:
            raise DemoFailed(f"Alt-Svc does not announce HTTP/3: {alternative!r}")
        return response.status, SMALL_REQUESTS, size

    def download(self) -> tuple[int, int, int]:
        self._connection.request("GET", f"/download/{BULK_BYTES}")
        response = self._connection.getresponse()
        digest = Digest()
        while part := response.read(len(PART)):
            digest.update(part)
        digest.check(response.getheader("x-content-sha256"))
        return response.status, 1, digest.size

    def upload(self) -> tuple[int, int, int]:
        digest = Digest()
        headers = {"content-length": str(BULK_BYTES)}
        body = digest.watch(upload_parts(BULK_BYTES))
        self._connection.request("PUT", "/upload", body=body, headers=headers)
        response = self._connection.getresponse()
        digest.check(json.load(response)["sha256"])
        return response.status, 1, digest.size

    def close(self) -> None:
        self._connection.close()


async def websocket(port: int, trust: ssl.SSLContext) -> tuple[int, int, int]:
    size = 0
    async with websocket_connect(f"wss://localhost:{port}/ws", ssl=trust) as connection:
        for number in range(WEBSOCKET_MESSAGES):
            message = f"message {number}"
            await connection.send(message)
            answer = await connection.recv()
            if answer != message:
                raise DemoFailed(f"WebSocket echo: sent {message!r}, got {answer!r}")
            size += len(message)
        assert connection.response is not None
        return connection.response.status_code, WEBSOCKET_MESSAGES, size


def command(origin: str, certificate: str) -> tuple[int, int, int]:
    """Runs the command line tool as a user would."""
    done = subprocess.run(
        [sys.executable, "-m", "uringcore", "get", "--cacert", certificate, "--fail", origin + "/"],
        capture_output=True,
        cwd=ROOT,
    )
    if done.returncode:
        raise DemoFailed(f"uringcore get ended with {done.returncode}: {done.stderr.decode()}")
    check_hello(done.stdout, "3")
    return 200, 1, len(done.stdout)


async def over_http3(table: Table, origin: str, certificate: str) -> None:
    """Our own client."""
    async with uringcore.http3.Client(base_url=origin, cafile=certificate) as client:
        before, size = await later(table.begin), 0
        for _ in range(SMALL_REQUESTS):
            response = await client.get("/")
            check_hello(response.content, "3")
            size += len(response.content)
        await later(table.end, "HTTP/3", "hello", before, response.status, SMALL_REQUESTS, size)

        before, digest = await later(table.begin), Digest()
        async with client.stream("GET", f"/download/{BULK_BYTES}") as streamed:
            async for part in streamed.iter_bytes():
                digest.update(part)
        digest.check(streamed.header("x-content-sha256"))
        await later(table.end, "HTTP/3", "download", before, streamed.status, 1, digest.size)

        before, digest = await later(table.begin), Digest()
        content = digest.watch(upload_parts(BULK_BYTES))
        response = await client.request("PUT", "/upload", content=content)
        digest.check(json.loads(response.content)["sha256"])
        await later(table.end, "HTTP/3", "upload", before, response.status, 1, digest.size)


async def over_aioquic(table: Table, origin: str, certificate: str) -> None:
    """Runs the requests with a client that contains nothing of uringcore."""
    name = "HTTP/3 (aioquic client)"
    async with connect_peer(origin, cafile=certificate) as peer:
        before, size = await later(table.begin), 0
        for _ in range(SMALL_REQUESTS):
            answer = await peer.fetch("GET", "/")
            check_hello(answer.body, "3")
            size += len(answer.body)
        await later(table.end, name, "hello", before, answer.status, SMALL_REQUESTS, size)
        await aioquic_bulk(table, peer, name)


async def aioquic_bulk(table: Table, peer: Peer, name: str) -> None:
    before, digest = await later(table.begin), Digest()
    answer = await peer.fetch("GET", f"/download/{BULK_BYTES}")
    digest.update(answer.body)
    digest.check(answer.headers.get("x-content-sha256"))
    await later(table.end, name, "download", before, answer.status, 1, digest.size)

    before, digest = await later(table.begin), Digest()
    content = digest.watch(upload_parts(BULK_BYTES))
    answer = await peer.fetch("PUT", "/upload", content=content)
    digest.check(json.loads(answer.body)["sha256"])
    await later(table.end, name, "upload", before, answer.status, 1, digest.size)


async def later(function: Callable[..., Any], *arguments: Any) -> Any:
    """The table queries the server over a blocking connection, so it must not run on the loop."""
    return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)


class Digest:
    """Counts and hashes received data."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.size = 0

    def update(self, part: bytes | bytearray) -> None:
        self._hash.update(part)
        self.size += len(part)

    def watch(self, content: Iterator[bytes]) -> Iterator[bytes]:
        for part in content:
            self.update(part)
            yield part

    def check(self, expected: str | None) -> None:
        if self.size != BULK_BYTES:
            raise DemoFailed(f"{self.size} bytes instead of {BULK_BYTES}")
        if self._hash.hexdigest() != expected:
            raise DemoFailed(f"wrong checksum: {self._hash.hexdigest()} instead of {expected}")


def upload_parts(size: int) -> Iterator[bytes]:
    while size > 0:
        yield PART[: min(size, len(PART))]
        size -= len(PART)


def check_hello(body: bytes | bytearray, version: str) -> None:
    answer = json.loads(body)
    if answer["http_version"] != version:
        raise DemoFailed(f"expected HTTP/{version}, the application saw {answer}")


def show(rows: list[Row], backend: str) -> None:
    names = ("protocol", "what", "status", "requests", "bytes", "time", "rate", "loop")
    lines = [(*names, "syscalls/request")]
    for row in rows:
        if row.requests > 1:
            rate = f"{row.requests / row.seconds:,.0f} req/s"
        else:
            rate = f"{row.transferred / row.seconds / 2**20:,.0f} MiB/s"
        if row.what == "uringcore get":
            rate = "-"  # its time is mostly Python's start-up
        lines.append(
            (
                row.protocol,
                row.what,
                str(row.status),
                f"{row.requests:,}",
                f"{row.transferred:,}",
                f"{row.seconds:.3f} s",
                rate,
                backend,
                f"{row.syscalls:,.1f}",
            )
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for number, line in enumerate(lines):
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        )
        if number == 0:
            print("  ".join("-" * width for width in widths))
    print(
        "\nThe syscalls are the server's event loop's, TCP's and the application's included;\n"
        "each measurement adds those of one request to /stats."
    )


if __name__ == "__main__":
    sys.exit(main())
