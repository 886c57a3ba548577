"""The interoperability runner's client: fetches files over HTTP/0.9 or HTTP/3 and stores them."""

from __future__ import annotations

import asyncio
import functools
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import SplitResult, urlsplit

from examples.interop.cases import Case
from uringcore.asyncio import QuicConnectionProtocol, connect
from uringcore.h0.connection import H0_ALPN, H0Connection
from uringcore.h3.connection import H3_ALPN, H3Connection
from uringcore.h3.events import DataReceived, HeadersReceived
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.events import (
    ConnectionTerminated,
    HandshakeCompleted,
    QuicEvent,
    StreamReset,
)
from uringcore.quic.packet import QuicProtocolVersion
from uringcore.tls import CipherSuite, SessionTicket

__all__ = ["InteropError", "configure", "run"]

TICKET_SECONDS = 10.0
"How long a first connection waits for a ticket that has not come with the files."


class InteropError(Exception):
    """A case did not proceed as required."""


def configure(case: Case, authority: Path | None) -> QuicConfiguration:
    """Returns a client's configuration for ``case``. Without an authority it accepts any
    certificate.
    """
    configuration = QuicConfiguration(
        is_client=True, alpn_protocols=[*H3_ALPN] if case.http3 else [*H0_ALPN]
    )
    if authority is None:
        configuration.verify_mode = 0
    else:
        configuration.load_verify_locations(str(authority))
    if case.chacha20:
        configuration.cipher_suites = [CipherSuite.CHACHA20_POLY1305_SHA256]
    if case.version_2:
        configuration.original_version = (
            QuicProtocolVersion.VERSION_2 if case.version_2_first else QuicProtocolVersion.VERSION_1
        )
        configuration.supported_versions = [
            QuicProtocolVersion.VERSION_2,
            QuicProtocolVersion.VERSION_1,
        ]
    return configuration


async def run(
    case: Case, configuration: QuicConfiguration, requests: list[str], downloads: Path
) -> None:
    """Fetches the URLs ``requests`` into the folder ``downloads``, as ``case`` requires.

    Raises :class:`InteropError` or ``ConnectionError`` if a requirement of the case is not met.
    """
    urls = [urlsplit(request) for request in requests]
    if not urls:
        raise InteropError("REQUESTS is empty")
    if case.each:
        for url in urls:
            await _session(case, configuration, [url], downloads)
    elif case.resume:
        configuration.session_ticket = await _session(case, configuration, urls[:1], downloads)
        if configuration.session_ticket is None:
            raise InteropError("the server gave no session ticket")
        await _session(case, configuration, urls[1:], downloads)
    else:
        await _session(case, configuration, urls, downloads)


async def _session(
    case: Case, configuration: QuicConfiguration, urls: list[SplitResult], downloads: Path
) -> SessionTicket | None:
    """Runs one connection. Returns the session's ticket if the case resumes."""
    resuming = configuration.session_ticket is not None
    ticket: asyncio.Future[SessionTicket] = asyncio.get_running_loop().create_future()

    def keep(found: SessionTicket) -> None:
        if not ticket.done():
            ticket.set_result(found)

    async with _connected(case, configuration, urls[0], keep if case.resume else None) as client:
        client.begin(case)
        wanted = [client.fetch(url, downloads) for url in urls]
        await asyncio.gather(*wanted)
        if client.migration is not None:
            await client.migration
        handshake = await client.handshake
        if resuming and not handshake.session_resumed:
            raise InteropError("the second connection was not resumed")
        if resuming and case.early and not handshake.early_data_accepted:
            raise InteropError("the server did not accept 0-RTT")
        if case.resume and not resuming:
            return await asyncio.wait_for(ticket, TICKET_SECONDS)
    return None


def _connected(
    case: Case, configuration: QuicConfiguration, url: SplitResult, keep_ticket: Any
) -> AbstractAsyncContextManager[FileClient]:
    early = case.early and configuration.session_ticket is not None
    return connect(
        url.hostname or "",
        url.port or 443,
        configuration=configuration,
        create_protocol=functools.partial(FileClient, http3=case.http3),
        session_ticket_handler=keep_ticket,
        wait_connected=not early,
    )


def _created(path: Path) -> BinaryIO:
    return open(path, "wb")


@dataclass
class _Download:
    file: BinaryIO
    done: asyncio.Future[None]
    status: bytes | None = None


class FileClient(QuicConnectionProtocol):
    """One connection that fetches files."""

    def __init__(self, *args: Any, http3: bool, **options: Any) -> None:
        super().__init__(*args, **options)
        self.handshake: asyncio.Future[HandshakeCompleted] = (
            asyncio.get_running_loop().create_future()
        )
        self._http3 = http3
        self._http: H0Connection | H3Connection | None = None
        self._downloads: dict[int, _Download] = {}
        self._update_keys = False
        self._migrate = False
        self.migration: asyncio.Task[None] | None = None
        self._ended: ConnectionTerminated | None = None

    def begin(self, case: Case) -> None:
        """Opens HTTP. With 0-RTT this happens before the handshake, with the protocol that the
        client offers.
        """
        if self._http is None:
            self._http = H3Connection(self._quic) if self._http3 else H0Connection(self._quic)
        self._update_keys = case.key_update
        self._migrate = case.migrate

    async def fetch(self, url: SplitResult, downloads: Path) -> None:
        """Writes the content of ``url`` to a file of that name. Raises ``ConnectionError``."""
        if self._http is None or self._ended is not None:
            raise ConnectionError("the connection is not open")
        path = url.path or "/"
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        stream_id = self._quic.get_next_available_stream_id()
        with _created(downloads / path.rpartition("/")[2]) as file:
            self._downloads[stream_id] = _Download(file, done)
            fields = [
                (b":method", b"GET"),
                (b":scheme", b"https"),
                (b":authority", url.netloc.encode()),
                (b":path", path.encode()),
            ]
            self._http.send_headers(stream_id, fields, end_stream=True)
            self.transmit()
            await done

    def quic_event_received(self, event: QuicEvent) -> None:
        """Passes received data to its download."""
        if isinstance(event, HandshakeCompleted):
            self.handshake.set_result(event)
        elif isinstance(event, ConnectionTerminated):
            self._fail_downloads(event)
        elif isinstance(event, StreamReset):
            self._finish_download(
                event.stream_id, ConnectionError(f"reset with {event.error_code:#x}")
            )
        if self._http is None:
            return
        for http_event in self._http.handle_event(event):
            if not isinstance(http_event, HeadersReceived | DataReceived):
                continue
            download = self._downloads.get(http_event.stream_id)
            if download is None:
                continue
            if isinstance(http_event, DataReceived):
                download.file.write(http_event.data)
                if self._update_keys:
                    self._update_keys = False
                    self.request_key_update()
                if self._migrate:
                    self._migrate = False
                    self.migration = asyncio.ensure_future(self.migrate())
            else:
                download.status = dict(http_event.headers).get(b":status")
            if http_event.stream_ended:
                refused = self._http3 and download.status != b"200"
                error = ConnectionError(f"status {download.status!r}") if refused else None
                self._finish_download(http_event.stream_id, error)

    def _fail_downloads(self, event: ConnectionTerminated) -> None:
        self._ended = event
        error = ConnectionError(
            f"the connection ended: {event.error_code:#x} {event.reason_phrase}"
        )
        if not self.handshake.done():
            # The handshake may have no waiter: a cancelled future logs no unretrieved exception.
            self.handshake.cancel()
        for stream_id in list(self._downloads):
            self._finish_download(stream_id, error)

    def _finish_download(self, stream_id: int, error: Exception | None) -> None:
        download = self._downloads.pop(stream_id, None)
        if download is None or download.done.done():
            return
        if error is None:
            download.done.set_result(None)
        else:
            download.done.set_exception(error)
