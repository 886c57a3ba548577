"""``serve``: a QUIC server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from uringcore.asyncio.protocol import QuicConnectionProtocol, QuicStreamHandler
from uringcore.quic.configuration import SMALLEST_MAX_DATAGRAM_SIZE, QuicConfiguration
from uringcore.quic.connection import QuicConnection
from uringcore.quic.endpoint import QuicTransport, create_quic_endpoint
from uringcore.quic.sessions import _TicketCallbacks
from uringcore.tls import SessionTicketFetcher, SessionTicketHandler

__all__ = ["SMALLEST_MAX_DATAGRAM_SIZE", "QuicServer", "serve"]


class QuicServer(asyncio.DatagramProtocol):
    """A listening endpoint, with the methods of an ``asyncio.Server``.

    To stop without cutting anybody off: :meth:`close`, then await :meth:`wait_closed`, with a time
    limit if there should be one. ``async with`` closes everything at the end of the block.

    :func:`serve` makes one. It can also be the protocol of a datagram transport of the program's
    own, on any loop, as aioquic's can (packets then pass through Python)::

        await loop.create_datagram_endpoint(lambda: QuicServer(configuration=...), sock=sock)
    """

    def __init__(
        self,
        *,
        configuration: QuicConfiguration,
        create_protocol: Callable[..., Any] = QuicConnectionProtocol,
        session_ticket_fetcher: SessionTicketFetcher | None = None,
        session_ticket_handler: SessionTicketHandler | None = None,
        retry: bool = False,
        stream_handler: QuicStreamHandler | None = None,
    ) -> None:
        if configuration.is_client:
            raise ValueError("configuration: is_client must be false for a server")
        self._session_store = _ticket_store(session_ticket_fetcher, session_ticket_handler)
        self._configuration = configuration
        self._create_protocol = create_protocol
        self._retry = retry
        self._stream_handler = stream_handler
        self._endpoint_transport: QuicTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The server's own datagram transport is open."""
        self._endpoint_transport = QuicTransport.over(
            asyncio.get_running_loop(),
            cast(asyncio.DatagramTransport, transport),
            self._factory,
            configuration=self._configuration,
            retry=self._retry,
            session_store=self._session_store,
        )

    def datagram_received(self, data: bytes, addr: Any) -> None:
        """A datagram on the server's own datagram transport."""
        self.transport.datagram_received(data, addr)

    def connection_lost(self, exc: Exception | None) -> None:
        """The server's own datagram transport is closed."""
        self.transport.connection_lost(exc)

    def _factory(self, quic: QuicConnection) -> Any:
        return self._create_protocol(quic, stream_handler=self._stream_handler)

    @property
    def sockname(self) -> Any:
        """The address that the server is bound to."""
        return self.transport.get_extra_info("sockname")

    @property
    def transport(self) -> QuicTransport:
        """The endpoint's transport."""
        if self._endpoint_transport is None:
            raise RuntimeError("the server is not bound yet")
        return self._endpoint_transport

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop that the server runs on."""
        return self.transport._loop

    def is_serving(self) -> bool:
        """Whether new connections are accepted."""
        return self.transport.is_serving()

    def close(self) -> None:
        """Refuses new connections (CONNECTION_REFUSED); those that are open go on.

        The socket is closed when the last of them has ended; await :meth:`wait_closed`. As with an
        ``asyncio.Server``, :meth:`close_clients` ends them.
        """
        self.transport.drain()

    def reload(self) -> None:
        """Takes up the configuration as it is now, for new connections; open ones go on as they are.

        After a renewed certificate: ``configuration.load_cert_chain(...)``, ``server.reload()``.
        Raises ``QuicConfigurationError``, and then nothing has changed.
        """
        self.transport.reload()

    def close_clients(self, error_code: int = 0, reason_phrase: str = "") -> None:
        """Closes every connection with an application's error code."""
        self.transport.close_connections(error_code, reason_phrase)

    def stop_accepting(self) -> None:
        """Refuses new connections, as :meth:`close`, but keeps the socket open without any."""
        self.transport.stop_accepting()

    async def wait_closed(self, timeout: float | None = None) -> None:
        """Waits until, after :meth:`close`, every connection has ended and the socket is released.

        After ``timeout`` seconds the connections that are left are closed (application error code
        0), and the end takes at most three seconds more. Without one it takes as long as they do.
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
    create_protocol: Callable[..., Any] = QuicConnectionProtocol,
    session_ticket_fetcher: SessionTicketFetcher | None = None,
    session_ticket_handler: SessionTicketHandler | None = None,
    retry: bool = False,
    stream_handler: QuicStreamHandler | None = None,
    reuse_port: bool | None = None,
) -> QuicServer:
    """Starts a QUIC server on ``host`` and ``port`` and returns it.

    ``create_protocol(quic, stream_handler=...)`` makes each connection's protocol;
    ``stream_handler(reader, writer)`` (a function or a coroutine function) is called for each
    stream that a client opens. ``retry`` validates every client's address before anything else
    (RFC 9000 section 8.1.2). ``reuse_port`` is ours: several processes may share the port.

    ``session_ticket_handler`` is called with each ticket that a client gets, and
    ``session_ticket_fetcher`` with the bytes of one that a client shows: it returns the ticket, once,
    or ``None``. With them 0-RTT data is read, unless ``configuration.early_data`` is false. Without
    them sessions are kept in ``configuration.session_store``.

    Raises ``QuicConfigurationError`` naming the field, and ``OSError`` when the address cannot be
    bound.
    """
    server = QuicServer(
        configuration=configuration,
        create_protocol=create_protocol,
        session_ticket_fetcher=session_ticket_fetcher,
        session_ticket_handler=session_ticket_handler,
        retry=retry,
        stream_handler=stream_handler,
    )
    server._endpoint_transport, _ = await create_quic_endpoint(
        asyncio.get_running_loop(),
        server._factory,
        (host, port),
        configuration=configuration,
        reuse_port=reuse_port,
        retry=retry,
        session_store=server._session_store,
    )
    return server


def _ticket_store(
    fetcher: SessionTicketFetcher | None, handler: SessionTicketHandler | None
) -> _TicketCallbacks | None:
    return _TicketCallbacks(fetcher, handler) if fetcher or handler else None
