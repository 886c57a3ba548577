"""WebTransport with aiopquic's names: event-based sessions, for programs that use that API.

``events()`` of a session yields the classes below except stream data, which ``receive_stream_data`` yields;
commands identify streams by their numbers. It is a thin layer over
:class:`uringcore.webtransport.Session`, which new programs use. Not here: aiopquic's
rings and its transport object, which a program does not need: a ``transport=`` is refused, ``cnx_ptr`` and
``path_quality`` are missing, and there is no ring of events that could be full. A program cannot make clients
of its own either: ``WebTransportClient(transport, host, port, path, ...)`` raises ``TypeError`` and has no
``open()``, because :func:`connect_webtransport` makes and opens them.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any, Literal

from uringcore._buffer_arguments import contiguous_bytes
from uringcore._uringcore import ReceiveStream
from uringcore.quic._close_argument_checks import check_code, check_reason
from uringcore.quic._errors import DatagramSendError, QuicError, StreamResetError
from uringcore.quic._typed_api.connection_event_dispatch import BaseConnectionProtocol
from uringcore.quic.configuration import QuicConfiguration
from uringcore.webtransport._aiopquic_configuration import client_config, server_config
from uringcore.webtransport._aiopquic_events import (
    WT_SESSION_GONE,
    WebTransportDatagramReceived,
    WebTransportError,
    WebTransportEvent,
    WebTransportNewStream,
    WebTransportSessionClosed,
    WebTransportSessionDraining,
    WebTransportSessionReady,
    WebTransportSessionRefused,
    WebTransportStopSending,
    WebTransportStreamDataReceived,
    WebTransportStreamReset,
)
from uringcore.webtransport._connect import connect as connect_session
from uringcore.webtransport._outbox import Outboxes
from uringcore.webtransport._server import Server as SessionServer
from uringcore.webtransport._server import serve as serve_sessions
from uringcore.webtransport._session import Session, within
from uringcore.webtransport._session_lifecycle import CODE_BITS, REASON_BYTES_MAX, check_path
from uringcore.webtransport._session_messages import PIECE_MAX, MessageMakers, StreamsById

__all__ = [
    "WT_SESSION_GONE",
    "WebTransportClient",
    "WebTransportDatagramReceived",
    "WebTransportError",
    "WebTransportEvent",
    "WebTransportNewStream",
    "WebTransportServer",
    "WebTransportServerSession",
    "WebTransportSession",
    "WebTransportSessionClosed",
    "WebTransportSessionDraining",
    "WebTransportSessionReady",
    "WebTransportSessionRefused",
    "WebTransportStopSending",
    "WebTransportStreamDataReceived",
    "WebTransportStreamReset",
    "connect_webtransport",
    "serve_webtransport",
]

_MESSAGE_MAKERS: MessageMakers[WebTransportEvent] = MessageMakers(
    begun=WebTransportNewStream,
    data=None,
    reset=WebTransportStreamReset,
    stopped=WebTransportStopSending,
    datagram=lambda data: WebTransportDatagramReceived(memoryview(data)),
)


class WebTransportSession:
    """A session with events. At most 64 events of the peer's actions wait to be received, and one of each
    stream; further data stays unread, so flow control stops the peer. A stream is read while
    :meth:`receive_stream_data` is iterated, and is kept until it was read to its end or stopped.

    Streams are identified by their IDs. Resetting, stopping or prioritising one that has ended does nothing.
    An ID that never existed raises ``ValueError``, and so does sending on a receive-only stream.
    """

    tx_max_queued_bytes: int | None = 4 << 20
    """Bytes queued on all streams, including QUIC's queue, above which ``create_stream`` waits until half of
    them are sent; ``None`` disables the wait."""
    stream_ring_cap: int = 4 << 20
    """Bytes that may be queued on one stream."""

    def __init__(
        self, transport: Any, role: Literal["client", "server"], state: Session | None = None
    ) -> None:
        """``transport`` and ``state`` are the arguments of a ``session_factory``, passed on unchanged."""
        if state is None:
            raise ValueError("state: sessions are made by connect_webtransport and servers")
        self.session = state
        """The wrapped session."""
        self.role = role
        """``"client"`` or ``"server"``."""
        self._transport = transport
        self._is_closed = False
        self._drains = False
        self._datagrams_drained = asyncio.Event()
        self._datagrams_drained.set()
        self._streams = StreamsById(state._link, _MESSAGE_MAKERS, _EVENTS_MAX)
        self._outboxes = Outboxes(self._streams, state._link.quic)
        self._streams.begin(state)
        self._streams.spawn(self._report_draining)

    @property
    def is_client(self) -> bool:
        """True for a client's session."""
        return self.role == "client"

    @property
    def is_server(self) -> bool:
        """True for a server's session."""
        return self.role == "server"

    @property
    def session_ready(self) -> bool:
        """True: a session object exists only after the session was opened."""
        return True

    @property
    def session_closed(self) -> bool:
        """True if the session has ended."""
        return self._is_closed or self.session.is_closed

    @property
    def negotiated_protocol(self) -> str | None:
        """The negotiated application protocol."""
        return self.session.protocol

    @property
    def is_draining(self) -> bool:
        """True if this side or the peer has asked for the end of the session."""
        return self._drains or self.session.is_draining

    @property
    def control_stream_id(self) -> int:
        """The ID of the CONNECT stream."""
        return self.session.id

    def peer_address(self) -> tuple[str, int] | None:
        """Returns the peer's address; ``None`` once the session has ended."""
        return None if self.session_closed else self.session.peer_address

    def local_address(self) -> tuple[str, int] | None:
        """Returns the local address of this side's socket; ``None`` once the session has ended."""
        if self.session_closed:
            return None
        life: object = self.session._link.connection
        if isinstance(life, BaseConnectionProtocol):
            name = life.transport.get_extra_info("sockname")
            return str(name[0]), int(name[1])
        return self._transport.address if isinstance(self._transport, SessionServer) else None

    async def events(self) -> AsyncGenerator[WebTransportEvent, None]:
        """Yields events other than stream data until the session has ended. Events from before its end come
        before the last one; at that time the peer cannot receive answers any more."""
        while (event := await self._streams.receive()) is not None:
            yield event
        yield self._last_event()

    async def receive_stream_data(self, stream_id: int) -> AsyncGenerator[WebTransportEvent, None]:
        """Yields the data of a stream, to its end or its reset. Each step reads more from the stream."""
        stream = None if self.session.is_closed else self._streams.receiver(stream_id)
        if stream is None and self.session_closed:
            yield WebTransportStreamReset(stream_id, WT_SESSION_GONE)
        while stream is not None:
            event = await self._next_of(stream)
            if not isinstance(event, WebTransportStreamDataReceived) or event.end_stream:
                stream = None
                self._streams.was_read(stream_id)
            if event is not None:
                yield event

    async def create_stream(self, bidir: bool = True, timeout: float = 5.0) -> int:
        """Opens a stream and returns its ID. Raises ``TimeoutError`` if the peer allows none within
        ``timeout`` seconds, not counting the wait of :attr:`tx_max_queued_bytes`."""
        if self.tx_max_queued_bytes:
            await self._outboxes.wait_for_room(self.tx_max_queued_bytes)
        if self.session_closed:
            raise WebTransportError("the session is over")
        try:
            return await within(timeout, self._streams.open(self.session, bidir))
        except QuicError as error:
            raise WebTransportError(str(error)) from error

    def send_stream_data(self, stream_id: int, data: bytes, end_stream: bool = False) -> None:
        """Queues all of ``data``, or raises ``BufferError``: see :meth:`get_tx_data_drain_event`.

        Raises ``ValueError`` for more than :attr:`stream_ring_cap` and :class:`WebTransportError` if the
        session or the stream has ended.
        """
        if self.session_closed:
            raise WebTransportError("the session is over")
        outbox = self._outboxes.find(stream_id)
        if outbox is None or outbox.is_over:
            raise WebTransportError(f"stream {stream_id} is not open for sending")
        self._outboxes.put(outbox, data, end_stream, self.stream_ring_cap)

    async def send_stream_data_drained(
        self,
        stream_id: int,
        data: bytes,
        end_stream: bool = False,
        *,
        soft_yield_at: float = 0.5,
        hard_wait_at: float = 0.9,
    ) -> None:
        """Queues data, and waits while there is no space for it. Does nothing if the session has ended.

        The thresholds refer to :meth:`tx_event_ring_fill`.
        """
        while not self.session_closed:
            try:
                self.send_stream_data(stream_id, data, end_stream)
                if self.tx_event_ring_fill() > min(soft_yield_at, hard_wait_at):
                    await asyncio.sleep(0)
                return
            except BufferError:
                outbox = self._outboxes.find(stream_id)
                if outbox is not None:
                    await outbox.wait()

    def get_tx_data_drain_event(self, stream_id: int) -> asyncio.Event:
        """Returns an event that is set when bytes have been sent after a ``BufferError`` or
        :meth:`set_tx_data_drain_pending`, and when no more will be sent."""
        outbox = self._outboxes.find(stream_id)
        if outbox is not None:
            return outbox.drained
        over = asyncio.Event()
        over.set()
        return over

    def set_tx_data_drain_pending(self, stream_id: int) -> None:
        """Sets the event when the next bytes have been sent."""
        outbox = self._outboxes.find(stream_id)
        if outbox is not None:
            outbox.is_awaited = True

    def clear_tx_data_drain_pending(self, stream_id: int) -> None:
        """Undoes :meth:`set_tx_data_drain_pending`: the next sent bytes do not set the event."""
        outbox = self._outboxes.find(stream_id)
        if outbox is not None:
            outbox.is_awaited = False

    def tx_data_ring_used(self, stream_id: int) -> int:
        """Returns the bytes queued on a stream that QUIC has not taken."""
        outbox = self._outboxes.known(stream_id)
        return 0 if outbox is None else outbox.used

    def tx_sent_bytes(self, stream_id: int) -> int:
        """Returns the bytes of a stream that QUIC has taken; 0 for one that has ended."""
        outbox = self._outboxes.known(stream_id)
        return 0 if outbox is None else outbox.sent

    def tx_event_ring_fill(self) -> float:
        """Returns 0, because this implementation has no such ring."""
        return 0.0

    def reset_stream(self, stream_id: int, error_code: int = 0) -> None:
        """Resets the sending side of a stream."""
        check_code(error_code, "error_code", CODE_BITS)
        stream = self._streams.sender(stream_id)
        if stream is not None:
            stream.reset(error_code)
            outbox = self._outboxes.find(stream_id)
            if outbox is not None:
                outbox.discard()

    def stop_stream(self, stream_id: int, error_code: int = 0) -> None:
        """Requests the peer to stop sending."""
        check_code(error_code, "error_code", CODE_BITS)
        stream = self._streams.find(stream_id)
        if isinstance(stream, ReceiveStream):
            stream.stop(error_code)
            self._streams.was_read(stream_id)

    def set_stream_priority(self, stream_id: int, priority: int) -> int:
        """Sets the priority of a stream: 0 is first, 255 last, 9 the default. Streams with even priorities
        are sent round robin. QUIC has eight ranks; their upper limits are 0, 4, 8, 10, 63, 127, 191
        and 255. Returns 0."""
        if not 0 <= priority <= 255:
            raise ValueError(f"priority: must be 0 to 255, not {priority}")
        if self.session_closed:
            raise WebTransportError("the session is over")
        stream = self._streams.sender(stream_id)
        if stream is not None:
            stream.priority(sum(priority > limit for limit in _RANKS), priority % 2 == 0)
        return 0

    def send_datagram_frame(self, data: bytes) -> int:
        """Queues a datagram and returns its length. If the queue is full, the oldest ones are dropped.

        Raises ``ValueError`` for a datagram that is too long.
        """
        if self.session_closed:
            raise WebTransportError("the session is over")
        try:
            self.session.send_datagram(data)
        except DatagramSendError:
            raise
        except QuicError as error:
            raise WebTransportError(str(error)) from error
        return len(data)

    def get_datagram_tx_drain_event(self) -> asyncio.Event:
        """Returns an event that is always set, because a datagram can always be queued."""
        return self._datagrams_drained

    def drain(self) -> None:
        """Asks the peer to end the session soon."""
        self._drains = True
        self.session.drain()

    def close(self, error_code: int = 0, reason: bytes = b"") -> None:
        """Closes the session. Raises ``ValueError`` for a code that does not fit in 32 bits, or a reason of
        more than 1,024 bytes."""
        check_code(error_code, "error_code", CODE_BITS)
        text = contiguous_bytes(reason, "reason").decode("utf-8", "replace")
        check_reason(text, bytes_max=REASON_BYTES_MAX)
        if not self.session_closed:
            self.session.close(error_code, text)
            self._is_closed = True

    async def wait_closed(self, timeout: float | None = None) -> None:
        """Waits until the session has ended. Raises ``TimeoutError`` after ``timeout`` seconds."""
        await within(timeout, self.session._link.closed.wait())

    async def aclose(
        self, error_code: int = 0, reason: bytes = b"", *, timeout: float = 2.0
    ) -> None:
        """Closes the session. A client also waits for the end of its connection, for at most ``timeout``
        seconds."""
        self.close(error_code, reason)
        if self.is_client:
            with contextlib.suppress(TimeoutError):
                await within(timeout, self.session.wait_closed())

    async def detach(self) -> None:
        """Does nothing, because a session that has ended holds no resources."""

    async def _next_of(self, stream: ReceiveStream) -> WebTransportEvent | None:
        try:
            data = await stream.read(PIECE_MAX)
        except StreamResetError as error:
            return WebTransportStreamReset(stream.id, error.code)
        except QuicError:
            # There is no further event: the session has ended, or the program has stopped the stream.
            return (
                WebTransportStreamReset(stream.id, WT_SESSION_GONE) if self.session_closed else None
            )
        return WebTransportStreamDataReceived(
            stream.id, memoryview(data), not data or stream.at_eof()
        )

    def _last_event(self) -> WebTransportSessionClosed:
        code, reason = self.session.close_code, self.session.close_reason
        if code is None:
            error = self.session._link.error()
            code, reason = error.code or WT_SESSION_GONE, error.reason
        return WebTransportSessionClosed(code, memoryview(reason.encode()))

    async def _report_draining(self) -> None:
        await self.session.wait_draining()
        if not self.session.is_closed:
            self._streams.put(WebTransportSessionDraining())


class WebTransportClient(WebTransportSession):
    """A client's session, made by :func:`connect_webtransport`."""

    def __init__(self, session: Session | None = None, *given: Any, **named: Any) -> None:
        """Internal: aiopquic's arguments are refused with ``TypeError``."""
        if not isinstance(session, Session) or given or named:
            raise TypeError("WebTransportClient: clients are made by connect_webtransport")
        super().__init__(None, "client", session)


class WebTransportServerSession(WebTransportSession):
    """A server's session."""

    def __init__(self, transport: Any, state: Session) -> None:
        super().__init__(transport, "server", state)


class WebTransportServer:
    """A server, made by :func:`serve_webtransport`."""

    def __init__(self, server: SessionServer) -> None:
        self.server = server
        """The wrapped server."""

    @property
    def address(self) -> tuple[str, int]:
        """The IP address and port that the server is bound to."""
        return self.server.address

    def close(self, code: int = 0, reason: str = "") -> None:
        """Closes all sessions and then the socket."""
        self.server.close(code, reason)

    async def wait_closed(self) -> None:
        """Waits until the sessions and the socket are closed."""
        await self.server.wait_closed()

    async def aclose(self) -> None:
        """Closes all sessions and the socket. Waits until they are closed."""
        self.close()
        await self.wait_closed()


@contextlib.asynccontextmanager
async def connect_webtransport(
    host: str,
    port: int,
    path: str,
    *,
    sni: str | None = None,
    wt_available_protocols: Sequence[str] | None = None,
    transport: None = None,
    timeout: float = 10.0,
    configuration: QuicConfiguration | None = None,
    verify_peer: bool | None = None,
    ca_file: str | None = None,
) -> AsyncIterator[WebTransportClient]:
    """Opens a client's session, which is closed at the end of the block.

    ``configuration`` is a :class:`uringcore.quic.configuration.QuicConfiguration`; ``sni``, ``verify_peer``
    and ``ca_file`` override it. Raises :class:`WebTransportError` if the session cannot be opened,
    ``socket.gaierror`` for an unknown host name, as aiopquic does, ``ValueError`` naming an argument or a
    field that is not supported, and ``TypeError`` for one string instead of several.
    """
    _refuse("transport", transport, "connections share no transport")
    path = path or "/"
    check_path(path, "path")
    protocols = _several("wt_available_protocols", wt_available_protocols)
    config = client_config(configuration, sni, verify_peer, ca_file)
    named = f"[{host}]" if ":" in host else host
    opening = connect_session(
        f"https://{named}:{port}{path}", config, protocols=protocols, timeout=timeout
    )
    try:
        session = await opening
    except (QuicError, TimeoutError) as error:
        raise WebTransportError(str(error)) from error
    client = WebTransportClient(session)
    try:
        yield client
    finally:
        await client.aclose()


async def serve_webtransport(
    host: str,
    port: int,
    path: str,
    *,
    handler: Callable[[Any], object],
    cert_file: str,
    key_file: str,
    transport: None = None,
    session_factory: Callable[[Any, Session], WebTransportSession] | None = None,
    configuration: QuicConfiguration | None = None,
    wt_supported_protocols: Sequence[str] | None = None,
    web_folder: None = None,
) -> WebTransportServer:
    """Starts a server for sessions at one path. ``handler(session)`` is called for each, and its result is
    awaited if it is awaitable. A session continues when the handler returns. If the handler raises, the
    session is closed with code 1 and the exception is logged; a failed send on an ended session is not
    logged.

    ``session_factory(transport, state)`` makes the sessions; it passes its arguments to
    :class:`WebTransportServerSession`. ``configuration`` and the exceptions are those of
    :func:`connect_webtransport`. ``web_folder`` is refused: the ASGI server serves files beside sessions.
    """
    _refuse("transport", transport, "servers share no transport")
    _refuse("web_folder", web_folder, "files beside sessions are served by the ASGI server")
    path = path or "/"
    check_path(path, "path")
    if "?" in path:
        raise ValueError(f"path: a server's path has no query, not {path!r}")
    protocols = _several("wt_supported_protocols", wt_supported_protocols)
    config = server_config(configuration, cert_file, key_file)
    make = session_factory or WebTransportServerSession

    async def handle(state: Session) -> None:
        session = make(server, state)
        try:
            result = handler(session)
            if inspect.isawaitable(result):
                await result
        except WebTransportError:
            if not session.session_closed:
                raise
        await session.wait_closed()

    server = await serve_sessions(
        host,
        port,
        config=config,
        paths=[path],
        protocols=protocols,
        handler=handle,
    )
    return WebTransportServer(server)


def _refuse(name: str, given: object, reason: str) -> None:
    if given is not None:
        raise ValueError(f"{name}: is not supported: {reason}")


def _several(name: str, given: Sequence[str] | None) -> tuple[str, ...]:
    if isinstance(given, str | bytes):
        raise TypeError(f"{name}: must be several strings, not one")
    return tuple(given or ())


_EVENTS_MAX = 64
# aiopquic's priorities are 0 to 255, and RFC 9218 has urgencies 0 to 7. These are the highest priorities of
# urgencies 0 to 6. The default priority, 9, has the default urgency, 3.
_RANKS = (0, 4, 8, 10, 63, 127, 191)
