"""``connect``: a client's connection."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections.abc import Sequence

from uringcore.quic._happy_eyeballs import ATTEMPT_DELAY, interleaved
from uringcore.quic._host_argument_checks import check_target, server_name_of
from uringcore.quic._open_endpoint import begin_at, connect_first
from uringcore.quic._typed_api.await_and_async_with import AwaitableContext
from uringcore.quic._typed_api.config import ClientConfig
from uringcore.quic._typed_api.connection import Connection
from uringcore.quic._typed_api.connection_event_dispatch import ConnectionProtocol
from uringcore.quic._udp_sockets import resolve
from uringcore.quic.connection import QuicConnection

__all__ = ["connect"]


def connect(
    host: str,
    port: int,
    config: ClientConfig | None = None,
    *,
    alpn: Sequence[str] | None = None,
    local_address: tuple[str, int] | None = None,
    happy_eyeballs_delay: float | None = ATTEMPT_DELAY,
) -> AwaitableContext[Connection]:
    """Connects to a QUIC server: ``async with connect(...) as connection:``, or ``connection = await
    connect(...)``, and then the program closes it.

    ``alpn`` overrides ``config.alpn``, in a copy of ``config`` that is made for this call: later calls do not
    use the address token that the copy stores. If a name has several addresses, the first one to complete a
    handshake is used (RFC 8305). The next one is tried ``happy_eyeballs_delay`` seconds after the previous
    one, or when that has failed; ``None``, and a ``local_address`` with a port, try them one by one. With
    ``config.early_data`` and a ticket the first address is used, without waiting for the handshake.

    Raises :class:`QuicCertificateError` for a certificate that is not accepted or not for ``host``,
    :class:`QuicAlpnError` when there is no application protocol in common,
    :class:`QuicConnectionRefusedError` when no server listens there, another :class:`QuicConnectionError`
    for any other end of the handshake, :class:`QuicConfigurationError` for an impossible setting, and
    ``OSError`` when the host is unknown or the socket cannot be made.
    """
    config = ClientConfig() if config is None else config
    if alpn is not None:
        config = dataclasses.replace(config, alpn=alpn)
    target = (host, port)
    return AwaitableContext(
        functools.partial(_connect, target, config, local_address, happy_eyeballs_delay)
    )


async def _connect(
    target: tuple[str, int],
    config: ClientConfig,
    local_address: tuple[str, int] | None,
    delay: float | None,
) -> Connection:
    loop = asyncio.get_running_loop()
    configuration = config._configuration
    check_target(*target)
    if configuration.server_name is None:
        configuration = configuration._named(server_name_of(target[0]))
    links: dict[int, ConnectionProtocol] = {}

    def prepare(quic: QuicConnection) -> ConnectionProtocol:
        # Made before the connection starts, so that a stream in the server's first packets goes to this
        # object.
        link = links[id(quic)] = ConnectionProtocol(
            quic,
            datagram_bytes=config.datagram_buffer,
            drops_newest=config.datagram_overflow == "newest",
            close_timeout=config.close_timeout,
        )
        return link

    def of(quic: QuicConnection) -> ConnectionProtocol:
        return links[id(quic)]

    addresses = interleaved(await resolve(loop, target))
    link: ConnectionProtocol
    if config.early_data and config.session_ticket is not None:
        _, link = await begin_at(
            loop, prepare, addresses[0], local_address, configuration=configuration
        )
    else:
        _, link = await connect_first(
            loop,
            of,
            addresses,
            local_address,
            configuration=configuration,
            prepare=prepare,
            happy_eyeballs_delay=delay,
        )
    link.waits_for_socket = local_address is not None and local_address[1] != 0
    return Connection(link)
