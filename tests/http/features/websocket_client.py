"""WebSocket over HTTP/3 from the client's side: aioquic carries it, the `websockets` package frames it."""

from __future__ import annotations

import asyncio

from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, Side, State

import uringcore
from tests.http import http3_bytes
from tests.http.features.conftest import events
from tests.http.raw_client import connect_raw


class Socket:
    """One WebSocket on one stream of a raw connection."""

    def __init__(self, raw, path, *headers, version="13"):
        lines = list(headers)
        if version is not None:
            lines.insert(0, (b"sec-websocket-version", version.encode()))
        self.raw = raw
        self.protocol = Protocol(Side.CLIENT, state=State.OPEN, max_size=None)
        self.received = []
        self._taken = 0
        self._ended = False
        request = http3_bytes.request(path, *lines, method="CONNECT", protocol="websocket")
        self.stream_id = raw.bidi(request)

    # The server's side

    @property
    def answer(self):
        return self.raw.answer(self.stream_id)

    async def wait_answer(self):
        """The response's head."""
        await self.raw.wait(lambda: self.answer.status or self.stream.over)
        return self.answer

    @property
    def stream(self):
        return self.raw.incoming(self.stream_id)

    def pump(self):
        """Processes all received data, and sends the replies to it."""
        body = self.answer.body
        if len(body) > self._taken:
            new, self._taken = body[self._taken :], len(body)
            self.protocol.receive_data(new)
        if self.stream.ended and not self._ended:
            self._ended = True
            self.protocol.receive_eof()
        self.received += self.protocol.events_received()
        self.flush()
        return self.received

    async def wait_frames(self, count):
        """Waits for the first `count` frames, and removes them."""
        await self.raw.wait(lambda: len(self.pump()) >= count)
        found, self.received = self.received[:count], self.received[count:]
        return found

    async def wait_messages(self, count):
        """Like `wait_frames`, as text and bytes, without the pings that the server sends every 20 seconds."""
        messages: list[str | bytes] = []
        while len(messages) < count:
            for frame in await self.wait_frames(count - len(messages)):
                if frame.opcode is Opcode.TEXT:
                    messages.append(frame.data.decode())
                elif frame.opcode is not Opcode.PING:
                    messages.append(bytes(frame.data))
        return messages

    async def wait_closed(self):
        """Returns code and reason of the server's Close, once its side of the stream has ended."""
        await self.raw.wait(lambda: (self.pump(), self.stream.over)[1])
        assert self.stream.ended, self.stream
        close = self.protocol.close_rcvd
        return None if close is None else (close.code, close.reason)

    # The client's side

    def flush(self):
        if self.stream.stopped is not None:
            return
        for data in self.protocol.data_to_send():
            self.write(data, fin=not data)

    def write(self, data, *, fin=False):
        """Writes raw bytes, valid or invalid."""
        self.raw.write(
            self.stream_id, http3_bytes.frame(http3_bytes.DATA, data) if data else b"", fin=fin
        )

    def send(self, message):
        if isinstance(message, str):
            self.protocol.send_text(message.encode())
        else:
            self.protocol.send_binary(message)
        self.flush()

    def close(self, code=1000, reason=""):
        self.protocol.send_close(code, reason)
        self.flush()


def run(server, client, **options):
    """Runs ``client(raw)`` on one connection, after the server's SETTINGS have arrived."""

    async def main():
        async with connect_raw(server, **options) as raw:
            raw.control()
            await raw.wait_settings()
            return await client(raw)

    return uringcore.run(main())


def frame(opcode, payload, *, fin=True, mask=True):
    return Frame(opcode, payload, fin=fin).serialize(mask=mask)


def wait_events(server, name, count):
    """Waits until the application has recorded `count` events."""

    async def enough():
        while len(found := await asyncio.to_thread(events, server, name)) < count:
            await asyncio.sleep(0.02)
        return found

    return asyncio.run(asyncio.wait_for(enough(), 40))
