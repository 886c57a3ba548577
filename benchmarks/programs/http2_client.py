"""The client of an HTTP/2 server that another program measures: it makes the number of requests on stdin.

    python -m benchmarks.programs.http2_client PORT {hello,numbers,json,download,upload} AT_ONCE

Each line on stdin is a number of requests, AT_ONCE of them in flight on one connection: the client sends all,
and then receives all responses. A byte on stdout follows once all are answered. Like `echo_client.py` it
runs when the server, on the same core, is idle.
"""

from __future__ import annotations

import socket
import struct
import sys
from dataclasses import dataclass

from benchmarks.applications import ORDER, TOTAL
from benchmarks.applications.bare import HELLO, LARGE
from benchmarks.programs.work_requests import shares, yield_the_core

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, WINDOW_UPDATE = 0, 1, 4, 8
IGNORED = (2, 6)
"""PRIORITY and PING."""
END_STREAM, ACK, END_HEADERS = 1, 1, 4
STATUS_200 = 0x88
INITIAL_WINDOW = 65_535
WINDOW = (1 << 30) - 1
PIECE_BYTES = 16_384
"""The largest frame that every server accepts (RFC 9113 section 4.2)."""


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """RFC 9113 section 4.1."""
    return struct.pack("!I", len(payload) << 8 | kind) + struct.pack("!BI", flags, stream) + payload


@dataclass
class Mode:
    """A request, and the content of its response."""

    method: int
    path: bytes
    request: bytes
    content: bytes

    def block(self, *, first: bool) -> bytes:
        """The fields as HPACK: literals that the server keeps, then their indexes (RFC 7541 section 6)."""
        start = bytes((self.method, 0x86))
        if not first:
            return start + b"\xc1\xc0\xbf\xbe"
        fields = ((1, b"127.0.0.1"), (4, self.path), (58, b"benchmark"), (19, b"*/*"))
        literals = (bytes((0x40 | name, len(value))) + value for name, value in fields)
        return start + b"".join(literals)


MODES = {
    "hello": Mode(0x82, b"/", b"", HELLO),
    "numbers": Mode(0x82, b"/numbers/1/2/3/4/5/6/7/8/9/10", b"", b"55"),
    "json": Mode(0x83, b"/order", ORDER.encode(), TOTAL.encode()),
    "download": Mode(0x82, b"/100k", b"", LARGE),
    "upload": Mode(0x83, b"/upload", LARGE, len(LARGE).to_bytes(8, "big")),
}


class Connection:
    """One connection to the server."""

    def __init__(self, port: int, mode: Mode) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._mode = mode
        self._received = b""
        self._credit = INITIAL_WINDOW
        self._next = 1
        self._bodies: dict[int, list[bytes]] = {}
        """What has arrived of each response; none before its head."""
        settings = struct.pack("!HI", SETTINGS, WINDOW)
        update = frame(WINDOW_UPDATE, 0, 0, struct.pack("!I", WINDOW - INITIAL_WINDOW))
        self._socket.sendall(PREFACE + frame(SETTINGS, 0, 0, settings) + update)
        self._is_ready = False
        while not self._is_ready:
            self._handle()

    def ask(self, count: int) -> None:
        """Send requests together, and receive the responses. Raise `ValueError` for a wrong one."""
        for _ in range(count):
            self._send()
        while self._bodies:
            self._handle()

    def _send(self) -> None:
        stream, content = self._next, self._mode.request
        self._next += 2
        self._bodies[stream] = []
        ends = 0 if content else END_STREAM
        block = self._mode.block(first=stream == 1)
        frames = [frame(HEADERS, END_HEADERS | ends, stream, block)]
        for at in range(0, len(content), PIECE_BYTES):
            piece = content[at : at + PIECE_BYTES]
            ends = END_STREAM if at + len(piece) == len(content) else 0
            frames.append(frame(DATA, ends, stream, piece))
        while self._credit < len(content):
            self._handle()
        self._credit -= len(content)
        self._socket.sendall(b"".join(frames))

    def _handle(self) -> None:
        head = self._exactly(9)
        length, kind = int.from_bytes(head[:3], "big"), head[3]
        flags, stream = head[4], int.from_bytes(head[5:], "big")
        payload = self._exactly(length)
        if kind == SETTINGS:
            if not flags & ACK:
                self._is_ready = True
                self._socket.sendall(frame(SETTINGS, ACK, 0))
        elif kind == WINDOW_UPDATE:
            if not stream:
                self._credit += int.from_bytes(payload, "big")
        elif kind == HEADERS:
            # The first block of a connection may begin with a change of the table's size.
            if STATUS_200 not in payload[:4]:
                raise ValueError(f"a wrong status: {payload!r}")
        elif kind == DATA:
            self._bodies[stream].append(payload)
        elif kind not in IGNORED:
            raise ValueError(f"frame {kind} of stream {stream}: {payload!r}")
        if kind in (DATA, HEADERS) and flags & END_STREAM:
            content = b"".join(self._bodies.pop(stream))
            if content != self._mode.content:
                raise ValueError(f"wrong content: {content[:200]!r}")

    def _exactly(self, size: int) -> bytes:
        while len(self._received) < size:
            piece = self._socket.recv(1 << 20)
            if not piece:
                raise ConnectionError("the server closed the connection")
            self._received += piece
        found, self._received = self._received[:size], self._received[size:]
        return found


def main() -> None:
    """Send requests until stdin ends."""
    port, mode, at_once = sys.argv[1:]
    yield_the_core()
    connection = Connection(int(port), MODES[mode])
    for line in sys.stdin:
        numbers = shares(int(line), int(at_once))
        for turn in range(max(numbers)):
            connection.ask(sum(turn < number for number in numbers))
        sys.stdout.buffer.write(b".")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
