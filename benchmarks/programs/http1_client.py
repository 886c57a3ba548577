"""The client of an HTTP/1.1 server that another program measures: it makes the number of requests on stdin.

    python -m benchmarks.programs.http1_client PORT {hello,numbers,json,download,upload,websocket} CONNECTIONS

Each line on stdin is a number of requests (or of messages on a WebSocket). Each connection has one in
flight: the client sends on all connections, and then receives from all of them. A byte on stdout follows
once all are answered. Like `echo_client.py` it runs when the server, on the same core, is idle.
"""

from __future__ import annotations

import re
import socket
import sys
from dataclasses import dataclass

from benchmarks.applications import ORDER, TOTAL
from benchmarks.applications.bare import HELLO, LARGE
from benchmarks.programs.work_requests import shares, yield_the_core

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.I)
FIELDS = b"Host: 127.0.0.1\r\nUser-Agent: benchmark\r\nAccept: */*\r\n"
UPGRADE = (
    b"GET /echo HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
MESSAGE = LARGE[:100]
FRAME = b"\x82\xe4" + bytes(4) + MESSAGE
"""A binary message of 100 bytes whose mask changes nothing (RFC 6455 section 5.3)."""


@dataclass
class Mode:
    """A request, and the content of its response."""

    request: bytes
    content: bytes


def get(path: str) -> bytes:
    """A request without content."""
    return f"GET {path} HTTP/1.1\r\n".encode() + FIELDS + b"\r\n"


def post(path: str, content: bytes) -> bytes:
    """A request with content."""
    length = f"Content-Length: {len(content)}\r\n\r\n".encode()
    return f"POST {path} HTTP/1.1\r\n".encode() + FIELDS + length + content


MODES = {
    "hello": Mode(get("/"), HELLO),
    "numbers": Mode(get("/numbers/1/2/3/4/5/6/7/8/9/10"), b"55"),
    "json": Mode(post("/order", ORDER.encode()), TOTAL.encode()),
    "download": Mode(get("/100k"), LARGE),
    "upload": Mode(post("/upload", LARGE), len(LARGE).to_bytes(8, "big")),
}


class Connection:
    """One connection to the server."""

    def __init__(self, port: int, mode: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        self._mode = MODES.get(mode)
        if self._mode is None:
            self._socket.sendall(UPGRADE)
            self._until(b"\r\n\r\n")

    def send(self) -> None:
        """Send a request, or a message."""
        self._socket.sendall(FRAME if self._mode is None else self._mode.request)

    def receive(self) -> None:
        """Receive the response, or the echo. Raise `ValueError` if it is a wrong one."""
        if self._mode is None:
            expected = FRAME[:1] + bytes([len(MESSAGE)]) + MESSAGE
            content = self._exactly(len(expected))
        else:
            expected = self._mode.content
            head = self._until(b"\r\n\r\n")
            length = LENGTH.search(head)
            if not head.startswith(b"HTTP/1.1 200 ") or length is None:
                raise ValueError(f"a wrong response: {head!r}")
            content = self._exactly(int(length[1]))
        if content != expected:
            raise ValueError(f"wrong content: {content[:200]!r}")

    def _more(self) -> None:
        piece = self._socket.recv(1 << 20)
        if not piece:
            raise ConnectionError("the server closed the connection")
        self._received += piece

    def _until(self, end: bytes) -> bytes:
        while end not in self._received:
            self._more()
        at = self._received.index(end) + len(end)
        found, self._received = self._received[:at], self._received[at:]
        return found

    def _exactly(self, size: int) -> bytes:
        while len(self._received) < size:
            self._more()
        found, self._received = self._received[:size], self._received[size:]
        return found


def main() -> None:
    """Send requests until stdin ends."""
    port, mode, count = sys.argv[1:]
    yield_the_core()
    connections = [Connection(int(port), mode) for _ in range(int(count))]
    for line in sys.stdin:
        numbers = shares(int(line), len(connections))
        for turn in range(max(numbers)):
            asking = [
                one for one, number in zip(connections, numbers, strict=True) if turn < number
            ]
            for connection in asking:
                connection.send()
            for connection in asking:
                connection.receive()
        sys.stdout.buffer.write(b".")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
