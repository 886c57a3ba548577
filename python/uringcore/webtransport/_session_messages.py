"""``StreamsById``: a session's streams by number, with messages about what the peer does.
Not here: the messages themselves (``_asgi``, ``uringcore.contrib.aiopquic``).

A task for each direction of a stream reads it on demand, or waits for its end. A few messages wait for the
program; then flow control stops the peer. Reading gives the peer credit for further streams, so streams are
not accepted while many messages wait. A stream that has ended may be removed before the program has received
that message: commands on its number then do nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from uringcore._uringcore import ReceiveStream, SendStream, Stream
from uringcore.quic._errors import QuicError, StreamResetError, StreamStoppedError
from uringcore.webtransport._session import Session
from uringcore.webtransport._session_lifecycle import SessionState

__all__ = ["MessageMakers", "StreamsById"]

_Message = TypeVar("_Message")
_Work = Callable[..., Coroutine[Any, Any, None]]

PIECE_MAX = 64 << 10
MESSAGES_HIGH = 256
"""The number of waiting messages above which no further stream is accepted."""


@dataclass(frozen=True)
class MessageMakers(Generic[_Message]):
    """Functions that make the messages. A stream's number is the first argument."""

    begun: Callable[[int], _Message] | None
    """The peer has opened a stream; ``None`` sends no message before the first data."""
    data: Callable[[int, bytes, bool], _Message] | None
    """Data, and ``True`` at the end of the stream, where the data is empty. ``None``: the program reads
    streams itself (:meth:`StreamsById.receiver`)."""
    reset: Callable[[int, int], _Message]
    stopped: Callable[[int, int], _Message]
    datagram: Callable[[bytes], _Message]


@dataclass
class _Kept:
    """A stream of which at least one direction has not ended."""

    stream: Stream
    directions: int = 0
    gate: asyncio.Event | None = None
    """The reading task waits for this event while the program has paused the stream."""
    is_unread: bool = False
    """True while the program has not read the stream to its end."""
    is_stopped: bool = False
    """True if the peer has sent STOP_SENDING."""


class StreamsById(Generic[_Message]):
    """The streams and datagrams of one session.

    Each direction of a stream has a task, which ends with it; the stream is removed with the last task. A
    task that queues a message waits until the message is among the first ``places``.

    Bounds: ``places`` messages, and behind them one of each direction of a stream. Streams are as many as the
    peer may have open, plus those that the program has paused, plus :data:`MESSAGES_HIGH`: reading a stream
    gives the peer credit for another one, which is not accepted while so many messages wait.
    """

    def __init__(self, link: SessionState, makers: MessageMakers[_Message], places: int) -> None:
        self._link = link
        self._makers = makers
        self._places = places
        self._messages: deque[_Message] = deque()
        self._taken = 0
        # Tasks whose message is not among the first `places` messages yet. Each waits with the number of its
        # message.
        self._held_back: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._waiters: set[asyncio.Future[None]] = set()
        self._streams: dict[int, _Kept] = {}
        # The highest number of a stream so far, for each of the four types of streams (RFC 9000 section 2.1).
        self._highest = [-1] * 4
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_over = False
        self.on_over: Callable[[int], None] | None = None
        """Called with the number of a stream that the peer has stopped, and of one that is removed."""
        self.spawn(self._wait_for_end)

    def begin(self, session: Session) -> None:
        """Begins to accept streams and to receive datagrams of the open session."""
        self.spawn(self._take_streams, session.accept_stream)
        self.spawn(self._take_streams, session.accept_uni_stream)
        self.spawn(self._take_datagrams, session)

    def end(self) -> None:
        """Stops receiving new messages. Messages that wait can still be taken."""
        self.is_over = True
        for task in self._tasks:
            task.cancel()
        streams, self._streams = self._streams, {}
        for number in streams:
            self._notify_over(number)
        self._wake()

    def spawn(self, work: _Work, *args: Any) -> asyncio.Task[None]:
        """Runs ``work(*args)`` as a task that ends with the session."""
        task = self._link.loop.create_task(_while_open(work, *args))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # The program's side

    async def receive(self) -> _Message | None:
        """Returns the next message. ``None`` if no more messages will come."""
        while not self._messages:
            if self.is_over:
                return None
            await self._wait()
        message = self._messages.popleft()
        self._taken += 1
        while self._held_back and self._has_place(self._held_back[0][0]):
            _settle(self._held_back.popleft()[1])
        if len(self._messages) == MESSAGES_HIGH - 1:
            self._wake()
        return message

    def put(self, message: _Message) -> int:
        """Queues a message, however many wait. Returns the message's number."""
        self._messages.append(message)
        self._wake()
        return self._taken + len(self._messages)

    async def open(self, session: Session, bidirectional: bool) -> int:
        """Opens a stream."""
        stream: Stream
        if bidirectional:
            stream = await session.open_stream()
        else:
            stream = await session.open_uni_stream()
        self._keep(stream)
        return stream.id

    def find(self, number: int) -> Stream | None:
        """A stream; ``None`` if it has ended, which the program may not have received yet.

        Raises ``ValueError`` for a number that never existed.
        """
        kept = self._find(number)
        return None if kept is None else kept.stream

    def sender(self, number: int) -> SendStream | None:
        """Returns a stream to send on. ``None`` if it has ended or the peer has stopped it.

        Raises ``ValueError`` for any other number.
        """
        kept = self._find(number)
        if kept is None:
            return None
        if not isinstance(kept.stream, SendStream):
            raise ValueError(f"stream {number} is only received")
        return None if kept.is_stopped else kept.stream

    def receiver(self, number: int) -> ReceiveStream | None:
        """A stream that the program reads itself, until :meth:`was_read`; ``None`` after that."""
        kept = self._find(number)
        if kept is None or not kept.is_unread or not isinstance(kept.stream, ReceiveStream):
            return None
        return kept.stream

    def was_read(self, number: int) -> None:
        """Called when the program has read a stream to its end, or has stopped reading it."""
        kept = self._find(number)
        if kept is not None and kept.is_unread:
            kept.is_unread = False
            self._ended(kept)

    async def send(self, number: int, data: bytes, end: bool) -> None:
        """Sends data on a stream. Does nothing if the stream has ended."""
        stream = self.sender(number)
        if stream is None:
            return
        if data:
            await stream.send(data)
        if end:
            await stream.finish()

    def pause(self, number: int) -> None:
        """Stops reading a stream. One more piece may arrive."""
        kept = self._find(number)
        if kept is not None and kept.gate is None:
            kept.gate = asyncio.Event()

    def resume(self, number: int) -> None:
        """Reads a stream again."""
        kept = self._find(number)
        if kept is not None and kept.gate is not None:
            kept.gate.set()
            kept.gate = None

    def _find(self, number: int) -> _Kept | None:
        if not 0 <= number <= self._highest[number & 3]:
            raise ValueError(f"there is no stream {number}")
        return self._streams.get(number)

    # The peer's side

    async def _wait_for_end(self) -> None:
        await self._link.closed.wait()
        self.end()

    async def _take_streams(self, accept: Callable[[], Awaitable[Stream]]) -> None:
        while True:
            while len(self._messages) >= MESSAGES_HIGH:
                await self._wait()
            # The stream is not stored in a variable, which would keep it alive during the wait for the next
            # one.
            self._begun(await accept())

    async def _take_datagrams(self, session: Session) -> None:
        async for data in session.datagrams():
            await self._queue(self._makers.datagram(data))

    def _begun(self, stream: Stream) -> None:
        if self._makers.begun is not None:
            self.put(self._makers.begun(stream.id))
        self._keep(stream)

    def _keep(self, stream: Stream) -> None:
        self._streams[stream.id] = kept = _Kept(stream)
        kind = stream.id & 3
        self._highest[kind] = max(self._highest[kind], stream.id)
        if isinstance(stream, ReceiveStream):
            if self._makers.data is None:
                kept.is_unread = True
                kept.directions += 1
            else:
                self._follow(kept, self._read, kept, stream, self._makers.data)
        if isinstance(stream, SendStream):
            self._follow(kept, self._watch, kept, stream)

    def _follow(self, kept: _Kept, direction: _Work, *args: Any) -> None:
        """Runs ``direction`` as a task for one direction of a stream. The stream is kept in the table until
        its tasks have ended."""
        kept.directions += 1
        self.spawn(direction, *args).add_done_callback(lambda _: self._ended(kept))

    def _ended(self, kept: _Kept) -> None:
        kept.directions -= 1
        if not kept.directions:
            self._streams.pop(kept.stream.id, None)
            self._notify_over(kept.stream.id)

    def _notify_over(self, number: int) -> None:
        if self.on_over is not None:
            self.on_over(number)

    async def _read(
        self, kept: _Kept, stream: ReceiveStream, word: Callable[[int, bytes, bool], _Message]
    ) -> None:
        try:
            data = b"-"
            while data:
                data = await stream.read(PIECE_MAX)
                if kept.gate is not None:
                    await kept.gate.wait()
                await self._queue(word(stream.id, data, not data))
        except StreamResetError as error:
            await self._queue(self._makers.reset(stream.id, error.code))

    async def _watch(self, kept: _Kept, stream: SendStream) -> None:
        """Waits until all data is acknowledged, or the peer stops the stream."""
        try:
            await stream.wait_finished()
        except StreamStoppedError as error:
            # Set before the message is queued, because the program may send as soon as it has received the
            # message.
            kept.is_stopped = True
            self._notify_over(stream.id)
            await self._queue(self._makers.stopped(stream.id, error.code))

    async def _queue(self, message: _Message) -> None:
        """Queues a message. Returns when the message is among the first ``places`` ones."""
        number = self.put(message)
        if not self._has_place(number):
            place = self._link.loop.create_future()
            self._held_back.append((number, place))
            await place

    def _has_place(self, number: int) -> bool:
        return number <= self._taken + self._places

    async def _wait(self) -> None:
        waiter = self._link.loop.create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    def _wake(self) -> None:
        for waiter in self._waiters:
            _settle(waiter)


async def _while_open(work: _Work, *args: Any) -> None:
    # Errors are ignored here, because ends of the session and of streams are reported elsewhere.
    with contextlib.suppress(QuicError):
        await work(*args)


def _settle(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
