"""``connect``: a QUIC client as an asynchronous context manager."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar, overload

from uringcore.asyncio.protocol import QuicConnectionProtocol, QuicStreamHandler
from uringcore.quic._endpoint_transport import QuicTransport
from uringcore.quic._happy_eyeballs import ATTEMPT_DELAY, interleaved
from uringcore.quic._host_argument_checks import check_bound, check_target, server_name_of
from uringcore.quic._open_endpoint import begin_at, connect_first
from uringcore.quic._udp_sockets import resolve
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.connection import QuicConnection, QuicTokenHandler
from uringcore.tls import SessionTicketHandler

__all__ = ["connect"]

_Protocol = TypeVar("_Protocol", bound=QuicConnectionProtocol)


@overload
def connect(
    host: str,
    port: int,
    *,
    configuration: QuicConfiguration | None = None,
    create_protocol: Callable[..., _Protocol],
    session_ticket_handler: SessionTicketHandler | None = None,
    stream_handler: QuicStreamHandler | None = None,
    token_handler: QuicTokenHandler | None = None,
    wait_connected: bool = True,
    local_port: int = 0,
    local_host: str | None = None,
    happy_eyeballs_delay: float | None = ATTEMPT_DELAY,
) -> AbstractAsyncContextManager[_Protocol]: ...


@overload
def connect(
    host: str,
    port: int,
    *,
    configuration: QuicConfiguration | None = None,
    session_ticket_handler: SessionTicketHandler | None = None,
    stream_handler: QuicStreamHandler | None = None,
    token_handler: QuicTokenHandler | None = None,
    wait_connected: bool = True,
    local_port: int = 0,
    local_host: str | None = None,
    happy_eyeballs_delay: float | None = ATTEMPT_DELAY,
) -> AbstractAsyncContextManager[QuicConnectionProtocol]: ...


@asynccontextmanager
async def connect(
    host: str,
    port: int,
    *,
    configuration: QuicConfiguration | None = None,
    create_protocol: Callable[..., Any] = QuicConnectionProtocol,
    session_ticket_handler: SessionTicketHandler | None = None,
    stream_handler: QuicStreamHandler | None = None,
    token_handler: QuicTokenHandler | None = None,
    wait_connected: bool = True,
    local_port: int = 0,
    local_host: str | None = None,
    happy_eyeballs_delay: float | None = ATTEMPT_DELAY,
) -> AsyncGenerator[Any, None]:
    """Connects to a QUIC server and yields the connection's protocol::

        async with connect("example.com", 4433, configuration=configuration) as client:
            reader, writer = await client.create_stream()

    The yielded object is made by ``create_protocol``, and has its type, also for type checkers.

    Leaving the block closes the connection. Its socket stays open in the background until the server
    has confirmed that, for a fraction of a second; with ``local_port`` leaving waits for it.

    The arguments are aioquic's; ours are ``local_host``, which sets the local address, and
    ``happy_eyeballs_delay``.

    ``wait_connected=False`` yields at once. As with aioquic nothing is sent before the program's first
    ``transmit()``, which stream writers call. Data written until then leaves together with
    the ClientHello, as 0-RTT data if ``configuration.session_ticket`` allows that, and otherwise
    after the handshake. Waiting for the server (``wait_connected()``, ``ping()``, ``drain()``,
    ``migrate()``, ``wait_closed()``) starts the connection as well, and so do 25 milliseconds
    without any of these. If the connection is closed before it has started, nothing is sent.

    ``session_ticket_handler`` is called with each :class:`~uringcore.tls.SessionTicket` that the
    server sends, ``token_handler`` with each address validation token; store them for
    ``configuration.session_ticket`` and ``configuration.token`` of later connections.

    If a name has several addresses, the first one to complete a handshake is used (happy eyeballs, RFC
    8305). IPv6 and IPv4 alternate, and each attempt begins ``happy_eyeballs_delay`` seconds after the one
    before, or as soon as one has failed. ``None``, and a ``local_port``, try them one by one.
    ``create_protocol`` is then called once, for the successful connection; its object gets the event of the
    handshake afterwards, without a call of its ``connect()``. With one address it is called before the
    handshake begins. ``wait_connected=False`` tries the first address only. The session ticket and the token
    are used at the first address only, too. If all addresses fail, the message contains all of their errors.
    The first server whose TLS fails, for example because of its certificate or its application protocols,
    ends the search.

    Raises :class:`~uringcore.quic.QuicCertificateError` for a certificate that is invalid or not for
    ``host``, :class:`~uringcore.quic.QuicAlpnError` if there is no
    application protocol in common, :class:`~uringcore.quic.QuicConnectionRefusedError` if
    no server listens there, another :class:`~uringcore.quic.QuicConnectionError` for any other
    failure of the handshake, and ``QuicConfigurationError`` for an invalid configuration.
    """
    loop = asyncio.get_running_loop()
    if configuration is None:
        configuration = QuicConfiguration(is_client=True)
    if not configuration.is_client:
        raise ValueError("configuration: is_client must be true for connect()")
    check_target(host, port)
    check_bound(local_host, local_port, "local_")
    if configuration.server_name is None:
        configuration = configuration._named(server_name_of(host))

    def prepare(quic: QuicConnection) -> None:
        quic._set_credential_handlers(session_ticket_handler, token_handler)

    def factory(quic: QuicConnection) -> Any:
        return create_protocol(quic, stream_handler=stream_handler)

    def prepared(quic: QuicConnection) -> Any:
        prepare(quic)
        return factory(quic)

    addresses = interleaved(await resolve(loop, (host, port)))
    local = (local_host, local_port)
    if wait_connected and len(addresses) > 1:
        transport, protocol = await connect_first(
            loop,
            factory,
            addresses,
            local,
            configuration=configuration,
            prepare=prepare,
            happy_eyeballs_delay=happy_eyeballs_delay,
        )
    else:
        transport, protocol = await _connect_to(
            loop, prepared, addresses[0], local, configuration, wait_connected
        )
    try:
        yield protocol
    finally:
        await _finish(transport, protocol, local_port)


async def _connect_to(
    loop: asyncio.AbstractEventLoop,
    factory: Callable[[QuicConnection], Any],
    target: tuple[int, Any],
    local: tuple[str | None, int],
    configuration: QuicConfiguration,
    wait_connected: bool,
) -> tuple[QuicTransport, Any]:
    transport, protocol = await begin_at(
        loop, factory, target, local, configuration=configuration, transmit=wait_connected
    )
    try:
        if wait_connected:
            await protocol.wait_connected()
    except BaseException:
        await _finish(transport, protocol, local[1])
        raise
    return transport, protocol


async def _finish(transport: QuicTransport, protocol: Any, local_port: int) -> None:
    """Closes the connection and its socket; cancellation cannot leave either open.

    The socket lingers for a server that has not received the close. On our loop the caller does not wait for
    that, unless the program chose the port and may want it again.
    """
    try:
        protocol.close()
        await protocol.wait_closed()
    finally:
        transport.close()
    if local_port or not transport.lingers():
        await transport.wait_closed()
