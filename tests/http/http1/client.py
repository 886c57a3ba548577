"""An HTTP/1.1 client that sends any bytes, over TCP or TLS."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import Iterator
from dataclasses import dataclass

SECONDS = 30.0


@dataclass
class Response:
    """A response as it was received."""

    status: int
    fields: list[tuple[str, str]]
    body: bytes = b""
    trailers: tuple[tuple[str, str], ...] = ()

    def get(self, name: str) -> str | None:
        return {key.lower(): value for key, value in self.fields}.get(name)


class Raw:
    """One connection."""

    def __init__(self, server, *, secure=False, path=None, source="127.0.0.1"):
        if path is not None:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(SECONDS)
            self.socket.connect(path)
        else:
            address = ("127.0.0.1", server.port)
            self.socket = socket.create_connection(address, SECONDS, source_address=(source, 0))
        if secure:
            trust = ssl.create_default_context(cafile=server.certificate)
            try:
                self.socket = trust.wrap_socket(self.socket, server_hostname="localhost")
            except OSError:
                self.socket.close()
                raise
        self._received = b""

    def send(self, data: bytes | str) -> None:
        self.socket.sendall(data.encode() if isinstance(data, str) else data)

    def get(self, path: str, *fields: str, method: str = "GET") -> Response:
        """Sends a request without content, and receives its response."""
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *fields]
        self.send("\r\n".join(lines) + "\r\n\r\n")
        return self.response(is_head=method == "HEAD")

    def more(self) -> bool:
        """Receives once. Returns False at the end of the stream."""
        piece = self.socket.recv(65536)
        self._received += piece
        return bool(piece)

    def some(self) -> bytes:
        """Returns the next bytes; none at the end of the stream."""
        with contextlib.suppress(ssl.SSLEOFError):
            if not self._received:
                self.more()
        found, self._received = self._received, b""
        return found

    def until(self, end: bytes) -> bytes:
        while end not in self._received:
            assert self.more(), self._received
        found, _, self._received = self._received.partition(end)
        return found

    def exactly(self, size: int) -> bytes:
        while len(self._received) < size:
            assert self.more(), self._received
        found, self._received = self._received[:size], self._received[size:]
        return found

    def rest(self) -> bytes:
        """Returns all bytes until the server closes the connection."""
        with contextlib.suppress(ssl.SSLEOFError):
            while self.more():
                pass
        found, self._received = self._received, b""
        return found

    def is_closed(self) -> bool:
        """Waits for the end of the stream. Returns False if bytes arrive before it."""
        return self.rest() == b""

    def head(self) -> Response:
        """Returns the head of the next response, which may be an interim one."""
        line, *lines = self.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        version, status, _ = line.split(" ", 2)
        assert version == "HTTP/1.1"
        return Response(int(status), [tuple(one.split(": ", 1)) for one in lines])

    def response(self, *, is_head: bool = False) -> Response:
        """Returns the next final response."""
        found = self.head()
        while found.status < 200:
            found = self.head()
        if is_head or found.status in (204, 304):
            return found
        if found.get("transfer-encoding") == "chunked":
            while size := int(self.until(b"\r\n"), 16):
                found.body += self.exactly(size)
                assert self.exactly(2) == b"\r\n"
            lines = []
            while line := self.until(b"\r\n"):
                lines.append(tuple(line.decode().split(": ", 1)))
            found.trailers = tuple(lines)
        elif (length := found.get("content-length")) is not None:
            found.body = self.exactly(int(length))
        else:
            found.body = self.rest()
        return found

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        """Closes the connection with RST, in place of FIN."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


@contextlib.contextmanager
def connected(server, **options) -> Iterator[Raw]:
    raw = Raw(server, **options)
    try:
        yield raw
    finally:
        raw.close()
