"""Passes the events of a connection to the program's object. Not here: the program's object (``connection``);
the handshake, the pings and the end (:mod:`uringcore.quic._connection_lifecycle`); streams and datagrams,
which are in Rust.

:class:`BaseConnectionProtocol` serves any typed connection, :class:`ConnectionProtocol` one whose streams
belong to the program.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from uringcore._uringcore import LoopCore, QuicStreams
from uringcore.quic import events
from uringcore.quic._connection_lifecycle import ConnectionLife
from uringcore.quic._endpoint_transport import QuicTransport
from uringcore.quic._errors import QuicError
from uringcore.quic._typed_api.unclosed_objects import made_at
from uringcore.quic.connection import QuicConnection
from uringcore.tls import AddressToken, SessionTicket

__all__ = ["BaseConnectionProtocol", "ConnectionProtocol"]


class BaseConnectionProtocol(ConnectionLife):
    """Connects a ``QuicConnection`` with its user. It is the protocol of the endpoint's transport."""

    __slots__ = (
        "_flush_is_due",
        "_flushes",
        "_transport",
        "address_token",
        "close_timeout",
        "session_ticket",
        "waits_for_socket",
    )

    def __init__(self, quic: QuicConnection, *, close_timeout: float) -> None:
        super().__init__(quic)
        self.close_timeout: float = close_timeout
        self.session_ticket: SessionTicket | None = None
        self.address_token: AddressToken | None = None
        self.waits_for_socket: bool = False
        self._transport: QuicTransport | None = None
        self._flushes = not isinstance(self.loop, LoopCore)
        self._flush_is_due = False
        if quic.configuration.is_client:
            quic._set_credential_handlers(self._got_ticket, self._got_token)

    def connection_made(self, transport: QuicTransport) -> None:
        """The endpoint has created this connection, and passes the connection's events to this object from
        now on."""
        self._transport = transport
        self.opened(transport, transport.flush if self._flushes else None)
        self.quic._set_receiver(self._received)

    def connect(self, address: Any) -> None:
        """Begins the handshake. Data that is sent in the same loop iteration leaves together with the first
        packets."""
        self.quic.connect(address, now=self.loop.time())
        self.transmit()

    @property
    def transport(self) -> QuicTransport:
        assert self._transport is not None
        return self._transport

    @property
    def early_data(self) -> bool:
        if self.completed is None:
            return self.quic._reads_early_data
        return bool(self.completed.early_data_accepted)

    def transmit(self) -> None:
        """Sends queued data, once in a loop iteration; uringcore's own loop does that automatically."""
        if self._flushes and not self._flush_is_due and not self.loop.is_closed():
            self._flush_is_due = True
            self.loop.call_soon(self._flush_now)

    def close(self, code: int, reason: str) -> None:
        if self.is_closed or self.loop.is_closed():
            return
        self.quic.close(error_code=code, reason_phrase=reason)
        self.transmit()

    def close_about(self, code: int, frame_type: int, reason: str) -> None:
        """Closes the connection with a transport error."""
        self.quic.close(error_code=code, frame_type=frame_type, reason_phrase=reason)
        self.transmit()

    async def wait_closed(self) -> None:
        """Waits until the connection has ended. A client's socket lingers for a server that did not get the
        close. On uringcore's loop this does not wait for the socket, unless the program chose the port and
        may want it again.
        """
        await self.wait_ended()
        is_client = self.quic.configuration.is_client
        if is_client and (self.waits_for_socket or not self.transport.lingers()):
            await self.transport.wait_closed()

    def _flush_now(self) -> None:
        self._flush_is_due = False
        if self._transport is not None:
            self.flush()

    def _got_ticket(self, ticket: SessionTicket) -> None:
        self.session_ticket = ticket

    def _got_token(self, token: AddressToken) -> None:
        self.address_token = token

    def _received(self, received: list[Any]) -> None:
        for event in received:
            if self.quic._quic_logger is not None:
                self.quic._log(event)
            if isinstance(event, events.HandshakeCompleted):
                self.handshake_completed(event)
                self._usable()
            elif isinstance(event, events.ProtocolNegotiated):
                if self.quic._reads_early_data and self.quic._validated_address() is not None:
                    # Early data can be answered already (RFC 9001 section 4.6.1), if a token proves the
                    # client's address. Otherwise the connection waits for the handshake.
                    self._usable()
            elif isinstance(event, events.PingAcknowledged):
                self.ping_acknowledged(event)
            elif isinstance(event, events.MigrationFinished):
                self.migration_finished(event)
            elif isinstance(event, events.ConnectionTerminated):
                self._terminated(event)

    def _usable(self) -> None:
        """Called when early data can be answered, and again when the handshake is complete."""

    def _terminated(self, event: events.ConnectionTerminated) -> None:
        self.terminated(event)
        is_applications = event.frame_type is None or event.kind == "peer_transport"
        is_orderly = event.error_code == 0 and is_applications
        # `terminated` has set the error. The ended connection does not reference this object any more.
        assert self._end is not None
        self._over(self._end, is_orderly)
        if self._transport is not None and self.quic.configuration.is_client:
            # A client's socket belongs to its connection alone. It stays open for a while, because the server
            # may repeat packets.
            self._transport.close()

    def _over(self, make_error: Callable[[], QuicError], is_orderly: bool) -> None:
        """Handles the end of the connection. ``make_error()`` makes the exception for waiting calls."""


class ConnectionProtocol(BaseConnectionProtocol):
    """Connects a ``QuicConnection`` with the program's ``Connection``. ``on_connected(link)`` is called
    when the handshake is complete, or early data can be answered.
    """

    __slots__ = ("_on_connected", "manager")

    def __init__(
        self,
        quic: QuicConnection,
        *,
        datagram_bytes: int,
        close_timeout: float,
        drops_newest: bool = False,
        on_connected: Callable[[ConnectionProtocol], None] | None = None,
    ) -> None:
        super().__init__(quic, close_timeout=close_timeout)
        self._on_connected = on_connected
        loop = self.loop
        self.manager: QuicStreams = QuicStreams(
            quic,
            loop.create_future,
            is_client=quic.configuration.is_client,
            datagram_bytes=datagram_bytes,
            drops_newest=drops_newest,
            transmit=self.transmit if self._flushes else None,
            made_at=functools.partial(made_at, loop) if loop.get_debug() else None,
        )

    def _usable(self) -> None:
        on_connected, self._on_connected = self._on_connected, None
        if on_connected is not None:
            on_connected(self)

    def _over(self, make_error: Callable[[], QuicError], is_orderly: bool) -> None:
        self.manager.end(make_error, is_orderly)
        self._on_connected = None
