"""WebTransport in aiopquic's names: sessions that tell events, for programs that are written in those.

``events()`` of a session gives the classes below but stream data, which ``receive_stream_data`` gives;
commands name streams by their numbers. It is a thin layer over
:class:`uringcore.webtransport.Session`, which new programs use. Not here: what aiopquic has of
its rings and its transport object, which nobody needs: a ``transport=`` is refused, ``cnx_ptr`` and
``path_quality`` are missing, and there is no ring of events that could be full. Nor does a program make
clients of its own: ``WebTransportClient(transport, host, port, path, ...)`` raises ``TypeError`` and has no
``open()``, for :func:`connect_webtransport` makes and opens them.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any, Literal

from uringcore._buffers import contiguous_bytes
from uringcore._uringcore import ReceiveStream
from uringcore.quic._closing import check_code, check_reason
from uringcore.quic._errors import DatagramSendError, QuicError, StreamResetError
from uringcore.quic._native.link import Life
from uringcore.quic.configuration import QuicConfiguration
from uringcore.webtransport._client import connect as connect_session
from uringcore.webtransport._configured import client_config, server_config
from uringcore.webtransport._event_classes import (
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
from uringcore.webtransport._link import CODE_BITS, REASON_BYTES_MAX, check_path
from uringcore.webtransport._numbered import PIECE_MAX, MessageMakers, NumberedStreams
from uringcore.webtransport._outbox import Outboxes
from uringcore.webtransport._server import Server as SessionServer
from uringcore.webtransport._server import serve as serve_sessions
from uringcore.webtransport._session import Session, within

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
    """A session that tells events. At most 64 of the peer's doing wait to be asked for, and
    one of each stream; more is not read, so the peer has to wait. A stream is read as
    :meth:`receive_stream_data` is asked, and is kept until it was read to its end or stopped.

    Streams are known by their numbers. Resetting, stopping or ranking one that is over does nothing; for
    one that there never was ``ValueError`` is raised, and for sending on one that is only received.
    """

    tx_max_queued_bytes: int | None = 4 << 20
    """Bytes queued on all streams, by QUIC as well, above which ``create_stream`` waits for half of them to
    go; ``None`` is for no such wait."""
    stream_ring_cap: int = 4 << 20
    """Bytes that may be queued on one stream."""

    def __init__(
        self, transport: Any, role: Literal["client", "server"], state: Session | None = None
    ) -> None:
        """``transport`` and ``state`` are what a ``session_factory`` is given, to be handed on."""
        if state is None:
            raise ValueError("state: sessions are made by connect_webtransport and servers")
        self.session = state
        """The session itself."""
        self.role = role
        """``"client"`` or ``"server"``."""
        self._transport = transport
        self._is_closed = False
        self._drains = False
        self._datagrams_drained = asyncio.Event()
        self._datagrams_drained.set()
        self._streams = NumberedStreams(state._link, _MESSAGE_MAKERS, _EVENTS_MAX)
        self._outboxes = Outboxes(self._streams, state._link.quic)
        self._streams.begin(state)
        self._streams.spawn(self._tell_draining)

    @property
    def is_client(self) -> bool:
        """Which side this is."""
        return self.role == "client"

    @property
    def is_server(self) -> bool:
        """Which side this is."""
        return self.role == "server"

    @property
    def session_ready(self) -> bool:
        """True if the session was opened."""
        return True

    @property
    def session_closed(self) -> bool:
        """True if the session is over."""
        return self._is_closed or self.session.is_closed

    @property
    def negotiated_protocol(self) -> str | None:
        """The application protocol that was agreed on."""
        return self.session.protocol

    @property
    def is_draining(self) -> bool:
        """True if a side has asked for the session to come to its end."""
        return self._drains or self.session.is_draining

    @property
    def control_stream_id(self) -> int:
        """The number of the CONNECT stream."""
        return self.session.id

    def peer_address(self) -> tuple[str, int] | None:
        """Where the peer is; ``None`` once the session is over."""
        return None if self.session_closed else self.session.peer_address

    def local_address(self) -> tuple[str, int] | None:
        """The local address of this side's socket; ``None`` once the session is over."""
        if self.session_closed:
            return None
        life: object = self.session._link.connection
        if isinstance(life, Life):
            name = life.transport.get_extra_info("sockname")
            return str(name[0]), int(name[1])
        return self._transport.address if isinstance(self._transport, SessionServer) else None

    async def events(self) -> AsyncGenerator[WebTransportEvent, None]:
        """What happens beside the data of streams, until the session is over. What came before its end is
        told before it, and there is nobody left to be answered."""
        while (event := await self._streams.receive()) is not None:
            yield event
        yield self._last_event()

    async def receive_stream_data(self, stream_id: int) -> AsyncGenerator[WebTransportEvent, None]:
        """What comes on a stream, to its end or its reset. It is read as this is asked for more."""
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
        """Opens a stream and returns its number; ``TimeoutError`` if the peer allows none for so long. The
        wait for bytes to go (:attr:`tx_max_queued_bytes`) is not counted."""
        if self.tx_max_queued_bytes:
            await self._outboxes.wait_for_room(self.tx_max_queued_bytes)
        if self.session_closed:
            raise WebTransportError("the session is over")
        try:
            return await within(timeout, self._streams.open(self.session, bidir))
        except QuicError as error:
            raise WebTransportError(str(error)) from error

    def send_stream_data(self, stream_id: int, data: bytes, end_stream: bool = False) -> None:
        """Queues all of it, or raises ``BufferError``: see :meth:`get_tx_data_drain_event`.

        Raises ``ValueError`` for more than :attr:`stream_ring_cap` and :class:`WebTransportError` when the
        session is over or there is no such stream any more.
        """
        if self.session_closed:
            raise WebTransportError("the session is over")
        outbox = self._outboxes.find(stream_id)
        if outbox is None or outbox.is_over:
            raise WebTransportError(f"there is no stream {stream_id} to send on, or no more")
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
        """Queues data, and waits while there is no room for it. Does nothing when the session is over.

        The thresholds are those of :meth:`tx_event_ring_fill`.
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
        """Set when bytes have gone after a ``BufferError`` or :meth:`set_tx_data_drain_pending`, and when
        none will go any more."""
        outbox = self._outboxes.find(stream_id)
        if outbox is not None:
            return outbox.drained
        over = asyncio.Event()
        over.set()
        return over

    def set_tx_data_drain_pending(self, stream_id: int) -> None:
        """Has the event set when bytes have gone."""
        outbox = self._outboxes.find(stream_id)
        if outbox is not None:
            outbox.is_awaited = True

    def clear_tx_data_drain_pending(self, stream_id: int) -> None:
        """Takes that back."""
        outbox = self._outboxes.find(stream_id)
        if outbox is not None:
            outbox.is_awaited = False

    def tx_data_ring_used(self, stream_id: int) -> int:
        """Bytes queued on a stream that QUIC has not taken."""
        outbox = self._outboxes.known(stream_id)
        return 0 if outbox is None else outbox.used

    def tx_sent_bytes(self, stream_id: int) -> int:
        """Bytes of a stream that QUIC has taken; 0 of one that is over."""
        outbox = self._outboxes.known(stream_id)
        return 0 if outbox is None else outbox.sent

    def tx_event_ring_fill(self) -> float:
        """0: there is no such ring."""
        return 0.0

    def reset_stream(self, stream_id: int, error_code: int = 0) -> None:
        """Gives up sending."""
        check_code(error_code, "error_code", CODE_BITS)
        stream = self._streams.sender(stream_id)
        if stream is not None:
            stream.reset(error_code)
            outbox = self._outboxes.find(stream_id)
            if outbox is not None:
                outbox.discard()

    def stop_stream(self, stream_id: int, error_code: int = 0) -> None:
        """Asks the peer to send no more."""
        check_code(error_code, "error_code", CODE_BITS)
        stream = self._streams.find(stream_id)
        if isinstance(stream, ReceiveStream):
            stream.stop(error_code)
            self._streams.was_read(stream_id)

    def set_stream_priority(self, stream_id: int, priority: int) -> int:
        """Serves a stream before others: 0 first, 255 last, 9 as those of which nothing is said. Even ones
        take turns. QUIC has eight ranks: the limits of them are 0, 4, 8, 10, 63, 127 and 191. Gives 0."""
        if not 0 <= priority <= 255:
            raise ValueError(f"priority: must be 0 to 255, not {priority}")
        if self.session_closed:
            raise WebTransportError("the session is over")
        stream = self._streams.sender(stream_id)
        if stream is not None:
            stream.priority(sum(priority > limit for limit in _RANKS), priority % 2 == 0)
        return 0

    def send_datagram_frame(self, data: bytes) -> int:
        """Queues a datagram and gives its length. There is always room: the oldest ones are dropped.

        Raises ``ValueError`` for one that is too long.
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
        """An event that is set: there is always room."""
        return self._datagrams_drained

    def drain(self) -> None:
        """Asks the peer to bring the session to its end."""
        self._drains = True
        self.session.drain()

    def close(self, error_code: int = 0, reason: bytes = b"") -> None:
        """Closes the session. ``ValueError`` for a code that does not fit in 32 bits, or a reason of more
        than 1,024 bytes."""
        check_code(error_code, "error_code", CODE_BITS)
        text = contiguous_bytes(reason, "reason").decode("utf-8", "replace")
        check_reason(text, bytes_max=REASON_BYTES_MAX)
        if not self.session_closed:
            self.session.close(error_code, text)
            self._is_closed = True

    async def wait_closed(self, timeout: float | None = None) -> None:
        """Waits until the session is over; ``TimeoutError`` if it is not for so long."""
        await within(timeout, self.session._link.closed.wait())

    async def aclose(
        self, error_code: int = 0, reason: bytes = b"", *, timeout: float = 2.0
    ) -> None:
        """Closes the session. A client waits for its connection's end, ``timeout`` seconds at most."""
        self.close(error_code, reason)
        if self.is_client:
            with contextlib.suppress(TimeoutError):
                await within(timeout, self.session.wait_closed())

    async def detach(self) -> None:
        """Nothing: a session that is over holds nothing."""

    async def _next_of(self, stream: ReceiveStream) -> WebTransportEvent | None:
        try:
            data = await stream.read(PIECE_MAX)
        except StreamResetError as error:
            return WebTransportStreamReset(stream.id, error.code)
        except QuicError:
            # The session is over, or the program has stopped the stream.
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

    async def _tell_draining(self) -> None:
        await self.session.wait_draining()
        if not self.session.is_closed:
            self._streams.put(WebTransportSessionDraining())


class WebTransportClient(WebTransportSession):
    """A client's session, which :func:`connect_webtransport` makes."""

    def __init__(self, session: Session | None = None, *given: Any, **named: Any) -> None:
        """Not for programs: aiopquic's arguments are refused with ``TypeError``."""
        if not isinstance(session, Session) or given or named:
            raise TypeError("WebTransportClient: clients are made by connect_webtransport")
        super().__init__(None, "client", session)


class WebTransportServerSession(WebTransportSession):
    """A server's session."""

    def __init__(self, transport: Any, state: Session) -> None:
        super().__init__(transport, "server", state)


class WebTransportServer:
    """A server, which :func:`serve_webtransport` makes."""

    def __init__(self, server: SessionServer) -> None:
        self.server = server
        """The server itself."""

    @property
    def address(self) -> tuple[str, int]:
        """The address and port that it is bound to."""
        return self.server.address

    def close(self, code: int = 0, reason: str = "") -> None:
        """Closes all sessions and then the socket."""
        self.server.close(code, reason)

    async def wait_closed(self) -> None:
        """Waits until that is done."""
        await self.server.wait_closed()

    async def aclose(self) -> None:
        """Closes all sessions and the socket, and waits until that is done."""
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
    """A client's session, which is closed at the end of the block.

    ``configuration`` is a :class:`uringcore.quic.configuration.QuicConfiguration`; ``sni``, ``verify_peer``
    and ``ca_file`` go before it. Raises :class:`WebTransportError` when there is no session,
    ``socket.gaierror`` for a host whose name is not known, as aiopquic does, and ``ValueError``, which names
    it, for an argument or a field that cannot be honoured; ``TypeError`` for one string instead of several.
    """
    _refuse("transport", transport, "connections share none")
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
    """A server for sessions at one path: ``handler(session)`` is called for each, and awaited if that is
    possible. A session goes on when it returns, and is closed with code 1 if it raises, which is logged;
    that it could not send any more, when the session was over, is no fault of its.

    ``session_factory(transport, state)`` makes the sessions; what it is given is for
    :class:`WebTransportServerSession`. ``configuration`` is as with :func:`connect_webtransport`, and so is
    what is raised. ``web_folder`` is refused: files beside sessions are served by the ASGI server.
    """
    _refuse("transport", transport, "servers share none")
    _refuse("web_folder", web_folder, "files beside sessions are served by the ASGI server")
    path = path or "/"
    check_path(path, "path")
    if "?" in path:
        raise ValueError(f"path: a server's has no query, not {path!r}")
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
        raise ValueError(f"{name}: cannot be had, {reason}")


def _several(name: str, given: Sequence[str] | None) -> tuple[str, ...]:
    if isinstance(given, str | bytes):
        raise TypeError(f"{name}: must be several strings, not one")
    return tuple(given or ())


_EVENTS_MAX = 64
# The last of aiopquic's priorities in each of RFC 9218's urgencies but the last. The defaults are 9 and 3.
_RANKS = (0, 4, 8, 10, 63, 127, 191)
