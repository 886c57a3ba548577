"""ASGI's ``webtransport`` scope: a session told to an application in messages.

There is no specification of it. Messages are those of aioquic's example, and what newer servers add::

    receive                                                   send
    webtransport.connect                                      webtransport.accept  headers, subprotocol
    webtransport.stream.receive   stream, data, end           webtransport.close   code, reason, status
    webtransport.stream.opened    stream, bidirectional       webtransport.stream.send    stream, data, end
    webtransport.stream.reset     stream, code                webtransport.stream.open    bidirectional
    webtransport.stream.stopped   stream, code                webtransport.stream.reset   stream, code
    webtransport.datagram.receive data                        webtransport.stream.pause   stream
    webtransport.disconnect       code, reason                webtransport.stream.resume  stream
                                                              webtransport.datagram.send  data

A stream of the client's is known by its first ``stream.receive``; ``stream.open`` is answered by
``stream.opened``. ``stream.reset`` is told when the client gives up sending, ``stream.stopped`` when it wants
to hear no more on the stream: what is sent there is dropped from then on. ``close`` before ``accept`` refuses
the session, with ``status`` or 403. ``data`` may be left out where it is empty, and so may ``end`` where it
is false.

An application that speaks to this server alone can do without messages: ``scope["extensions"]`` has
``"uringcore.webtransport"`` with the ``request``, a :class:`SessionRequest`, whose ``accept`` gives a
:class:`Session`.

Bounds: :data:`MESSAGES_MAX` messages wait for the application, and behind them of each stream one piece of at
most 64 KiB. More is not read, and where 256 pieces wait no further stream is taken: the client has to wait.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ClassVar

from uringcore._uringcore import ReceiveStream, SendStream
from uringcore.quic._errors import DatagramSendError, QuicError, StreamClosedError
from uringcore.quic._native.contexts import wait_delivered
from uringcore.webtransport._link import SessionLink, check_close
from uringcore.webtransport._numbered import NumberedStreams, Words
from uringcore.webtransport._request import SessionRequest
from uringcore.webtransport._session import Session

__all__ = ["MESSAGES_MAX", "Application", "AsgiSession"]

Message = dict[str, Any]
Application = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]],
    Awaitable[object],
]

MESSAGES_MAX = 16

APPLICATION_FAILED = 1
"""The code of sessions whose application has raised."""


def _stream_message(kind: str, *names: str) -> Callable[..., Message]:
    """What makes the messages of a type from a stream's number and what ``names`` stand for."""
    names = ("stream", *names)
    kind = f"webtransport.stream.{kind}"
    return lambda *values: {"type": kind, **dict(zip(names, values, strict=True))}


WORDS: Words[Message] = Words(
    begun=None,
    data=_stream_message("receive", "data", "end"),
    reset=_stream_message("reset", "code"),
    stopped=_stream_message("stopped", "code"),
    datagram=lambda data: {"type": "webtransport.datagram.receive", "data": data},
)


class _Extension(dict[str, Any]):
    """What a scope has for applications that want the session itself; it knows whether one does."""

    is_used = False

    def __getitem__(self, name: str) -> Any:
        self.is_used = True
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """As a dictionary's."""
        self.is_used = True
        return super().get(name, default)


class AsgiSession:
    """One session, between its client and an application."""

    def __init__(self, link: SessionLink, scope: Message) -> None:
        self._link = link
        self.request = SessionRequest(link)
        self.scope = scope
        self._extension = _Extension(request=self.request)
        scope["extensions"]["uringcore.webtransport"] = self._extension
        self.session: Session | None = None
        self.was_over = False
        """True if the session was over before the application was through."""
        self.was_abandoned = False
        """True if it was, and the client or the end of the connection had ended it."""
        self._is_announced = False
        self._streams = NumberedStreams(link, WORDS, MESSAGES_MAX)

    async def run(self, application: Application) -> None:
        """Calls the application, and ends the session when it is through. What it raises is raised."""
        try:
            try:
                await application(self.scope, self.receive, self.send)
            finally:
                self.was_over = self._link.is_closed
                self.was_abandoned = self._link.is_abandoned
            await self._close(0, "")
        except BaseException:
            # It is what ASGI has applications do that do not know the scope's type.
            self._link.refuse(501 if self.is_untouched else 500)
            if self._link.is_open:
                self._link.close(APPLICATION_FAILED, "")
            raise
        finally:
            self._streams.end()
            self._link.refuse(500)

    @property
    def is_untouched(self) -> bool:
        """True if the application has shown in no way that it knows what a session is."""
        is_touched = self._is_announced or self._extension.is_used or self.request.is_answered
        return not is_touched

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
        message = await self._streams.receive()
        if message is None:
            code, reason = self._link.close_code or 0, self._link.close_reason
            return {"type": "webtransport.disconnect", "code": code, "reason": reason}
        return message

    async def send(self, message: Message) -> None:
        """Takes one message; done when there is room for another.

        Raises ``RuntimeError`` for one that cannot come now, ``ValueError`` for a stream that there never
        was or that is not sent on and for a datagram that is too long for the client, and ``KeyError`` for
        a message without what it needs. On what is over meanwhile nothing is sent.
        """
        kind = message["type"]
        if kind == "webtransport.accept":
            await self._accept(message)
            return
        if kind == "webtransport.close":
            await self._end(message)
            return
        if self.session is None:
            if self._link.is_closed:
                # The client had gone when it was to be accepted.
                return
            raise RuntimeError(
                f"expected 'webtransport.accept' or 'webtransport.close', got {kind!r}"
            )
        handle = self._HANDLERS.get(kind)
        if handle is None:
            raise RuntimeError(f"unexpected message {kind!r}")
        try:
            await handle(self, self.session, message)
        except StreamClosedError as error:
            raise RuntimeError(str(error)) from None
        except DatagramSendError:
            # It is a ValueError too.
            raise
        except QuicError:
            # The peer was quicker: a message says so, or has said.
            return

    async def _accept(self, message: Message) -> None:
        headers = message.get("headers") or ()
        protocol = message.get("subprotocol")
        if self._link.is_closed:
            return
        self.session = await self.request.accept(protocol=protocol, headers=headers)
        self._streams.begin(self.session)

    async def _end(self, message: Message) -> None:
        if self.session is None:
            self.request.refuse(message.get("status", 403))
        else:
            code, reason = message.get("code", 0), message.get("reason") or ""
            # Before what was sent is waited for.
            check_close(code, reason)
            await self._close(code, reason)

    async def _send_stream(self, session: Session, message: Message) -> None:
        data, end = message.get("data", b""), bool(message.get("end"))
        await self._streams.send(message["stream"], data, end)

    async def _open(self, session: Session, message: Message) -> None:
        both = bool(message.get("bidirectional", True))
        number = await self._streams.open(session, both)
        kind = "webtransport.stream.opened"
        self._streams.put({"type": kind, "stream": number, "bidirectional": both})

    async def _reset(self, session: Session, message: Message) -> None:
        stream, code = self._streams.find(message["stream"]), message.get("code", 0)
        if isinstance(stream, SendStream):
            stream.reset(code)
        if isinstance(stream, ReceiveStream):
            stream.stop(code)
        self._streams.resume(message["stream"])

    async def _pause(self, session: Session, message: Message) -> None:
        self._streams.pause(message["stream"])

    async def _resume(self, session: Session, message: Message) -> None:
        self._streams.resume(message["stream"])

    async def _send_datagram(self, session: Session, message: Message) -> None:
        session.send_datagram(message["data"])

    _HANDLERS: ClassVar[dict[str, Callable[..., Coroutine[Any, Any, None]]]] = {
        "webtransport.stream.send": _send_stream,
        "webtransport.stream.open": _open,
        "webtransport.stream.reset": _reset,
        "webtransport.stream.pause": _pause,
        "webtransport.stream.resume": _resume,
        "webtransport.datagram.send": _send_datagram,
    }
