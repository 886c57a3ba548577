"""``connect``: a client's connection."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Generator, Sequence
from types import TracebackType

from uringcore.quic.connection import QuicConnection
from uringcore.quic.endpoint import connect_first
from uringcore.quic.eyeballs import ATTEMPT_DELAY, interleaved
from uringcore.quic.native.config import ClientConfig
from uringcore.quic.native.connection import Connection
from uringcore.quic.native.link import Link
from uringcore.quic.sockets import resolve

__all__ = ["Connecting", "connect"]


def connect(
    host: str,
    port: int,
    config: ClientConfig | None = None,
    *,
    alpn: Sequence[str] | None = None,
    local_address: tuple[str, int] | None = None,
    happy_eyeballs_delay: float | None = ATTEMPT_DELAY,
) -> Connecting:
    """Connects to a QUIC server: ``async with connect(...) as connection:``, or
    ``connection = await connect(...)``, and then the program closes it.

    ``alpn`` goes before ``config.alpn``. Of several addresses of a name the first to complete a
    handshake is used (RFC 8305), the next one being tried ``happy_eyeballs_delay`` seconds after the one
    before, or when that has failed; ``None``, and a ``local_address`` with a port, try them one by one.

    Raises :class:`QuicCertificateError` for a certificate that is not accepted or not for ``host``,
    :class:`QuicAlpnError` when there is no application protocol in common,
    :class:`QuicConnectionRefusedError` when nobody listens there, another :class:`QuicConnectionError`
    for any other end of the handshake, :class:`QuicConfigurationError` for an impossible setting, and
    ``OSError`` when the host is unknown or the socket cannot be made.
    """
    config = ClientConfig() if config is None else config
    if alpn is not None:
        config = dataclasses.replace(config, alpn=alpn)
    return Connecting(host, port, config, local_address, happy_eyeballs_delay)


class Connecting:
    """What :func:`connect` returns: nothing happens before it is awaited or entered."""

    def __init__(
        self,
        host: str,
        port: int,
        config: ClientConfig,
        local_address: tuple[str, int] | None,
        happy_eyeballs_delay: float | None,
    ) -> None:
        self._target = (host, port)
        self._config = config
        self._local_address = local_address
        self._delay = happy_eyeballs_delay
        self._connection: Connection | None = None

    def __await__(self) -> Generator[object, None, Connection]:
        return self._connect().__await__()

    async def __aenter__(self) -> Connection:
        self._connection = await self._connect()
        return self._connection

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.__aexit__(exc_type, exc_value, traceback)

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        config = self._config
        configuration = config._configuration
        if configuration.server_name is None:
            configuration = configuration._named(self._target[0])
        links: dict[int, Link] = {}

        def prepare(quic: QuicConnection) -> None:
            # Before it begins, so that not even the first packets' streams become events.
            links[id(quic)] = Link(
                quic, datagram_bytes=config.datagram_buffer, close_timeout=config.close_timeout
            )

        def of(quic: QuicConnection) -> Link:
            return links[id(quic)]

        link: Link
        _, link = await connect_first(
            loop,
            of,
            interleaved(await resolve(loop, self._target)),
            self._local_address,
            configuration=configuration,
            prepare=prepare,
            happy_eyeballs_delay=self._delay,
        )
        link.waits_for_socket = self._local_address is not None and self._local_address[1] != 0
        return Connection(link)
