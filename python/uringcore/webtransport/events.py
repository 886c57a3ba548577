"""WebTransport in aiopquic's names: sessions that tell events, for programs that are written in those.

``events()`` of a session gives the classes below; commands name streams by their numbers. It is a thin layer
over :class:`~uringcore.webtransport.WebTransportSession`, which new programs use. Not here: what aiopquic has
of its rings and its transport object, which nobody needs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

from uringcore._uringcore import ReceiveStream
from uringcore.quic.errors import StreamStopped
from uringcore.quic.native.config import ClientConfig
from uringcore.webtransport.client import connect_webtransport as connect_session
from uringcore.webtransport.numbered import NumberedStreams, Words
from uringcore.webtransport.server import WebTransportServer
from uringcore.webtransport.server import serve_webtransport as serve_sessions
from uringcore.webtransport.session import WebTransportSession, within

__all__ = [
    "WebTransportClient",
    "WebTransportDatagramReceived",
    "WebTransportEvent",
    "WebTransportEventSession",
    "WebTransportNewStream",
    "WebTransportServerSession",
    "WebTransportSessionClosed",
    "WebTransportSessionDraining",
    "WebTransportSessionReady",
    "WebTransportStopSending",
    "WebTransportStreamDataReceived",
    "WebTransportStreamReset",
    "connect_webtransport",
    "serve_webtransport",
]


class WebTransportEvent:
    """What happens to a session."""


@dataclass
class WebTransportSessionReady(WebTransportEvent):
    """The session is open."""


@dataclass
class WebTransportSessionDraining(WebTransportEvent):
    """The peer asks for the session to come to its end."""


@dataclass
class WebTransportSessionClosed(WebTransportEvent):
    """The session is over. This is the last event."""

    error_code: int = 0
    reason: bytes = b""


@dataclass
class WebTransportNewStream(WebTransportEvent):
    """The peer has opened a stream."""

    stream_id: int = 0


@dataclass
class WebTransportStreamDataReceived(WebTransportEvent):
    """Data of a stream, and with ``end_stream`` its end."""

    stream_id: int = 0
    data: bytes = b""
    end_stream: bool = False


@dataclass
class WebTransportStreamReset(WebTransportEvent):
    """The peer gave up sending."""

    stream_id: int = 0
    error_code: int = 0


@dataclass
class WebTransportStopSending(WebTransportEvent):
    """The peer wants no more data."""

    stream_id: int = 0
    error_code: int = 0


@dataclass
class WebTransportDatagramReceived(WebTransportEvent):
    """A datagram."""

    data: bytes = b""


WORDS: Words[WebTransportEvent] = Words(
    begun=WebTransportNewStream,
    data=WebTransportStreamDataReceived,
    reset=WebTransportStreamReset,
    stopped=WebTransportStopSending,
    datagram=WebTransportDatagramReceived,
)


class WebTransportEventSession:
    """A session that tells events. At most :data:`EVENTS_MAX` of the peer's doing wait to be asked for, and
    one of each stream; more is not read, so the peer has to wait.

    Streams are known by their numbers. What is asked of one that is over does nothing; for one that there
    never was ``ValueError`` is raised, and for sending on one that is only received.
    """

    is_client = False

    def __init__(self, session: WebTransportSession) -> None:
        self.session = session
        """The session itself."""
        self.session_ready = asyncio.Event()
        self.session_ready.set()
        self.session_closed = session._link.closed
        self._streams = NumberedStreams(session._link, WORDS, EVENTS_MAX)
        self._streams.begin(session)
        self._streams.spawn(self._tell_draining)
        # What was sent last, where that waits for room.
        self._sends: dict[int, asyncio.Task[None]] = {}

    @property
    def is_server(self) -> bool:
        """Which side this is."""
        return not self.is_client

    @property
    def role(self) -> str:
        """``"client"`` or ``"server"``."""
        return "client" if self.is_client else "server"

    @property
    def negotiated_protocol(self) -> str | None:
        """The application protocol that was agreed on."""
        return self.session.protocol

    @property
    def is_draining(self) -> bool:
        """Whether the peer has asked for the session to come to its end."""
        return self.session.is_draining

    @property
    def control_stream_id(self) -> int:
        """The number of the CONNECT stream."""
        return self.session.id

    def peer_address(self) -> tuple[str, int] | None:
        """Where the peer is."""
        return self.session.peer_address

    async def events(self) -> AsyncGenerator[WebTransportEvent, None]:
        """What happens, until the session is over."""
        yield WebTransportSessionReady()
        while (event := await self._streams.receive()) is not None:
            yield event
        code, reason = self.session.close_code or 0, self.session.close_reason
        yield WebTransportSessionClosed(code, reason.encode())

    async def create_stream(self, bidir: bool = True, timeout: float = 5.0) -> int:
        """Opens a stream and returns its number; ``TimeoutError`` if the peer allows none for so long."""
        return await within(timeout, self._streams.open(self.session, bidir))

    def send_stream_data(self, stream_id: int, data: bytes, end_stream: bool = False) -> None:
        """Queues data, without a bound: see :meth:`send_stream_data_drained`."""
        self._streams.sender(stream_id)
        before = self._sends.get(stream_id)
        task = self._streams.spawn(self._send_behind, before, stream_id, data, end_stream)
        self._sends[stream_id] = task
        task.add_done_callback(lambda _: self._sent(stream_id, task))

    async def send_stream_data_drained(
        self, stream_id: int, data: bytes, end_stream: bool = False
    ) -> None:
        """Sends data, and waits while there is no room for it."""
        with contextlib.suppress(StreamStopped):
            await self._send_behind(self._sends.get(stream_id), stream_id, data, end_stream)

    def reset_stream(self, stream_id: int, error_code: int = 0) -> None:
        """Gives up sending."""
        stream = self._streams.sender(stream_id)
        if stream is not None:
            stream.reset(error_code)

    def stop_stream(self, stream_id: int, error_code: int = 0) -> None:
        """Asks the peer to send no more."""
        stream = self._streams.find(stream_id)
        if isinstance(stream, ReceiveStream):
            stream.stop(error_code)

    def set_stream_priority(self, stream_id: int, priority: int) -> None:
        """Serves a stream before others: 0 first, 7 last."""
        stream = self._streams.sender(stream_id)
        if stream is not None:
            stream.priority(priority)

    def send_datagram_frame(self, data: bytes) -> None:
        """Queues a datagram."""
        self.session.send_datagram(data)

    def drain(self) -> None:
        """Asks the peer to bring the session to its end."""
        self.session.drain()

    def close(self, error_code: int = 0, reason: bytes = b"") -> None:
        """Closes the session."""
        self.session.close(error_code, reason.decode("utf-8", "replace"))

    async def wait_closed(self, timeout: float | None = None) -> None:
        """Waits until the session is over; ``TimeoutError`` if it is not for so long."""
        await within(timeout, self.session.wait_closed())

    async def aclose(
        self, error_code: int = 0, reason: bytes = b"", *, timeout: float = 2.0
    ) -> None:
        """Closes the session and waits until that is done, for ``timeout`` seconds at most."""
        self.close(error_code, reason)
        with contextlib.suppress(TimeoutError):
            await self.wait_closed(timeout)

    async def _tell_draining(self) -> None:
        await self.session.wait_draining()
        if not self.session.is_closed:
            self._streams.put(WebTransportSessionDraining())

    async def _send_behind(
        self, before: asyncio.Task[None] | None, stream_id: int, data: bytes, end_stream: bool
    ) -> None:
        if before is not None:
            await asyncio.wait([before])
        await self._streams.send(stream_id, data, end_stream)

    def _sent(self, stream_id: int, task: asyncio.Task[None]) -> None:
        if self._sends.get(stream_id) is task:
            del self._sends[stream_id]


class WebTransportClient(WebTransportEventSession):
    """A client's session."""

    is_client = True


class WebTransportServerSession(WebTransportEventSession):
    """A server's session."""


@contextlib.asynccontextmanager
async def connect_webtransport(
    host: str,
    port: int,
    path: str,
    *,
    sni: str | None = None,
    wt_available_protocols: Sequence[str] | None = None,
    timeout: float = 10.0,
    verify_peer: bool = True,
    ca_file: str | None = None,
) -> AsyncIterator[WebTransportClient]:
    """A client's session, which is closed at the end of the block. Raises as
    :func:`uringcore.webtransport.connect_webtransport`."""
    named = f"[{host}]" if ":" in host else host
    config = ClientConfig(server_name=sni, verify=verify_peer, authorities=ca_file)
    protocols = tuple(wt_available_protocols or ())
    url = f"https://{named}:{port}{path}"
    async with connect_session(url, config, protocols=protocols, timeout=timeout) as session:
        yield WebTransportClient(session)


async def serve_webtransport(
    host: str,
    port: int,
    path: str,
    *,
    handler: Callable[[WebTransportServerSession], Awaitable[object]],
    cert_file: str,
    key_file: str,
    wt_supported_protocols: Sequence[str] | None = None,
) -> WebTransportServer:
    """A server for sessions at one path: ``handler(session)`` runs in a task for each. Its ``close()``
    ends it."""

    async def handle(session: WebTransportSession) -> None:
        await handler(WebTransportServerSession(session))

    return await serve_sessions(
        host,
        port,
        certificate=(cert_file, key_file),
        paths=[path],
        protocols=tuple(wt_supported_protocols or ()),
        handler=handle,
    )


EVENTS_MAX = 64
