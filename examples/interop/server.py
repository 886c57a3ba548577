"""The interoperability runner's server: files over HTTP/0.9 and HTTP/3."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote

from examples.interop.cases import Case
from uringcore.asyncio import QuicConnectionProtocol, serve
from uringcore.h0.connection import H0_ALPN, H0Connection
from uringcore.h3.connection import H3_ALPN, H3Connection
from uringcore.h3.events import HeadersReceived
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.events import ConnectionTerminated, ProtocolNegotiated, QuicEvent
from uringcore.quic.packet import QuicProtocolVersion
from uringcore.tls import CipherSuite, SessionTicket

__all__ = ["configure", "run"]

CHUNK = 64 * 1024
"Bytes of a file that are read and queued at a time."


def configure(
    case: Case, certificates: Path, preferred: list[tuple[str, int]]
) -> QuicConfiguration:
    """Returns a server's configuration for ``case``, with ``cert.pem`` and ``priv.key`` of a
    folder.

    ``preferred`` are the addresses that clients shall move to in the case that tests it.
    """
    configuration = QuicConfiguration(
        is_client=False, alpn_protocols=[*H3_ALPN] if case.http3 else [*H0_ALPN]
    )
    if case.chacha20:
        configuration.cipher_suites = [CipherSuite.CHACHA20_POLY1305_SHA256]
    if case.version_2:
        configuration.supported_versions = [
            QuicProtocolVersion.VERSION_2,
            QuicProtocolVersion.VERSION_1,
        ]
    if case.preferred_address:
        configuration.preferred_address = preferred
    if case.early:
        configuration.early_data = True
    configuration.load_cert_chain(certificates / "cert.pem", certificates / "priv.key")
    return configuration


async def run(
    case: Case,
    configuration: QuicConfiguration,
    www: Path,
    host: str,
    port: int,
    listening: Callable[[int], None],
    stopped: asyncio.Event,
) -> None:
    """Serves the files below ``www`` until ``stopped`` is set; calls ``listening(port)`` once."""
    tickets = TicketStore()
    server = await serve(
        host,
        port,
        configuration=configuration,
        create_protocol=functools.partial(FileServer, www=www),
        session_ticket_fetcher=tickets.pop if case.resume else None,
        session_ticket_handler=tickets.add if case.resume else None,
        retry=case.retry,
    )
    try:
        listening(server.sockname[1])
        await stopped.wait()
    finally:
        server.close()
        server.close_clients()
        await server.wait_closed()


class TicketStore:
    """Session tickets, each good for one resumption."""

    def __init__(self) -> None:
        self._tickets: dict[bytes, SessionTicket] = {}

    def add(self, ticket: SessionTicket) -> None:
        """Stores a ticket that was sent to a client."""
        self._tickets[ticket.ticket] = ticket

    def pop(self, label: bytes) -> SessionTicket | None:
        """Removes and returns the ticket that a client presents."""
        return self._tickets.pop(label, None)


class FileServer(QuicConnectionProtocol):
    """One connection whose requests are for files."""

    def __init__(self, *args: Any, www: Path, **options: Any) -> None:
        super().__init__(*args, **options)
        self._www = www.resolve()
        self._http: H0Connection | H3Connection | None = None
        self._sending: set[asyncio.Task[None]] = set()

    def quic_event_received(self, event: QuicEvent) -> None:
        """Begins a response for each request, and cancels all of them when the connection ends."""
        if isinstance(event, ProtocolNegotiated):
            is_http3 = event.alpn_protocol in H3_ALPN
            self._http = H3Connection(self._quic) if is_http3 else H0Connection(self._quic)
        elif isinstance(event, ConnectionTerminated):
            for task in self._sending:
                task.cancel()
        if self._http is None:
            return
        for http_event in self._http.handle_event(event):
            if isinstance(http_event, HeadersReceived):
                fields = dict(http_event.headers)
                path = fields.get(b":path", b"").decode("ascii", "replace")
                task = asyncio.ensure_future(self._answer(self._http, http_event.stream_id, path))
                self._sending.add(task)
                task.add_done_callback(self._sending.discard)
        self.transmit()

    async def _answer(self, http: H0Connection | H3Connection, stream_id: int, path: str) -> None:
        try:
            file = self._open(path)
        except OSError:
            # HTTP/0.9 has no status codes: the runner sees that the file is empty.
            http.send_headers(stream_id, [(b":status", b"404")], end_stream=True)
            self.transmit()
            return
        try:
            with file:
                http.send_headers(stream_id, [(b":status", b"200")])
                while chunk := file.read(CHUNK):
                    http.send_data(stream_id, chunk, end_stream=False)
                    self.transmit()
                    await self.drain(stream_id)
                http.send_data(stream_id, b"", end_stream=True)
                self.transmit()
        except ConnectionError:
            # The client has disconnected, or no longer wants the file.
            return

    def _open(self, path: str) -> BinaryIO:
        file = (self._www / unquote(path).split("?")[0].lstrip("/")).resolve()
        if not file.is_relative_to(self._www):
            raise PermissionError(f"{path} is outside of {self._www}")
        return open(file, "rb")
