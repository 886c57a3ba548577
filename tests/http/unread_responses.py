"""A client that sends many requests and reads no responses, and the application that answers them."""

from __future__ import annotations

import contextlib
import select
import ssl

UNREAD = "tests.http.unread_responses:app"
BLOCKED_SECONDS = 2.0
READ_SECONDS = 30.0
WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
PIECE = 16_384
LARGE = b"v" * 2000
"""The value of a field in each request. Many of them exceed the buffers of the sockets."""
ANSWER = b"v" * 5000
"""The value of a field in each response. HPACK's table has no room for it, so that it is sent each time."""


async def app(scope, receive, send):
    """Answers with a large header section and no content."""
    if scope["type"] == "lifespan":
        while (message := await receive())["type"] != "lifespan.shutdown":
            await send({"type": f"{message['type']}.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    headers = [(b"x-large", ANSWER)]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


class Sender:
    """Sends bytes over a socket, while the server reads them."""

    def __init__(self, sock, data: bytes) -> None:
        self.socket = sock
        self.left = memoryview(data)

    def send(self) -> None:
        """Sends until all bytes are sent, or the server reads no more."""
        self.socket.settimeout(BLOCKED_SECONDS)
        with contextlib.suppress(TimeoutError):
            while self.left:
                self._send_piece()
        self.socket.settimeout(0)

    def read(self) -> bytes:
        """Returns bytes of the server. Sends meanwhile, as the server reads."""
        while True:
            with contextlib.suppress(*WOULD_BLOCK):
                piece = self.socket.recv(1 << 20)
                assert piece, "the server has closed the connection"
                return piece
            with contextlib.suppress(*WOULD_BLOCK):
                while self.left:
                    self._send_piece()
            writers = [self.socket] if self.left else []
            readable, writable, _ = select.select([self.socket], writers, [], READ_SECONDS)
            assert readable or writable, "the server neither reads nor sends"

    def _send_piece(self) -> None:
        self.left = self.left[self.socket.send(self.left[:PIECE]) :]
