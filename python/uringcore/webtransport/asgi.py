"""ASGI's ``webtransport`` scope: a session told to an application in messages.

There is no specification of it. Messages are those of aioquic's example, and what newer servers add::

    receive                                                   send
    webtransport.connect                                      webtransport.accept  headers, subprotocol
    webtransport.stream.receive   stream, data, end           webtransport.close   code, reason, status
    webtransport.stream.opened    stream, bidirectional       webtransport.stream.send    stream, data, end
    webtransport.stream.reset     stream, code                webtransport.stream.open    bidirectional
    webtransport.datagram.receive data                        webtransport.stream.reset   stream, code
    webtransport.disconnect       code, reason                webtransport.stream.pause   stream
                                                              webtransport.stream.resume  stream
                                                              webtransport.datagram.send  data

A stream of the client's is known by its first ``stream.receive``; ``stream.open`` is answered by
``stream.opened``. ``close`` before ``accept`` refuses the session, with ``status`` or 403. ``data`` may be
left out where it is empty, and so may ``end`` where it is false.

An application that speaks to this server alone can do without messages: ``scope["extensions"]`` has
``"uringcore.webtransport"`` with the ``request``, a :class:`WebTransportRequest`, whose ``accept`` gives a
:class:`WebTransportSession`.

Bounds: :data:`MESSAGES_MAX` messages wait for the application, and behind them of each stream that the
client may have open a piece of :data:`PIECE_MAX` bytes. More is not read, so the client has to wait.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, ClassVar

from uringcore._uringcore import ReceiveStream, SendStream, Stream
from uringcore.quic.errors import QuicError, StreamReset
from uringcore.quic.native.leaving import wait_delivered
from uringcore.webtransport.link import SessionLink
from uringcore.webtransport.request import WebTransportRequest
from uringcore.webtransport.session import WebTransportSession

__all__ = ["MESSAGES_MAX", "PIECE_MAX", "Application", "AsgiSession"]

Message = dict[str, Any]
Application = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]],
    Awaitable[object],
]

MESSAGES_MAX = 16
PIECE_MAX = 64 << 10

APPLICATION_FAILED = 1
"""The code of sessions whose application has raised."""


@dataclass
class _Open:
    """A stream that is not over."""

    stream: Stream
    receives: bool
    sends: bool
    gate: asyncio.Event | None = None
    """What holds up its reader."""


class AsgiSession:
    """One session, between its client and an application."""

    def __init__(self, link: SessionLink, scope: Message) -> None:
        self._link = link
        self._loop = link.loop
        self.request = WebTransportRequest(link)
        self.scope = scope
        scope["extensions"]["uringcore.webtransport"] = {"request": self.request}
        self.session: WebTransportSession | None = None
        self._is_announced = False
        self._messages: deque[Message] = deque()
        self._waiters: set[asyncio.Future[None]] = set()
        self._room = asyncio.Semaphore(MESSAGES_MAX)
        self._streams: dict[int, _Open] = {}
        self._pumps: set[asyncio.Task[None]] = set()

    async def run(self, application: Application) -> None:
        """Calls the application, and ends the session when it is through. What it raises is raised."""
        self._pump(self._wait_for_end)
        try:
            await application(self.scope, self.receive, self.send)
            await self._close(0, "")
        except BaseException:
            # It is what ASGI has applications do that do not know the scope's type.
            self._link.refuse(501 if self.is_untouched else 500)
            if self._link.is_open:
                self._link.close(APPLICATION_FAILED, "")
            raise
        finally:
            self._link.refuse(500)
            for pump in self._pumps:
                pump.cancel()

    @property
    def is_untouched(self) -> bool:
        """Whether the application has neither received nor sent anything."""
        return not self._is_announced and not self.request.is_answered

    async def _close(self, code: int, reason: str) -> None:
        """Closes the session when the client has what was finished on its streams."""
        if self._link.is_closed or not self._link.is_open:
            return
        if self.session is not None:
            await wait_delivered(self.session, self._link.close_timeout)
        self._link.close(code, reason)

    # The application's side

    async def receive(self) -> Message:
        """The next message."""
        if not self._is_announced:
            self._is_announced = True
            return {"type": "webtransport.connect"}
        while not self._messages:
            if self._link.is_closed:
                link = self._link
                code, reason = link.close_code or 0, link.close_reason
                return {"type": "webtransport.disconnect", "code": code, "reason": reason}
            await self._wait()
        message = self._messages.popleft()
        if message["type"] != "webtransport.stream.opened":
            self._room.release()
        return message

    async def _wait(self) -> None:
        waiter = self._loop.create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    def _deliver(self, message: Message) -> None:
        self._messages.append(message)
        self._wake()

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def send(self, message: Message) -> None:
        """Takes one message; done when there is room for another.

        Raises ``RuntimeError`` for one that cannot come now, and ``KeyError`` for one without what it
        needs. On what is over meanwhile nothing is sent.
        """
        kind = message["type"]
        if kind == "webtransport.accept":
            await self._accept(message)
            return
        if kind == "webtransport.close":
            await self._end(message)
            return
        if self.session is None:
            raise RuntimeError(
                f"expected 'webtransport.accept' or 'webtransport.close', got {kind!r}"
            )
        handle = self._HANDLERS.get(kind)
        if handle is None:
            raise RuntimeError(f"unexpected message {kind!r}")
        # Where the peer was quicker a message says so, or has said.
        with contextlib.suppress(QuicError):
            await handle(self, self.session, message)

    async def _accept(self, message: Message) -> None:
        headers = message.get("headers") or ()
        protocol = message.get("subprotocol")
        if self._link.is_closed:
            return
        session = await self.request.accept(protocol=protocol, headers=headers)
        self.session = session
        self._pump(self._take_streams, session)
        self._pump(self._take_uni_streams, session)
        self._pump(self._take_datagrams, session)

    async def _end(self, message: Message) -> None:
        if self.session is None:
            self.request.refuse(message.get("status", 403))
        else:
            await self._close(message.get("code", 0), message.get("reason") or "")

    async def _send_stream(self, session: WebTransportSession, message: Message) -> None:
        known = self._known(message)
        if not isinstance(known.stream, SendStream) or not known.sends:
            raise RuntimeError(f"nothing can be sent on stream {known.stream.id}, or not any more")
        data = message.get("data", b"")
        if data:
            await known.stream.send(data)
        if message.get("end"):
            await known.stream.finish()
            known.sends = False
            self._let_go(known)

    async def _open(self, session: WebTransportSession, message: Message) -> None:
        both = bool(message.get("bidirectional", True))
        stream: Stream = await (session.open_stream() if both else session.open_uni_stream())
        self._streams[stream.id] = known = _Open(stream, receives=both, sends=True)
        kind = "webtransport.stream.opened"
        self._deliver({"type": kind, "stream": stream.id, "bidirectional": both})
        if isinstance(stream, ReceiveStream):
            self._pump(self._read, known, stream)

    async def _reset(self, session: WebTransportSession, message: Message) -> None:
        known, code = self._known(message), message.get("code", 0)
        if isinstance(known.stream, SendStream):
            known.stream.reset(code)
        if isinstance(known.stream, ReceiveStream):
            known.stream.stop(code)
        known.sends = known.receives = False
        self._let_go(known)

    async def _pause(self, session: WebTransportSession, message: Message) -> None:
        known = self._known(message)
        if known.gate is None:
            known.gate = asyncio.Event()

    async def _resume(self, session: WebTransportSession, message: Message) -> None:
        known = self._known(message)
        if known.gate is not None:
            known.gate.set()
            known.gate = None

    async def _send_datagram(self, session: WebTransportSession, message: Message) -> None:
        session.send_datagram(message["data"])

    _HANDLERS: ClassVar[dict[str, Callable[..., Coroutine[Any, Any, None]]]] = {
        "webtransport.stream.send": _send_stream,
        "webtransport.stream.open": _open,
        "webtransport.stream.reset": _reset,
        "webtransport.stream.pause": _pause,
        "webtransport.stream.resume": _resume,
        "webtransport.datagram.send": _send_datagram,
    }

    def _known(self, message: Message) -> _Open:
        known = self._streams.get(message["stream"])
        if known is None:
            raise RuntimeError(f"there is no stream {message['stream']}, or not any more")
        return known

    def _let_go(self, known: _Open) -> None:
        if not known.sends and not known.receives:
            self._streams.pop(known.stream.id, None)

    # The client's side

    def _pump(self, run: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        task = self._loop.create_task(self._while_open(run, *args))
        self._pumps.add(task)
        task.add_done_callback(self._pumps.discard)

    async def _while_open(self, run: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        # When the session is over, `receive` tells.
        with contextlib.suppress(QuicError):
            await run(*args)

    async def _wait_for_end(self) -> None:
        await self._link.closed.wait()
        self._wake()

    async def _take_streams(self, session: WebTransportSession) -> None:
        async for stream in session.streams():
            self._take(stream, sends=True)

    async def _take_uni_streams(self, session: WebTransportSession) -> None:
        async for stream in session.uni_streams():
            self._take(stream, sends=False)

    def _take(self, stream: ReceiveStream, *, sends: bool) -> None:
        self._streams[stream.id] = known = _Open(stream, receives=True, sends=sends)
        self._pump(self._read, known, stream)

    async def _take_datagrams(self, session: WebTransportSession) -> None:
        async for data in session.datagrams():
            await self._tell({"type": "webtransport.datagram.receive", "data": data})

    async def _read(self, known: _Open, stream: ReceiveStream) -> None:
        kind = "webtransport.stream.receive"
        try:
            while known.receives:
                data = await stream.read(PIECE_MAX)
                if known.gate is not None:
                    await known.gate.wait()
                message = {"type": kind, "stream": stream.id, "data": data, "end": not data}
                await self._tell(message)
                known.receives = bool(data)
        except StreamReset as error:
            kind = "webtransport.stream.reset"
            await self._tell({"type": kind, "stream": stream.id, "code": error.code})
        finally:
            known.receives = False
            self._let_go(known)

    async def _tell(self, message: Message) -> None:
        await self._room.acquire()
        self._deliver(message)
