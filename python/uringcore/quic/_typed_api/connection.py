"""``Connection``: the program's object of a QUIC connection. Its streams and datagrams are in Rust."""

from __future__ import annotations

from typing import cast

from uringcore._uringcore import ConnectionBase
from uringcore.quic._close_argument_checks import check_close

# `sendfile` is imported here because the core calls it for streams, and a running loop imports no modules.
from uringcore.quic._typed_api import sendfile as sendfile
from uringcore.quic._typed_api.await_and_async_with import DeliveredOnExit
from uringcore.quic._typed_api.connection_event_dispatch import ConnectionProtocol
from uringcore.quic._typed_api.unclosed_objects import end_forgotten, made_at
from uringcore.quic.stats import QuicConnectionStats
from uringcore.tls import AddressToken, SessionTicket

__all__ = ["Connection"]


class Connection(DeliveredOnExit, ConnectionBase):
    """A connection, which :func:`~uringcore.quic.connect` and a listener make.

    ``async with connection:`` closes it at the end of the block. If the block ends without an exception, it
    waits first until the peer has acknowledged the data that was finished on streams, ``close_timeout``
    seconds at most; after an exception it closes at once.

    An unreferenced connection is closed when it is collected.
    """

    _link: ConnectionProtocol
    _origin: str | None

    def __new__(cls, link: ConnectionProtocol) -> Connection:
        """Only ``connect`` and ``Listener.accept`` make connections, so the constructor is not for
        programs."""
        self = super().__new__(cls, link.manager)
        self._link = link
        self._origin = made_at(link.loop)
        return self

    @property
    def alpn(self) -> str | None:
        """The application protocol that both sides have agreed on. ``None`` if they have not."""
        return self._link.quic.alpn_protocol

    @property
    def peer_address(self) -> tuple[str, int]:
        """The last address and port that the peer has proved (RFC 9000 sections 8 and 9.3).

        They change when the peer moves to another network, once it has answered from there.
        """
        address = self._link.quic.get_peer_address()
        return str(address[0]), int(address[1])

    @property
    def local_address(self) -> tuple[str, int]:
        """The address and port of the socket."""
        name = self._link.transport.get_extra_info("sockname")
        return str(name[0]), int(name[1])

    @property
    def peer_certificate(self) -> bytes | None:
        """The peer's certificate in DER, or ``None`` if it has sent none."""
        chain = self.peer_certificates
        return chain[0] if chain else None

    @property
    def peer_certificates(self) -> list[bytes]:
        """The peer's certificate and the issuers' certificates that it has sent, in DER."""
        return self._link.quic.get_peer_certificates()

    @property
    def server_name(self) -> str | None:
        """The server name that the client has requested."""
        return self._link.quic.server_name

    @property
    def is_resumed(self) -> bool:
        """True if an earlier session was resumed."""
        completed = self._link.completed
        return completed is not None and bool(completed.session_resumed)

    @property
    def early_data(self) -> bool:
        """True if the server accepted 0-RTT data, which the client sent before the handshake was complete. An
        attacker can replay it (RFC 9001 section 9.2), so a server must only act on it if a repetition is
        harmless, or wait for :meth:`wait_connected`. False until the outcome is known.
        """
        return self._link.early_data

    @property
    def session_ticket(self) -> SessionTicket | None:
        """The newest ticket that the server has sent, for ``ClientConfig.session_ticket`` of a later
        connection. It comes a while after the handshake."""
        return self._link.session_ticket

    @property
    def address_token(self) -> AddressToken | None:
        """The newest token that the server has sent, for ``ClientConfig.address_token`` of a later
        connection (RFC 9000 section 8.1.3). It comes a while after the handshake."""
        return self._link.address_token

    @property
    def version(self) -> int | None:
        """The QUIC version of the connection. ``None`` before the version is decided."""
        return self._link.quic.version

    @property
    def is_closed(self) -> bool:
        """True if the connection has ended."""
        return self._link.is_closed

    def stats(self) -> QuicConnectionStats:
        """Counters and estimates; :class:`~uringcore.quic.stats.QuicConnectionStats` names them."""
        return cast(QuicConnectionStats, self._link.quic.stats())

    async def wait_connected(self) -> None:
        """Waits until the handshake is complete. Without early data it already is.

        Raises the handshake's error, as :func:`~uringcore.quic.connect` does. Raises nothing if the
        connection has ended since.
        """
        await self._link.wait_connected()

    async def ping(self) -> None:
        """Waits until the peer has answered a PING.

        Raises the connection's error if the connection ends first.
        """
        await self._link.ping()

    async def migrate(
        self, local_address: tuple[str, int] | None = None, *, timeout: float = 3.0
    ) -> None:
        """Moves a client's connection to another network: to a new socket bound to ``local_address``, or to
        an address of the system's choice (RFC 9000 section 9).

        Returns when the server has answered there. If it does not answer within ``timeout`` seconds, the
        connection returns to its old socket, and ``TimeoutError`` is raised. Raises ``RuntimeError`` on a
        server, if the server forbids migration, and during another migration; ``OSError`` if the address
        cannot be bound; and the connection's error if the connection ends.
        """
        await self._link.migrate(local_address, timeout)

    def close(self, code: int = 0, reason: str = "") -> None:
        """Closes the connection at once, with an application's error code and a reason.

        Queued data that is not yet sent is dropped: see :meth:`wait_delivered`. A second close does nothing.

        Raises ``ValueError`` for a code that does not fit in 62 bits, and then nothing is closed.
        """
        check_close(code, reason)
        self._link.close(code, reason)

    async def wait_closed(self) -> None:
        """Waits until the connection has ended, for any reason; never raises the reason."""
        await self._link.wait_closed()

    @property
    def _close_timeout(self) -> float:
        return self._link.close_timeout

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "open"
        try:
            address = self._link.quic.get_peer_address()
        except RuntimeError:
            # The repr may be called in another thread than the loop's, which alone may read the address.
            address = None
        return f"<{type(self).__name__} {state} peer={address}>"

    def __del__(self) -> None:
        link = self._link
        if not link.is_closed and not link.loop.is_closed():
            end_forgotten("connection", self, self._origin, link.loop, link.close, 0, "")
