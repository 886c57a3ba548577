"""What the streams of one connection have queued together, and the responses that wait until it is less."""

from __future__ import annotations

import asyncio

from uringcore.quic.connection import QuicConnection

__all__ = ["CONNECTION_QUEUE_HIGH", "Crowd"]

CONNECTION_QUEUE_HIGH = 4 * 1024 * 1024
"""Bytes queued on all streams of one connection above which ``send`` waits on each of them.

Except where the stream itself has next to nothing queued: what a client does read is not held up by
what it doesn't. So the most that one client can make us keep is this, and for each of its streams
one part of a body (:data:`~uringcore.server.request.PART_BYTES`).
"""

# How often a crowded connection is looked at again; most of the time an event comes first.
CROWD_POLL_SECONDS = 0.02


class Crowd:
    """The bound of :data:`CONNECTION_QUEUE_HIGH`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, quic: QuicConnection) -> None:
        self._loop = loop
        self._quic = quic
        # Bytes that were queued when it was looked last, and those handed over since: an upper bound.
        self._queued_at_most = 0
        self._waiters: list[asyncio.Future[None]] = []
        self._poll: asyncio.TimerHandle | None = None

    def add(self, size: int) -> None:
        """So many bytes were handed over."""
        self._queued_at_most += size

    def holds_up(self, stream_id: int) -> bool:
        """Whether a stream has to wait for the others, and for what it has queued itself."""
        if self._queued_at_most > CONNECTION_QUEUE_HIGH:
            self._queued_at_most = self._quic.stats()["send_queue_bytes"]
        few = self._quic.configuration.send_buffer_low
        return (
            self._queued_at_most > CONNECTION_QUEUE_HIGH
            and self._quic.get_send_buffer_size(stream_id) > few
        )

    async def wait(self) -> None:
        """Until it is worth looking again."""
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        if self._poll is None:
            self._poll = self._loop.call_later(CROWD_POLL_SECONDS, self.wake)
        await waiter

    def wake(self) -> None:
        """Some of it has gone, or the connection is lost."""
        if self._poll is not None:
            self._poll.cancel()
            self._poll = None
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
