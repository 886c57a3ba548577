"""``NumberedStreams``: a session for programs that know streams by their numbers, and are told what its peer
does in messages. Not here: what the messages are, which those have who speak to such programs: ``asgi`` and
``events``.

A task for each direction of a stream reads it on demand, or waits for its end. A few messages wait for
the program, and then the peer waits. Reading gives the peer credit for further streams, so these are not
accepted while many messages wait. A stream that is over may be forgotten before the program has that
message: commands on its number then do nothing.
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
from uringcore.webtransport._link import SessionLink
from uringcore.webtransport._session import Session

__all__ = ["NumberedStreams", "Words"]

_Message = TypeVar("_Message")
_Work = Callable[..., Coroutine[Any, Any, None]]

PIECE_MAX = 64 << 10
CROWD = 256
"""So many messages wait when no further stream is taken."""


@dataclass(frozen=True)
class Words(Generic[_Message]):
    """What makes the messages. Numbers of streams come first."""

    begun: Callable[[int], _Message] | None
    """The peer has opened a stream, if that is to be told before there is something of it."""
    data: Callable[[int, bytes, bool], _Message] | None
    """``True`` at the end of the stream, which comes by itself. ``None``: the program reads streams by
    itself (:meth:`NumberedStreams.receiver`)."""
    reset: Callable[[int, int], _Message]
    stopped: Callable[[int, int], _Message]
    datagram: Callable[[bytes], _Message]


@dataclass
class _Kept:
    """A stream that is not over in ``directions`` of them."""

    stream: Stream
    directions: int = 0
    gate: asyncio.Event | None = None
    """What holds up its reader."""
    is_unread: bool = False
    """True if the program has to read it yet."""
    is_stopped: bool = False
    """True if the peer wants no more of it."""


class NumberedStreams(Generic[_Message]):
    """The streams and datagrams of one session.

    Each direction of a stream is a task, which ends with it; the stream is let go with the last of them. A
    task that tells something waits until that is among the first ``places`` messages in waiting.

    Bounds: ``places`` messages, and behind them one of each direction of a stream. Those are as many as the
    peer may have open, the program has paused, and :data:`CROWD` more: what is read of a stream gives the
    peer credit for another, and where so many messages wait, nobody takes it.
    """

    def __init__(self, link: SessionLink, words: Words[_Message], places: int) -> None:
        self._link = link
        self._words = words
        self._places = places
        self._messages: deque[_Message] = deque()
        self._taken = 0
        # Those whose message has no place yet, with its number; and those who wait for anything else.
        self._tellers: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._waiters: set[asyncio.Future[None]] = set()
        self._streams: dict[int, _Kept] = {}
        # The highest number that there was, by the kinds of RFC 9000 section 2.1.
        self._heard = [-1] * 4
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_over = False
        self.on_over: Callable[[int], None] | None = None
        """Called with a stream that the peer has stopped or that is let go, and maybe with both."""
        self.spawn(self._wait_for_end)

    def begin(self, session: Session) -> None:
        """The session is open."""
        self.spawn(self._take_streams, session.accept_stream)
        self.spawn(self._take_streams, session.accept_uni_stream)
        self.spawn(self._take_datagrams, session)

    def end(self) -> None:
        """Nothing more is heard. What waits can still be asked for."""
        self.is_over = True
        for task in self._tasks:
            task.cancel()
        streams, self._streams = self._streams, {}
        for number in streams:
            self._tell_over(number)
        self._wake()

    def spawn(self, work: _Work, *args: Any) -> asyncio.Task[None]:
        """Does ``work(*args)`` for as long as the session is there."""
        task = self._link.loop.create_task(_while_open(work, *args))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # The program's side

    async def receive(self) -> _Message | None:
        """The next message; ``None`` if there will be none."""
        while not self._messages:
            if self.is_over:
                return None
            await self._wait()
        message = self._messages.popleft()
        self._taken += 1
        while self._tellers and self._has_place(self._tellers[0][0]):
            _settle(self._tellers.popleft()[1])
        if len(self._messages) == CROWD - 1:
            self._wake()
        return message

    def put(self, message: _Message) -> int:
        """Has a message wait, whatever waits already. Gives its number."""
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
        """A stream; ``None`` if it is over, which the program may not have heard yet.

        Raises ``ValueError`` for one that there never was.
        """
        kept = self._find(number)
        return None if kept is None else kept.stream

    def sender(self, number: int) -> SendStream | None:
        """A stream on which something can be sent; ``None`` if it is over or the peer has stopped it.

        Raises ``ValueError`` for any other.
        """
        kept = self._find(number)
        if kept is None:
            return None
        if not isinstance(kept.stream, SendStream):
            raise ValueError(f"stream {number} is only received")
        return None if kept.is_stopped else kept.stream

    def receiver(self, number: int) -> ReceiveStream | None:
        """One that the program reads by itself, and says :meth:`was_read` of; ``None`` if it has."""
        kept = self._find(number)
        if kept is None or not kept.is_unread or not isinstance(kept.stream, ReceiveStream):
            return None
        return kept.stream

    def was_read(self, number: int) -> None:
        """The program wants no more of it."""
        kept = self._find(number)
        if kept is not None and kept.is_unread:
            kept.is_unread = False
            self._ended(kept)

    async def send(self, number: int, data: bytes, end: bool) -> None:
        """Sends on a stream, unless it is over."""
        stream = self.sender(number)
        if stream is None:
            return
        if data:
            await stream.send(data)
        if end:
            await stream.finish()

    def pause(self, number: int) -> None:
        """Nothing more is read of a stream. A piece may be under way."""
        kept = self._find(number)
        if kept is not None and kept.gate is None:
            kept.gate = asyncio.Event()

    def resume(self, number: int) -> None:
        """It is read again."""
        kept = self._find(number)
        if kept is not None and kept.gate is not None:
            kept.gate.set()
            kept.gate = None

    def _find(self, number: int) -> _Kept | None:
        if not 0 <= number <= self._heard[number & 3]:
            raise ValueError(f"there is no stream {number}")
        return self._streams.get(number)

    # The peer's side

    async def _wait_for_end(self) -> None:
        await self._link.closed.wait()
        self.end()

    async def _take_streams(self, accept: Callable[[], Awaitable[Stream]]) -> None:
        while True:
            while len(self._messages) >= CROWD:
                await self._wait()
            # Not kept in a variable, while the next one is waited for.
            self._begun(await accept())

    async def _take_datagrams(self, session: Session) -> None:
        async for data in session.datagrams():
            await self._tell(self._words.datagram(data))

    def _begun(self, stream: Stream) -> None:
        if self._words.begun is not None:
            self.put(self._words.begun(stream.id))
        self._keep(stream)

    def _keep(self, stream: Stream) -> None:
        self._streams[stream.id] = kept = _Kept(stream)
        kind = stream.id & 3
        self._heard[kind] = max(self._heard[kind], stream.id)
        if isinstance(stream, ReceiveStream):
            if self._words.data is None:
                kept.is_unread = True
                kept.directions += 1
            else:
                self._follow(kept, self._read, kept, stream, self._words.data)
        if isinstance(stream, SendStream):
            self._follow(kept, self._watch, kept, stream)

    def _follow(self, kept: _Kept, direction: _Work, *args: Any) -> None:
        """Keeps a stream until this direction of it has ended."""
        kept.directions += 1
        self.spawn(direction, *args).add_done_callback(lambda _: self._ended(kept))

    def _ended(self, kept: _Kept) -> None:
        kept.directions -= 1
        if not kept.directions:
            self._streams.pop(kept.stream.id, None)
            self._tell_over(kept.stream.id)

    def _tell_over(self, number: int) -> None:
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
                await self._tell(word(stream.id, data, not data))
        except StreamResetError as error:
            await self._tell(self._words.reset(stream.id, error.code))

    async def _watch(self, kept: _Kept, stream: SendStream) -> None:
        """Until everything has arrived, or the peer wants no more of it."""
        try:
            await stream.wait_finished()
        except StreamStoppedError as error:
            # Before the program hears of it, which may want to send at once.
            kept.is_stopped = True
            self._tell_over(stream.id)
            await self._tell(self._words.stopped(stream.id, error.code))

    async def _tell(self, message: _Message) -> None:
        """Has a message wait, and returns when it is one of the first."""
        number = self.put(message)
        if not self._has_place(number):
            teller = self._link.loop.create_future()
            self._tellers.append((number, teller))
            await teller

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
    # The end of the session, or of a stream by this side, is known otherwise.
    with contextlib.suppress(QuicError):
        await work(*args)


def _settle(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
