"""A WebSocket client over HTTP/2 (RFC 8441): the h2 package carries it, `websockets` frames it."""

from __future__ import annotations

from websockets import frames
from websockets import protocol as protocols

__all__ = ["Socket"]


class Socket:
    """One WebSocket on one stream of a connection."""

    def __init__(self, client, path, *fields, extensions=(), authority="localhost"):
        self.client = client
        self.stream_id = client.begin(
            path,
            "CONNECT",
            [("sec-websocket-version", "13"), *fields],
            end=False,
            protocol="websocket",
            authority=authority,
        )
        self.response = client.head(self.stream_id)
        state = protocols.State.OPEN
        self.protocol = protocols.Protocol(protocols.Side.CLIENT, state=state, max_size=None)
        self.protocol.extensions = list(extensions)
        self._taken = 0
        self._received = []

    def _pump(self):
        body = self.response.body
        if len(body) > self._taken:
            new, self._taken = body[self._taken :], len(body)
            self.protocol.receive_data(new)
            self._received += self.protocol.events_received()

    def receive(self):
        """Returns the next message."""
        message = b""
        while True:
            self._pump()
            while not self._received:
                assert self.client.more()
                self._pump()
            part = self._received.pop(0)
            if part.opcode is frames.Opcode.PING:
                continue
            message += part.data
            if part.fin:
                return message

    def send(self, message: bytes | str):
        if isinstance(message, str):
            self.protocol.send_text(message.encode())
        else:
            self.protocol.send_binary(message)
        self._flush()

    def close(self, code: int, reason: str = ""):
        self.protocol.send_close(code, reason)
        self._flush()

    def _flush(self):
        for data in self.protocol.data_to_send():
            self.client.send(self.stream_id, data)

    def closed(self):
        """Returns the status code with which the server closes the WebSocket."""
        self.client.response(self.stream_id)
        self._pump()
        return self.protocol.close_rcvd.code
