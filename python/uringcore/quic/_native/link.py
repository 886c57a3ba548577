"""The life of one connection: its handshake, its pings and its end, which are all that reaches Python as
events. Not here: what a program sees of it (``connection``); streams and datagrams, which are Rust's.

:class:`Life` is that of any connection, :class:`Link` of one whose streams are the program's own.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Callable
from typing import Any

from uringcore._uringcore import LoopCore, QuicStreams
from uringcore.quic import events
from uringcore.quic._errors import QuicError, error_from_event
from uringcore.quic._migration import Migrator
from uringcore.quic._native.origin import made_at
from uringcore.quic._transport import QuicTransport
from uringcore.quic.connection import QuicConnection
from uringcore.tls import AddressToken, SessionTicket

__all__ = ["Life", "Link"]


class Life:
    """What is between a ``QuicConnection`` and whoever has it.

    It takes the place of a protocol: the endpoint's transport is told to it. A server has thousands of
    them that do nothing: what few ever need is made when it is.
    """

    __slots__ = (
        "_end",
        "_flush_is_due",
        "_flushes",
        "_migrator",
        "_transport",
        "_waiting",
        "address_token",
        "close_timeout",
        "completed",
        "loop",
        "quic",
        "session_ticket",
        "waits_for_socket",
    )

    def __init__(self, quic: QuicConnection, *, close_timeout: float) -> None:
        loop = asyncio.get_running_loop()
        self.loop: asyncio.AbstractEventLoop = loop
        self.quic: QuicConnection = quic
        self.close_timeout: float = close_timeout
        self.completed: events.HandshakeCompleted | None = None
        self.session_ticket: SessionTicket | None = None
        self.address_token: AddressToken | None = None
        self.waits_for_socket: bool = False
        self._end: Callable[[], QuicError] | None = None
        self._transport: QuicTransport | None = None
        self._migrator: Migrator | None = None
        # Who waits, and for what: the handshake, the end, or the PING of a number to be answered.
        self._waiting: dict[asyncio.Future[None], str | int] | None = None
        self._flushes = not isinstance(loop, LoopCore)
        self._flush_is_due = False
        if quic.configuration.is_client:
            quic._set_credential_handlers(self._got_ticket, self._got_token)

    def connection_made(self, transport: QuicTransport) -> None:
        """The endpoint has this connection; from now on its events come here."""
        self._transport = transport
        self.quic._set_receiver(self._received)

    def connect(self, address: Any) -> None:
        """Begins the handshake; what is said in the same turn leaves with it."""
        self.quic.connect(address, now=self.loop.time())
        self.transmit()

    @property
    def transport(self) -> QuicTransport:
        assert self._transport is not None
        return self._transport

    @property
    def is_closed(self) -> bool:
        return self._end is not None

    @property
    def early_data(self) -> bool:
        if self.completed is None:
            return self.quic._reads_early_data
        return bool(self.completed.early_data_accepted)

    async def wait_connected(self) -> None:
        if self.completed is not None:
            return
        if self._end is not None:
            raise self._end()
        await self._wait_for(_CONNECTED)

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
        if self._end is None:
            await self._wait_for(_CLOSED)
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
        uid = next(_ping_numbers)
        self.quic.send_ping(uid)
        self.transmit()
        await self._wait_for(uid)

    async def migrate(self, local_addr: tuple[str, int] | None, timeout: float) -> None:
        if not self.quic._path[1]:
            # The handshake is confirmed with the server's next packets.
            await self.ping()
        if self._end is not None:
            raise self._end()
        if self._migrator is None:
            self._migrator = Migrator(self.loop, self.quic)
        await self._migrator.migrate(self.transport, local_addr, timeout)

    async def _wait_for(self, what: str | int) -> None:
        if self._waiting is None:
            self._waiting = {}
        waiting, waiter = self._waiting, self.loop.create_future()
        waiting[waiter] = what
        try:
            await waiter
        finally:
            del waiting[waiter]

    def _wake(self, what: str | int) -> None:
        for waiter, awaited in (self._waiting or {}).items():
            if awaited == what and not waiter.done():
                waiter.set_result(None)

    def _flush(self) -> None:
        self._flush_is_due = False
        if self._transport is not None:
            self._transport.flush()

    def _got_ticket(self, ticket: SessionTicket) -> None:
        self.session_ticket = ticket

    def _got_token(self, token: AddressToken) -> None:
        self.address_token = token

    def _received(self, received: list[Any]) -> None:
        for event in received:
            if self.quic._quic_logger is not None:
                self.quic._log(event)
            if isinstance(event, events.HandshakeCompleted):
                self._connected(event)
            elif isinstance(event, events.ProtocolNegotiated):
                if self.quic._reads_early_data and self.quic._validated_address() is not None:
                    # There is something to answer already (RFC 9001 section 4.6.1), to a client that a token
                    # proves to be where it says. One that only says so waits for the handshake.
                    self._usable()
            elif isinstance(event, events.PingAcknowledged):
                self._wake(event.uid)
            elif isinstance(event, events.MigrationFinished):
                assert self._migrator is not None
                self._migrator.finished(event)
            elif isinstance(event, events.ConnectionTerminated):
                self._terminated(event)

    def _connected(self, event: events.HandshakeCompleted) -> None:
        self.completed = event
        self.quic._completed = event
        self._wake(_CONNECTED)
        self._usable()

    def _usable(self) -> None:
        """The handshake is complete, or early data can be answered; told twice where both are so."""

    def _terminated(self, event: events.ConnectionTerminated) -> None:
        address = self.quic.get_peer_address()
        peer = None if address is None else f"{address[0]} port {address[1]}"
        self._end = functools.partial(error_from_event, event, peer)
        is_applications = event.frame_type is None or event.kind == "peer_transport"
        is_orderly = event.error_code == 0 and is_applications
        self._over(self._end, is_orderly)
        for waiter, what in (self._waiting or {}).items():
            if what != _CLOSED and not waiter.done():
                waiter.set_exception(self._end())
        if self._migrator is not None:
            self._migrator.terminated(self._transport, self._end())
        self._wake(_CLOSED)
        if self._transport is not None and self.quic.configuration.is_client:
            # A client's socket is its connection's alone; it lingers as long as the server may ask.
            self._transport.close()

    def _over(self, make_error: Callable[[], QuicError], is_orderly: bool) -> None:
        """The connection is over, and ``make_error()`` says why."""


class Link(Life):
    """What is between a ``QuicConnection`` and the program's ``Connection``. ``on_connected(link)`` is
    called when the handshake is complete, or early data can be answered.
    """

    __slots__ = ("_on_connected", "manager")

    def __init__(
        self,
        quic: QuicConnection,
        *,
        datagram_bytes: int,
        close_timeout: float,
        drops_newest: bool = False,
        on_connected: Callable[[Link], None] | None = None,
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


_CONNECTED, _CLOSED = "connected", "closed"
# Of all connections together: few ever ping. One whose wait was cancelled may be answered all the same.
_ping_numbers = itertools.count()
