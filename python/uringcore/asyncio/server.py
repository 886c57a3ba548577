"""``serve``: a QUIC server."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping
from typing import Any, cast

from uringcore.asyncio.protocol import QuicConnectionProtocol, QuicStreamHandler
from uringcore.quic._accept_settings import AcceptSettings, ServerFactory
from uringcore.quic._endpoint_transport import QuicTransport
from uringcore.quic._open_endpoint import open_server
from uringcore.quic.configuration import SMALLEST_MAX_DATAGRAM_SIZE, QuicConfiguration
from uringcore.quic.limits import RetryPolicy, ServerLimits
from uringcore.quic.sessions import _TicketCallbacks
from uringcore.quic.workers import PortWorker
from uringcore.tls import SessionTicketFetcher, SessionTicketHandler

__all__ = ["SMALLEST_MAX_DATAGRAM_SIZE", "QuicServer", "serve"]

_ProtocolClass = Callable[..., Any]


class QuicServer(asyncio.DatagramProtocol):
    """A listening endpoint, with the methods of an ``asyncio.Server``.

    To stop without interrupting clients: :meth:`close`, then await :meth:`wait_closed`, optionally with a
    timeout. ``async with`` closes everything at the end of the block.

    :func:`serve` makes one. It can also be the protocol of a program's own datagram transport,
    on any loop, as aioquic's can (packets then pass through Python)::

        await loop.create_datagram_endpoint(lambda: QuicServer(configuration=...), sock=sock)
    """

    def __init__(
        self,
        *,
        configuration: QuicConfiguration,
        create_protocol: _ProtocolClass | Mapping[str, _ProtocolClass] = QuicConnectionProtocol,
        session_ticket_fetcher: SessionTicketFetcher | None = None,
        session_ticket_handler: SessionTicketHandler | None = None,
        retry: RetryPolicy = "auto",
        stream_handler: QuicStreamHandler | None = None,
        limits: ServerLimits | None = None,
        workers: PortWorker | None = None,
    ) -> None:
        if configuration.is_client:
            raise ValueError("configuration: is_client must be false for a server")
        self._accept_settings = AcceptSettings(
            _with_handler(create_protocol, stream_handler),
            configuration,
            retry=retry,
            limits=limits,
            worker=workers,
            session_store=_ticket_store(session_ticket_fetcher, session_ticket_handler),
        )
        self._endpoint_transport: QuicTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called when the server's own datagram transport is open."""
        self._endpoint_transport = QuicTransport.over(
            asyncio.get_running_loop(),
            cast(asyncio.DatagramTransport, transport),
            self._accept_settings,
        )

    def datagram_received(self, data: bytes, addr: Any) -> None:
        """Handles a datagram of the server's own datagram transport."""
        self.transport.datagram_received(data, addr)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called when the server's own datagram transport is closed."""
        self.transport.connection_lost(exc)

    @property
    def sockname(self) -> tuple[str, int] | tuple[str, int, int, int]:
        """The address that the server is bound to: IP address and port, and two more fields for IPv6."""
        name: tuple[str, int] | tuple[str, int, int, int]
        name = self.transport.get_extra_info("sockname")
        return name

    @property
    def transport(self) -> QuicTransport:
        """The endpoint's transport."""
        if self._endpoint_transport is None:
            raise RuntimeError("the server is not bound yet")
        return self._endpoint_transport

    @property
    def _transport(self) -> QuicTransport | None:
        """The endpoint's transport, under aioquic's private name. ``None`` before it is made, as in
        aioquic."""
        return self._endpoint_transport

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop that the server runs on."""
        return self.transport._loop

    def is_serving(self) -> bool:
        """True if new connections are accepted."""
        return self.transport.is_serving()

    def close(self) -> None:
        """Refuses new connections (CONNECTION_REFUSED); open ones continue. One of several
        ``workers`` sends new clients to the next worker first, by a Retry.

        A handshake that waits for a session store was accepted, and counts as open. The socket is
        closed when the last connection has ended; await :meth:`wait_closed`. As with an
        ``asyncio.Server``, :meth:`close_clients` ends them.
        """
        self.transport.drain()

    def reload(self) -> None:
        """Applies the current configuration to new connections; open ones do not change.

        After a renewed certificate: ``configuration.load_cert_chain(...)``, ``server.reload()``;
        for several, ``configuration.named_certificates.clear()`` and ``add_certificate`` for each.
        Raises ``QuicConfigurationError`` and changes nothing if the configuration is invalid.
        """
        self.transport.reload()

    def close_clients(self, error_code: int = 0, reason_phrase: str = "") -> None:
        """Closes every connection with an application's error code; those whose handshake waits for
        a session store are refused."""
        self.transport.close_connections(error_code, reason_phrase)

    def stop_accepting(self) -> None:
        """Refuses new connections as :meth:`close` does, but keeps the socket open after the last connection
        has ended."""
        self.transport.stop_accepting()

    async def wait_closed(self, timeout: float | None = None) -> None:
        """Waits until, after :meth:`close`, every connection has ended and the socket is released.

        After ``timeout`` seconds the remaining connections are closed (application error code
        0), which takes at most three seconds more. Without a timeout the wait has no limit.
        """
        if timeout is not None:
            await asyncio.wait([self.transport._closed], timeout=timeout)
            self.transport.close()
        await self.transport.wait_closed()

    def stats(self) -> dict[str, int]:
        """Counters of the endpoint."""
        return self.transport.stats()

    async def __aenter__(self) -> QuicServer:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.transport.close()
        await self.wait_closed()


async def serve(
    host: str,
    port: int,
    *,
    configuration: QuicConfiguration,
    create_protocol: _ProtocolClass | Mapping[str, _ProtocolClass] = QuicConnectionProtocol,
    session_ticket_fetcher: SessionTicketFetcher | None = None,
    session_ticket_handler: SessionTicketHandler | None = None,
    retry: RetryPolicy = "auto",
    stream_handler: QuicStreamHandler | None = None,
    reuse_port: bool | None = None,
    limits: ServerLimits | None = None,
    workers: PortWorker | None = None,
) -> QuicServer:
    """Starts a QUIC server on ``host`` and ``port`` and returns it.

    ``create_protocol(quic, stream_handler=...)`` makes each connection's protocol. A mapping such as
    ``{"h3": Http3, "hq-interop": Http09}`` serves several application protocols on one port: the
    one negotiated by ALPN selects the factory. If ``alpn_protocols`` is not set in the configuration, the
    mapping's order is the server's order of preference.

    ``stream_handler(reader, writer)`` (a function or a coroutine function) is called for each
    stream that a client opens. ``retry`` sets when clients must prove their address first (RFC 9000
    section 8.1.2): ``True`` always, ``False`` never, ``"auto"`` under load.

    ``limits`` is a :class:`~uringcore.quic.limits.ServerLimits`: the number of connections, in total
    and from one address, their rate, and the answer to excess clients.

    ``reuse_port`` lets sockets of several programs bind the port. For several processes of one
    server, pass each its part of a :class:`~uringcore.quic.workers.PortGroup` as ``workers``; it contains
    the socket, and ``host`` and ``port`` are not used.

    ``session_ticket_handler`` is called with each ticket that a client gets, and
    ``session_ticket_fetcher`` with the bytes of a ticket from a client: it returns the ticket, once,
    or ``None``. With them 0-RTT data is accepted, unless ``configuration.early_data`` is false. Without
    them sessions are kept in ``configuration.session_store``.

    Raises ``QuicConfigurationError`` naming the field, and ``OSError`` if the address cannot be
    bound.
    """
    server = QuicServer(
        configuration=configuration,
        create_protocol=create_protocol,
        session_ticket_fetcher=session_ticket_fetcher,
        session_ticket_handler=session_ticket_handler,
        retry=retry,
        stream_handler=stream_handler,
        limits=limits,
        workers=workers,
    )
    server._endpoint_transport = await open_server(
        asyncio.get_running_loop(),
        server._accept_settings,
        (host, port) if workers is None else None,
        sock=None if workers is None else workers.socket.dup(),
        reuse_port=reuse_port,
    )
    return server


def _ticket_store(
    fetcher: SessionTicketFetcher | None, handler: SessionTicketHandler | None
) -> _TicketCallbacks | None:
    return _TicketCallbacks(fetcher, handler) if fetcher or handler else None


def _with_handler(
    create: _ProtocolClass | Mapping[str, _ProtocolClass], stream_handler: QuicStreamHandler | None
) -> ServerFactory:
    """Returns the factories in the form that the endpoint calls."""
    if isinstance(create, Mapping):
        return {
            name: functools.partial(one, stream_handler=stream_handler)
            for name, one in create.items()
        }
    return functools.partial(create, stream_handler=stream_handler)
