"""``Outbox``: what a program has queued on one stream, for programs that send without awaiting. Not here:
which streams there are, and whether they are over (``numbered``).
"""

from __future__ import annotations

import asyncio
from collections import deque

from uringcore._uringcore import SendStream
from uringcore.quic.errors import QuicError

__all__ = ["Outbox"]


class Outbox:
    """The bytes that QUIC has no room for yet: at most ``places``, and ``BufferError`` for more."""

    def __init__(self, stream: SendStream) -> None:
        self._stream = stream
        self._pieces: deque[tuple[bytes, bool]] = deque()
        self.used = 0
        """Bytes in waiting."""
        self.sent = 0
        """Bytes that QUIC has taken."""
        self.is_over = False
        """Whether nothing more can be sent: the end was queued, or one side has given the stream up."""
        self.is_awaited = False
        """Whether the program is to be told when there is room."""
        self.drained = asyncio.Event()

    def put(self, data: bytes, end: bool, places: int) -> bool:
        """Queues all of it or nothing; tells whether somebody has to be started who sends it."""
        if len(data) > places:
            raise ValueError(f"data: {len(data)} bytes are more than stream_ring_cap, {places}")
        if self.used + len(data) > places:
            self.is_awaited = True
            raise BufferError(f"{self.used} bytes wait on the stream, of {places}")
        is_idle = not self._pieces
        # The program may change what it has handed over.
        self._pieces.append((bytes(data), end))
        self.used += len(data)
        self.is_over = end
        return is_idle

    async def send(self) -> None:
        """Sends what is queued."""
        try:
            while self._pieces:
                data, end = self._pieces[0]
                await self._stream.send(data, finish=end)
                if not self._pieces:
                    return
                self._pieces.popleft()
                self.used -= len(data)
                self.sent += len(data)
                if self.is_awaited:
                    self.is_awaited = False
                    self.drained.set()
        except QuicError:
            self.give_up()

    def give_up(self) -> None:
        """Drops what is queued; who waits for room goes on."""
        self.is_over = True
        self._pieces.clear()
        self.used = 0
        self.drained.set()
