"""One WebSocket of a client that writes arbitrary bytes, over each version of HTTP.

The handshakes are valid. All bytes after them are the test's: over HTTP/1.1 as they are (RFC 6455), over
HTTP/2 in DATA frames of the h2 package (RFC 8441), over HTTP/3 in DATA frames on a stream of aioquic (RFC
9220).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator
from typing import Any

from tests.http import http3_bytes
from tests.http.http1.client import Raw
from tests.http.http2.client import Client
from tests.http.raw_client import connect_raw
from tests.http.websocket.frames import CLOSE, Frame, Reader

__all__ = ["VERSIONS", "Connection", "connected", "status_code"]

Fields = tuple[tuple[str, str], ...]

AT_ONCE = (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class Connection:
    """A WebSocket after its handshake. A subclass carries its bytes."""

    extensions: str | None = None
    """The server's Sec-WebSocket-Extensions."""

    def __init__(self) -> None:
        self._frames = Reader()
        self.received: list[Frame] = []
        self.is_ended = False

    def send(self, data: bytes) -> None:
        """Sends bytes by themselves; drops them if the server reads no more."""
        raise NotImplementedError

    def _receive(self) -> bytes:
        """Waits for bytes; returns none at the end of the stream."""
        raise NotImplementedError

    def shut(self) -> None:
        """Closes what carries the WebSocket."""
        raise NotImplementedError

    def wait_frames(self, count: int) -> list[Frame]:
        """Returns the next frames, or fewer if the stream ends before."""
        while len(self.received) < count and not self.is_ended:
            data = self._receive()
            self.is_ended = not data
            self.received += self._frames.read(data)
        found, self.received = self.received[:count], self.received[count:]
        return found

    def wait_end(self) -> list[Frame]:
        """Returns all frames until the end of the stream."""
        found = []
        while frames := self.wait_frames(1):
            found += frames
        return found


class Http1(Connection):
    def __init__(self, server: Any, path: str, fields: Fields) -> None:
        super().__init__()
        self._raw = Raw(server, secure=True)
        self._raw.socket.setsockopt(*AT_ONCE)
        asked = {
            "Host": "localhost",
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
            **dict(fields),
        }
        lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in asked.items())]
        self._raw.send("\r\n".join(lines) + "\r\n\r\n")
        response = self._raw.head()
        assert response.status == 101, response
        # RFC 6455 section 1.3 has this value.
        assert response.get("sec-websocket-accept") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        self.extensions = response.get("sec-websocket-extensions")

    def send(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            self._raw.send(data)

    def _receive(self) -> bytes:
        return self._raw.some()

    def shut(self) -> None:
        self._raw.close()


class Http2(Connection):
    def __init__(self, server: Any, path: str, fields: Fields) -> None:
        super().__init__()
        self._client = Client(server, secure=True)
        self._client.socket.setsockopt(*AT_ONCE)
        asked = [("sec-websocket-version", "13"), *fields]
        self._stream = self._client.begin(path, "CONNECT", asked, end=False, protocol="websocket")
        self._response = self._client.head(self._stream)
        assert self._response.status == 200, self._response
        self.extensions = self._response.get("sec-websocket-extensions")

    def send(self, data: bytes) -> None:
        if not self._response.ended:
            self._client.send(self._stream, data)

    def _receive(self) -> bytes:
        response = self._response
        while not response.body and not response.ended and response.reset is None:
            assert self._client.more(), response
        found, response.body = response.body, b""
        return found

    def shut(self) -> None:
        self._client.close()


class Http3(Connection):
    def __init__(self, server: Any, path: str, fields: Fields) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        self._resources = contextlib.AsyncExitStack()
        try:
            self._loop.run_until_complete(self._open(server, path, fields))
        except BaseException:
            self.shut()
            raise

    async def _open(self, server: Any, path: str, fields: Fields) -> None:
        self._raw = await self._resources.enter_async_context(connect_raw(server))
        self._raw.control()
        await self._raw.wait_settings()
        asked = [(name.encode(), value.encode()) for name, value in fields]
        head = http3_bytes.request(
            path,
            (b"sec-websocket-version", b"13"),
            *asked,
            method="CONNECT",
            protocol="websocket",
        )
        self._stream = self._raw.bidi(head)
        self._incoming = self._raw.incoming(self._stream)
        await self._raw.wait(lambda: self._raw.answer(self._stream).status)
        answer = self._raw.answer(self._stream)
        assert answer.status == 200, answer
        extensions = dict(answer.fields).get(b"sec-websocket-extensions")
        self.extensions = None if extensions is None else extensions.decode()

    def send(self, data: bytes) -> None:
        self._loop.run_until_complete(self._send(data))

    async def _send(self, data: bytes) -> None:
        if self._incoming.stopped is None and not self._incoming.over:
            self._raw.write(self._stream, http3_bytes.frame(http3_bytes.DATA, data))
        # Datagrams that have arrived meanwhile are received.
        await asyncio.sleep(0)

    def _receive(self) -> bytes:
        return self._loop.run_until_complete(self._content())

    async def _content(self) -> bytes:
        found = b""

        def has_more() -> bool:
            nonlocal found
            found = b"".join(self._data())
            return bool(found) or self._incoming.over

        await self._raw.wait(has_more)
        return found

    def _data(self) -> Iterator[bytes]:
        """Removes the complete frames from the stream, and returns the payloads of DATA."""
        complete = list(self._raw.frames(self._stream))
        size = sum(len(http3_bytes.frame(kind, payload)) for kind, payload in complete)
        del self._incoming.data[:size]
        return (payload for kind, payload in complete if kind == http3_bytes.DATA)

    def shut(self) -> None:
        self._loop.run_until_complete(self._resources.aclose())
        self._loop.close()


VERSIONS = {"http1": Http1, "http2": Http2, "http3": Http3}


@contextlib.contextmanager
def connected(
    server: Any, version: str, path: str = "/", fields: Fields = ()
) -> Iterator[Connection]:
    """Opens a WebSocket over this version of HTTP."""
    connection = VERSIONS[version](server, path, fields)
    try:
        yield connection
    finally:
        connection.shut()


def status_code(frame: Frame) -> int | None:
    """Returns the status code of a Close frame; ``None`` if it has none."""
    assert frame.opcode == CLOSE, frame
    return int.from_bytes(frame.payload[:2], "big") if frame.payload else None
