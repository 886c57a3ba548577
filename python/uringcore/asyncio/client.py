"""``connect``: a QUIC client as an asynchronous context manager."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from uringcore._uringcore import LoopCore
from uringcore.asyncio.protocol import QuicConnectionProtocol, QuicStreamHandler
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.connection import QuicConnection, QuicTokenHandler
from uringcore.quic.endpoint import (
    QuicTransport,
    bound_socket,
    create_quic_endpoint,
    resolve,
)
from uringcore.quic.errors import QuicConnectionRefusedError
from uringcore.tls import SessionTicketHandler

__all__ = ["connect"]


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
) -> AsyncGenerator[Any, None]:
    """Connects to a QUIC server and yields the connection's protocol::

        async with connect("example.com", 4433, configuration=configuration) as client:
            reader, writer = await client.create_stream()

    Leaving the block closes the connection. Its socket stays open in the background until the server
    has heard of that, for a fraction of a second; with ``local_port`` leaving waits for it.

    The arguments are aioquic's; ``local_host`` is ours and chooses the local address.

    ``wait_connected=False`` yields at once, and as with aioquic nothing is sent before the program's
    first ``transmit()``, which stream writers call: what is written until then leaves together with
    the ClientHello, as 0-RTT data if ``configuration.session_ticket`` allows that, and otherwise
    when the handshake is done. Waiting for the server (``wait_connected()``, ``ping()``, ``drain()``,
    ``migrate()``, ``wait_closed()``) begins the connection as well, and so do 25 milliseconds
    without any of these. A connection that is closed before has never been: nothing is sent.

    ``session_ticket_handler`` is called with each :class:`~uringcore.tls.SessionTicket` that the
    server sends, ``token_handler`` with each address validation token; keep them for
    ``configuration.session_ticket`` and ``configuration.token`` of later connections.

    When the name has several addresses they are tried in turn while they refuse.

    Raises :class:`~uringcore.quic.errors.QuicCertificateError` for a certificate that is not
    accepted or not for ``host``, :class:`~uringcore.quic.errors.QuicAlpnError` when there is no
    application protocol in common, :class:`~uringcore.quic.errors.QuicConnectionRefusedError` when
    nobody listens there, another :class:`~uringcore.quic.errors.QuicConnectionError` for any other
    end of the handshake, and ``QuicConfigurationError`` for an impossible configuration.
    """
    loop = asyncio.get_running_loop()
    if configuration is None:
        configuration = QuicConfiguration(is_client=True)
    if not configuration.is_client:
        raise ValueError("configuration: is_client must be true for connect()")
    if configuration.server_name is None:
        configuration = configuration._named(host)

    def factory(quic: QuicConnection) -> Any:
        quic._set_credential_handlers(session_ticket_handler, token_handler)
        return create_protocol(quic, stream_handler=stream_handler)

    addresses = await resolve(loop, (host, port))
    for index, (family, address) in enumerate(addresses):
        wildcard = "::" if family == socket.AF_INET6 else "0.0.0.0"
        local = (local_host or wildcard, local_port)
        sock = None
        if not isinstance(loop, LoopCore):
            sock = await _connected_socket(loop, local, family, address)
        transport, protocol = await create_quic_endpoint(
            loop,
            factory,
            local if sock is None else None,
            address,
            configuration=configuration,
            sock=sock,
            family=family,
            transmit=wait_connected,
        )
        try:
            if wait_connected:
                await protocol.wait_connected()
        except QuicConnectionRefusedError:
            await _finish(transport, protocol, local_port)
            if index + 1 < len(addresses):
                continue
            raise
        except BaseException:
            await _finish(transport, protocol, local_port)
            raise
        break
    try:
        yield protocol
    finally:
        await _finish(transport, protocol, local_port)


async def _connected_socket(
    loop: asyncio.AbstractEventLoop, local: Any, family: int, address: Any
) -> socket.socket:
    """On another loop than ours only a connected socket tells that nobody is at ``address``."""
    sock = await bound_socket(loop, local, family)
    # Without a route the handshake finds out: another address of the name may still answer.
    with contextlib.suppress(OSError):
        sock.connect(address)
    return sock


async def _finish(transport: QuicTransport, protocol: Any, local_port: int) -> None:
    """Closes the connection and its socket; cancellation cannot leave either open.

    The socket lingers for a server that did not hear of the close, and on our loop nobody waits for
    that, unless the program chose the port and may want it again.
    """
    try:
        protocol.close()
        await protocol.wait_closed()
    finally:
        transport.close()
    if local_port or not transport.lingers():
        await transport.wait_closed()
