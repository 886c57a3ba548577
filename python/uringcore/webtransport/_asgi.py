"""ASGI's ``webtransport`` scope: a session as messages to and from an application.

No specification exists. The messages are those of aioquic's example and further ones of newer servers::

    receive                                                   send
    webtransport.connect                                      webtransport.accept  headers, subprotocol
    webtransport.stream.receive   stream, data, end           webtransport.close   code, reason, status
    webtransport.stream.opened    stream, bidirectional       webtransport.stream.send    stream, data, end
    webtransport.stream.reset     stream, code                webtransport.stream.open    bidirectional
    webtransport.stream.stopped   stream, code                webtransport.stream.reset   stream, code
    webtransport.datagram.receive data                        webtransport.stream.pause   stream
    webtransport.disconnect       code, reason                webtransport.stream.resume  stream
                                                              webtransport.datagram.send  data

The first ``stream.receive`` of a number announces a stream of the client; ``stream.opened`` answers
``stream.open``. ``stream.reset`` reports the client's RESET_STREAM, ``stream.stopped`` its STOP_SENDING: data
sent on the stream from then on is dropped. ``close`` before ``accept`` refuses the session, with ``status``
or 403. Empty ``data`` and a false ``end`` may be left out.

An application for this server alone needs no messages: ``scope["extensions"]["uringcore.webtransport"]`` has
the ``request``, a :class:`SessionRequest`, whose ``accept`` returns a :class:`Session`.

Bounds: :data:`MESSAGES_MAX` messages wait for the application, and behind them one piece of at most 64 KiB of
each stream. When 256 messages wait, no further stream is accepted. Flow control stops the client.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ClassVar

from uringcore._uringcore import ReceiveStream, SendStream
from uringcore.quic._errors import DatagramSendError, QuicError, StreamClosedError
from uringcore.quic._typed_api.await_and_async_with import wait_delivered
from uringcore.webtransport._session import Session
from uringcore.webtransport._session_lifecycle import SessionState, check_close
from uringcore.webtransport._session_messages import MessageMakers, StreamsById
from uringcore.webtransport._session_request import SessionRequest

__all__ = ["MESSAGES_MAX", "Application", "AsgiSession"]

Message = dict[str, Any]
Application = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]],
    Awaitable[object],
]

MESSAGES_MAX = 16

APPLICATION_FAILED = 1
"""The close code after an exception of the application."""


def _stream_message(kind: str, *names: str) -> Callable[..., Message]:
    """Returns a function that makes messages of type ``kind`` from a stream's number and the values of
    ``names``."""
    names = ("stream", *names)
    kind = f"webtransport.stream.{kind}"
    return lambda *values: {"type": kind, **dict(zip(names, values, strict=True))}


MESSAGE_MAKERS: MessageMakers[Message] = MessageMakers(
    begun=None,
    data=_stream_message("receive", "data", "end"),
    reset=_stream_message("reset", "code"),
    stopped=_stream_message("stopped", "code"),
    datagram=lambda data: {"type": "webtransport.datagram.receive", "data": data},
)


class _Extension(dict[str, Any]):
    """The scope's extension with the session's request; ``is_used`` is set when an application reads it."""

    is_used = False

    def __getitem__(self, name: str) -> Any:
        self.is_used = True
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Returns an item or a default, as ``dict.get`` does."""
        self.is_used = True
        return super().get(name, default)


class AsgiSession:
    """A session between its client and an ASGI application."""

    def __init__(self, link: SessionState, scope: Message) -> None:
        self._link = link
        self.request = SessionRequest(link)
        self.scope = scope
        self._extension = _Extension(request=self.request)
        scope["extensions"]["uringcore.webtransport"] = self._extension
        self.session: Session | None = None
        self.was_over = False
        """True if the session ended before the application returned."""
        self.was_abandoned = False
        """True if the client, or the end of the connection, ended the session before the application
        returned."""
        self._is_announced = False
        self._streams = StreamsById(link, MESSAGE_MAKERS, MESSAGES_MAX)

    async def run(self, application: Application) -> None:
        """Runs the application, and ends the session when it returns. Raises the application's exceptions."""
        try:
            try:
                await application(self.scope, self.receive, self.send)
            finally:
                self.was_over = self._link.is_closed
                self.was_abandoned = self._link.is_abandoned
            await self._close(0, "")
        except BaseException:
            # ASGI requires that an application raises an exception for a scope type that it does not support.
            self._link.refuse(501 if self.is_untouched else 500)
            if self._link.is_open:
                self._link.close(APPLICATION_FAILED, "")
            raise
        finally:
            self._streams.end()
            self._link.refuse(500)

    @property
    def is_untouched(self) -> bool:
        """True if the application has neither received a message nor used the request."""
        is_touched = self._is_announced or self._extension.is_used or self.request.is_answered
        return not is_touched

    async def _close(self, code: int, reason: str) -> None:
        """Closes the session when the client has acknowledged the data that was finished on streams."""
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
        """Handles one message; returns when there is room for another.

        Raises ``RuntimeError`` for a message that is not allowed now, ``ValueError`` for a stream that never
        existed or only receives and for a datagram above the client's limit, and ``KeyError`` for a message
        without a required key. Messages for a stream or session that has ended do nothing.
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
                # The client has closed the session before it was accepted.
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
            # Handled first, because this class is also a ValueError.
            raise
        except QuicError:
            # The stream or the session has ended, which another message reports.
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
            # Invalid arguments raise before the wait for acknowledgements.
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
