"""The life of one connection: its handshake, its pings and its end, which are all that reaches Python as
events. Not here: what a program sees of it (``connection``); streams and datagrams, which are Rust's.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

from uringcore._uringcore import LoopCore, QuicStreams
from uringcore.asyncio.migration import Migrator
from uringcore.quic import events
from uringcore.quic.connection import QuicConnection
from uringcore.quic.errors import QuicError, error_from_event
from uringcore.quic.transport import QuicTransport
from uringcore.tls import SessionTicket

__all__ = ["Link"]


class Link:
    """What is between a ``QuicConnection`` and the program's ``Connection``.

    It takes the place of a protocol: the endpoint's transport is told to it. ``on_connected(link)`` is
    called when the handshake is complete.
    """

    def __init__(
        self,
        quic: QuicConnection,
        *,
        datagram_bytes: int,
        close_timeout: float,
        on_connected: Callable[[Link], None] | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.loop = loop
        self.quic = quic
        self.close_timeout = close_timeout
        self.completed: events.HandshakeCompleted | None = None
        self.session_ticket: SessionTicket | None = None
        self.closed = asyncio.Event()
        self.waits_for_socket = False
        self._on_connected = on_connected
        self._end: Callable[[], QuicError] | None = None
        self._transport: QuicTransport | None = None
        self._migrator = Migrator(loop, quic)
        self._pings: dict[int, asyncio.Future[None]] = {}
        self._flushes = not isinstance(loop, LoopCore)
        self._flush_is_due = False
        self.hub = QuicStreams(
            quic,
            loop.create_future,
            is_client=quic.configuration.is_client,
            datagram_bytes=datagram_bytes,
            transmit=self.transmit if self._flushes else None,
        )
        if quic.configuration.is_client:
            quic._set_credential_handlers(self._got_ticket, None)

    def connection_made(self, transport: QuicTransport) -> None:
        """The endpoint has this connection; from now on its events come here."""
        self._transport = transport
        self.quic._set_receiver(self._received)

    @property
    def transport(self) -> QuicTransport:
        assert self._transport is not None
        return self._transport

    @property
    def is_closed(self) -> bool:
        return self.closed.is_set()

    def transmit(self) -> None:
        """Sends what is queued, once in a turn; uringcore's own loop does that by itself."""
        if self._flushes and not self._flush_is_due and not self.loop.is_closed():
            self._flush_is_due = True
            self.loop.call_soon(self._flush)

    def close(self, code: int, reason: str) -> None:
        if self.is_closed or self.loop.is_closed():
            return
        self.quic.close(error_code=code, reason_phrase=reason)
        self.transmit()

    def close_about(self, code: int, frame_type: int, reason: str) -> None:
        """Closes it with an error of the transport's."""
        self.quic.close(error_code=code, frame_type=frame_type, reason_phrase=reason)
        self.transmit()

    async def wait_closed(self) -> None:
        """Until the connection is over. A client's socket lingers for a server that did not hear of the
        close, and nobody waits for that on our loop, unless the program chose the port and may want it
        again."""
        await self.closed.wait()
        is_client = self.quic.configuration.is_client
        if is_client and (self.waits_for_socket or not self.transport.lingers()):
            await self.transport.wait_closed()

    def error(self) -> QuicError:
        """What ended the connection."""
        assert self._end is not None
        return self._end()

    async def ping(self) -> None:
        if self._end is not None:
            raise self._end()
        waiter = self.loop.create_future()
        uid = id(waiter)
        self._pings[uid] = waiter
        self.quic.send_ping(uid)
        self.transmit()
        try:
            await waiter
        finally:
            self._pings.pop(uid, None)

    async def migrate(self, local_addr: tuple[str, int] | None, timeout: float) -> None:
        if not self.quic._path[1]:
            # The handshake is confirmed with the server's next packets.
            await self.ping()
        if self._end is not None:
            raise self._end()
        await self._migrator.migrate(self.transport, local_addr, timeout)

    def _flush(self) -> None:
        self._flush_is_due = False
        if self._transport is not None:
            self._transport.flush()

    def _got_ticket(self, ticket: SessionTicket) -> None:
        self.session_ticket = ticket

    def _received(self, received: list[Any]) -> None:
        for event in received:
            if self.quic._quic_logger is not None:
                self.quic._log(event)
            if isinstance(event, events.HandshakeCompleted):
                self._connected(event)
            elif isinstance(event, events.PingAcknowledged):
                waiter = self._pings.pop(event.uid, None)
                if waiter is not None and not waiter.done():
                    waiter.set_result(None)
            elif isinstance(event, events.MigrationFinished):
                self._migrator.finished(event)
            elif isinstance(event, events.ConnectionTerminated):
                self._terminated(event)

    def _connected(self, event: events.HandshakeCompleted) -> None:
        self.completed = event
        self.quic._completed = event
        on_connected, self._on_connected = self._on_connected, None
        if on_connected is not None:
            on_connected(self)

    def _terminated(self, event: events.ConnectionTerminated) -> None:
        address = self.quic.get_peer_address()
        peer = None if address is None else f"{address[0]} port {address[1]}"
        self._end = functools.partial(error_from_event, event, peer)
        is_applications = event.frame_type is None or event.kind == "peer_transport"
        is_orderly = event.error_code == 0 and is_applications
        self.hub.end(self._end, is_orderly)
        for waiter in self._pings.values():
            if not waiter.done():
                waiter.set_exception(self._end())
        self._pings.clear()
        self._migrator.terminated(self._transport, self._end())
        self._on_connected = None
        self.closed.set()
        if self._transport is not None and self.quic.configuration.is_client:
            # A client's socket is its connection's alone; it lingers as long as the server may ask.
            self._transport.close()
