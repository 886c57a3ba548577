"""The UDP side's sockets, and the QUIC endpoints on them.

Sockets are bound before anything starts, so that a port in use is said before the application's
lifespan begins, and handed to the loop afterwards. Connections are connection.py's.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import socket
from typing import Any

from uringcore.h3.connection import ErrorCode
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.endpoint import create_quic_endpoint
from uringcore.quic.limits import RetryPolicy, ServerLimits
from uringcore.quic.sockets import bind_udp
from uringcore.quic.transport import QuicTransport
from uringcore.server.connection import HTTP3ServerProtocol
from uringcore.server.service import Service

__all__ = ["HTTP3Listener", "sockets_on"]

logger = logging.getLogger("uvicorn.error")

# Ports tried when the system may choose: each must be free for UDP on every address and for TCP.
PORT_ATTEMPTS = 16

# How often connections are looked at for what has taken too long.
TICK_SECONDS = 1.0


def sockets_on(host: str | None, port: int) -> list[socket.socket]:
    """UDP sockets on every address of ``host``, all on one port.

    ``host`` as in ``loop.create_server``: ``None`` or empty means every interface. With port 0 a
    port is chosen that is free for TCP too. Raises ``OSError``.
    """
    addresses = addresses_of(host)
    for attempt in range(PORT_ATTEMPTS):
        try:
            return bind_all(addresses, port)
        except OSError:
            if port != 0 or attempt == PORT_ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def addresses_of(host: str | None) -> list[tuple[socket.AddressFamily, tuple[Any, ...]]]:
    answers = socket.getaddrinfo(host or None, 0, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE)
    # In order, without repetitions: /etc/hosts likes to name an address twice.
    return list(dict.fromkeys((family, address) for family, _, _, _, address in answers))


def bind_all(
    addresses: list[tuple[socket.AddressFamily, tuple[Any, ...]]], port: int
) -> list[socket.socket]:
    bound: list[socket.socket] = []
    chosen = port
    try:
        for family, address in addresses:
            try:
                # As asyncio's create_server does for TCP: IPv4 has its own socket.
                sock = bind_udp(family, (address[0], chosen, *address[2:]), only_v6=True)
                bound.append(sock)
                chosen = sock.getsockname()[1]
                if port == 0:
                    check_tcp(family, (address[0], chosen, *address[2:]))
            except OSError as exc:
                where, why = f"{address[0]}:{chosen}", os.strerror(exc.errno or 0)
                message = f"cannot listen on UDP {where} for HTTP/3: {why}"
                raise OSError(exc.errno, message) from None
    except BaseException:
        for sock in bound:
            sock.close()
        raise
    return bound


def check_tcp(family: socket.AddressFamily, address: tuple[Any, ...]) -> None:
    """Raises ``OSError`` if the TCP port of the same number is taken."""
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        probe.bind(address)


class HTTP3Listener:
    """The QUIC endpoints of one server, with the face of an ``asyncio.Server``."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._transports: list[QuicTransport] = []
        self._keep_alive: asyncio.TimerHandle | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._keep_alive_seconds = 0.0

    async def start(
        self,
        sockets: list[socket.socket],
        configuration: QuicConfiguration,
        *,
        limits: ServerLimits,
        retry: RetryPolicy,
    ) -> None:
        """Starts an endpoint on each socket; the endpoints own them from here on."""
        loop = asyncio.get_running_loop()
        # Made when the application protocol is agreed: a handshake that gets nowhere makes nothing.
        create_protocol = {"h3": functools.partial(HTTP3ServerProtocol, service=self.service)}
        for sock in sockets:
            transport, _ = await create_quic_endpoint(
                loop,
                create_protocol,
                sock=sock,
                configuration=configuration,
                limits=limits,
                retry=retry,
            )
            self._transports.append(transport)
        # Often enough that two may be lost.
        self._keep_alive_seconds = configuration.idle_timeout / 3
        self._keep_alive = loop.call_later(self._keep_alive_seconds, self._ping)
        self._tick = loop.call_later(TICK_SECONDS, self._look_at_clock)

    def _ping(self) -> None:
        """Until the very end: a graceful stop may take longer than the idle timeout."""
        loop = asyncio.get_running_loop()
        self._keep_alive = loop.call_later(self._keep_alive_seconds, self._ping)
        for connection in list(self.service.connections):
            connection.ping_if_busy()

    def _look_at_clock(self) -> None:
        loop = asyncio.get_running_loop()
        # First: whatever comes of one connection, the clock goes on for the others.
        self._tick = loop.call_later(TICK_SECONDS, self._look_at_clock)
        for connection in list(self.service.connections):
            try:
                connection.tick()
            except Exception:
                logger.exception("An HTTP/3 connection could not be looked after")

    def close(self) -> None:
        """No new connections; the open ones go on until they are told."""
        self.service.stopping = True
        for transport in self._transports:
            transport.stop_accepting()

    async def wait_closed(self) -> None:
        """Ends the endpoints; whatever connections are left are closed at once."""
        for timer in (self._keep_alive, self._tick):
            if timer is not None:
                timer.cancel()
        self._keep_alive = self._tick = None
        for protocol in list(self.service.connections):
            protocol.close(ErrorCode.H3_NO_ERROR, "the server has stopped")
        transports, self._transports = self._transports, []
        for transport in transports:
            transport.close()
            await transport.wait_closed()
