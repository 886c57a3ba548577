"""``Outbox``: data queued on one stream, for programs that send without awaiting; ``Outboxes``: all outboxes
of a session. ``_session_messages`` has the streams and their ends.

Data that QUIC has taken and not sent counts as queued when the program opens a further stream.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from uringcore._buffer_arguments import contiguous_bytes
from uringcore._uringcore import SendStream
from uringcore.quic._errors import QuicError
from uringcore.quic.connection import QuicConnection
from uringcore.webtransport._session_messages import StreamsById

__all__ = ["Outbox", "Outboxes"]

PIECE_MAX = 16 << 10
"""The maximum number of bytes that are passed to QUIC at a time. QUIC takes a whole piece, and does not
report whether the end of it waits for the session's credit."""


class Outbox:
    """Data of one stream for which QUIC has no room yet. At most ``places`` bytes may be queued; more raise
    ``BufferError``."""

    def __init__(self, stream: SendStream) -> None:
        self._stream = stream
        self._pieces: deque[tuple[bytes, bool]] = deque()
        self._waiters: set[asyncio.Future[None]] = set()
        self.used = 0
        """Bytes that wait."""
        self.sent = 0
        """Bytes that QUIC has taken."""
        self.is_over = False
        """True if nothing more can be sent: the end is queued, or the stream was reset or stopped."""
        self.is_awaited = False
        """True if the program waits for room."""
        self.drained = asyncio.Event()
        """An event that is set when the outbox has room. The program may clear it, and :attr:`is_awaited`."""

    def put(self, data: bytes, end: bool, places: int) -> bool:
        """Queues all of the data or nothing. True if :meth:`send` has to be started."""
        # The data is copied, because the program may change its buffer afterwards.
        data = contiguous_bytes(data, "data")
        size = len(data)
        if size > places:
            raise ValueError(f"data: {size} bytes are more than stream_ring_cap, {places}")
        if self.used + size > places:
            self.is_awaited = True
            raise BufferError(f"{self.used} bytes wait on the stream, of {places}")
        is_idle = not self._pieces
        for start in range(0, max(size, 1), PIECE_MAX):
            stop = start + PIECE_MAX
            self._pieces.append((data[start:stop], end and stop >= size))
        self.used += size
        self.is_over = end
        return is_idle

    async def send(self) -> None:
        """Sends the queued data."""
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
                self._wake()
        except QuicError:
            self.discard()

    async def wait(self, *others: Outbox) -> None:
        """Waits until this outbox or one of ``others`` has sent bytes, or was discarded."""
        waiter = asyncio.get_running_loop().create_future()
        for outbox in (self, *others):
            outbox._waiters.add(waiter)
        try:
            await waiter
        finally:
            for outbox in (self, *others):
                outbox._waiters.discard(waiter)

    def discard(self) -> None:
        """Drops the queued data, and wakes waiters."""
        self.is_over = True
        self._pieces.clear()
        self.used = 0
        self.drained.set()
        self._wake()

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


class Outboxes:
    """The outboxes of a session. Each is made when it is first used. It is removed when its stream has ended
    or was stopped."""

    def __init__(self, streams: StreamsById[Any], quic: QuicConnection) -> None:
        self._streams = streams
        self._quic = quic
        self._of: dict[int, Outbox] = {}
        # An upper bound of the bytes that wait: those that were counted last, and those that were queued
        # since.
        self._queued_at_most = 0
        streams.on_over = self._forget_stream

    def __len__(self) -> int:
        return len(self._of)

    def known(self, number: int) -> Outbox | None:
        """Returns the outbox of a stream. ``None`` if it was not made yet."""
        return self._of.get(number)

    def find(self, number: int) -> Outbox | None:
        """The outbox of a stream; ``None`` if the stream has ended or never existed. Raises ``ValueError``
        for a stream that only receives."""
        outbox = self._of.get(number)
        if outbox is None:
            try:
                stream = self._streams.find(number)
            except ValueError:
                return None
            if stream is None or self._streams.is_over:
                return None
            sender = self._streams.sender(number)
            if sender is not None:
                outbox = self._of[number] = Outbox(sender)
        return outbox

    def put(self, outbox: Outbox, data: bytes, end: bool, places: int) -> None:
        """Queues all of the data or nothing."""
        before = outbox.used
        if outbox.put(data, end, places):
            self._streams.spawn(outbox.send)
        self._queued_at_most += outbox.used - before

    async def wait_for_room(self, most: int) -> None:
        """Waits if more than ``most`` bytes are queued: until only half of that is left, or until the session
        has ended."""
        if self._queued_at_most <= most or self._count() <= most:
            return
        while self._count() > most // 2:
            full = [outbox for outbox in self._of.values() if outbox.used]
            if sum(outbox.used for outbox in full) > most // 2:
                await full[0].wait(*full[1:])
            # Counted repeatedly, because QUIC has no event for a queue that shrinks.
            await asyncio.sleep(LOOK_SECONDS)

    def _count(self) -> int:
        """Returns the number of bytes that wait in the outboxes and in QUIC's queues."""
        of_quic = self._quic.get_send_buffer_size
        waiting = (outbox.used + of_quic(number) for number, outbox in self._of.items())
        self._queued_at_most = sum(waiting)
        return self._queued_at_most

    def _forget_stream(self, number: int) -> None:
        outbox = self._of.pop(number, None)
        if outbox is not None:
            outbox.discard()


# Seconds between two counts of the bytes in QUIC's queues.
LOOK_SECONDS = 0.002
