"""``Outbox``: what a program has queued on one stream, for programs that send without awaiting, and
``Outboxes``, those of a session. Not here: which streams there are, and whether they are over (``numbered``).

Data that QUIC has taken and not sent counts as queued when a further stream is asked for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from uringcore._buffers import contiguous_bytes
from uringcore._uringcore import SendStream
from uringcore.quic._errors import QuicError
from uringcore.quic.connection import QuicConnection
from uringcore.webtransport._numbered import NumberedStreams

__all__ = ["Outbox", "Outboxes"]

PIECE_MAX = 16 << 10
"""So much is handed to QUIC at once, which takes it whole, and does not say whether the last of it waits for
the session's credit."""


class Outbox:
    """The bytes that QUIC has no room for yet: at most ``places``, and ``BufferError`` for more."""

    def __init__(self, stream: SendStream) -> None:
        self._stream = stream
        self._pieces: deque[tuple[bytes, bool]] = deque()
        self._waiters: set[asyncio.Future[None]] = set()
        self.used = 0
        """Bytes in waiting."""
        self.sent = 0
        """Bytes that QUIC has taken."""
        self.is_over = False
        """True if nothing more can be sent: the end was queued, or one side has given the stream up."""
        self.is_awaited = False
        """True if the program is to be told when there is room."""
        self.drained = asyncio.Event()
        """The program's: it may clear it, and :attr:`is_awaited`, as it likes."""

    def put(self, data: bytes, end: bool, places: int) -> bool:
        """Queues all of it or nothing; tells whether somebody has to be started who sends it."""
        # The program may change what it has handed over.
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
                self._wake()
        except QuicError:
            self.give_up()

    async def wait(self, *others: Outbox) -> None:
        """Until bytes have gone, or none will, of this one or one of the others."""
        waiter = asyncio.get_running_loop().create_future()
        for outbox in (self, *others):
            outbox._waiters.add(waiter)
        try:
            await waiter
        finally:
            for outbox in (self, *others):
                outbox._waiters.discard(waiter)

    def give_up(self) -> None:
        """Drops what is queued; who waits for room goes on."""
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
    """Those of a session's streams. One is made when it is asked for, and let go when its stream is over or
    was stopped."""

    def __init__(self, streams: NumberedStreams[Any], quic: QuicConnection) -> None:
        self._streams = streams
        self._quic = quic
        self._of: dict[int, Outbox] = {}
        # No less than waits: what did when it was last counted, and all that was queued since.
        self._queued_at_most = 0
        streams.on_over = self._let_go

    def __len__(self) -> int:
        return len(self._of)

    def known(self, number: int) -> Outbox | None:
        """A stream's, if it was ever asked for."""
        return self._of.get(number)

    def find(self, number: int) -> Outbox | None:
        """A stream's; ``None`` of one that is over or that there never was. ``ValueError`` for one that is
        only received."""
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
        """Queues all of it or nothing."""
        before = outbox.used
        if outbox.put(data, end, places):
            self._streams.spawn(outbox.send)
        self._queued_at_most += outbox.used - before

    async def wait_for_room(self, most: int) -> None:
        """Where more than ``most`` bytes wait, until half of that does, or the session is over."""
        if self._queued_at_most <= most or self._count() <= most:
            return
        while self._count() > most // 2:
            full = [outbox for outbox in self._of.values() if outbox.used]
            if sum(outbox.used for outbox in full) > most // 2:
                await full[0].wait(*full[1:])
            # QUIC does not tell when some of what it has queued leaves.
            await asyncio.sleep(LOOK_SECONDS)

    def _count(self) -> int:
        """The bytes that wait, here or with QUIC."""
        of_quic = self._quic.get_send_buffer_size
        waiting = (outbox.used + of_quic(number) for number, outbox in self._of.items())
        self._queued_at_most = sum(waiting)
        return self._queued_at_most

    def _let_go(self, number: int) -> None:
        outbox = self._of.pop(number, None)
        if outbox is not None:
            outbox.give_up()


# How often is looked whether bytes have gone.
LOOK_SECONDS = 0.002
