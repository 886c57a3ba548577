"""The QUIC endpoints of a server.

_listening_sockets.py binds the sockets, and _http3_connection.py implements the connections.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import socket
from collections.abc import Iterable

from uringcore.h3.connection import ErrorCode
from uringcore.quic._endpoint_transport import QuicTransport
from uringcore.quic._open_endpoint import create_quic_endpoint
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.limits import RetryPolicy, ServerLimits
from uringcore.quic.workers import PortWorker
from uringcore.server._http3_connection import HTTP3ServerProtocol
from uringcore.server._http3_shared_state import HTTP3Service

__all__ = ["HTTP3Listener", "warn_about_small_buffers"]

logger = logging.getLogger("uvicorn.error")

# Seconds between two checks of the connections' time limits.
TICK_SECONDS = 1.0

# The size of the buffers that a QUIC socket requests from the kernel, and the size below which a warning is
# logged.
ROOM_WANTED, ROOM_ENOUGH = 4 << 20, 1 << 20


class HTTP3Listener:
    """The QUIC endpoints of one server, with the interface of an ``asyncio.Server``."""

    def __init__(self, service: HTTP3Service) -> None:
        self.service = service
        self._transports: list[QuicTransport] = []
        self._keep_alive: asyncio.TimerHandle | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._keep_alive_seconds = 0.0

    @property
    def endpoints(self) -> list[QuicTransport]:
        """The endpoints, one for each socket."""
        return self._transports

    async def start(
        self,
        places: Iterable[socket.socket | PortWorker],
        configuration: QuicConfiguration,
        *,
        limits: ServerLimits,
        retry: RetryPolicy,
    ) -> None:
        """Starts an endpoint on each socket, which it owns then, or on a duplicate of a worker's socket."""
        loop = asyncio.get_running_loop()
        # A mapping, so that a protocol object is made only when the application protocol is negotiated, and
        # none for a handshake that fails before.
        create_protocol = {"h3": functools.partial(HTTP3ServerProtocol, service=self.service)}
        for place in places:
            worker = place if isinstance(place, PortWorker) else None
            transport, _ = await create_quic_endpoint(
                loop,
                create_protocol,
                sock=None if isinstance(place, PortWorker) else place,
                worker=worker,
                configuration=configuration,
                limits=limits,
                retry=retry,
            )
            self._transports.append(transport)
        warn_about_small_buffers(self._transports[0].get_extra_info("socket"))
        # A third of the idle timeout, so that two PINGs may be lost before it.
        self._keep_alive_seconds = configuration.idle_timeout / 3
        self._keep_alive = loop.call_later(self._keep_alive_seconds, self._ping)
        self._tick = loop.call_later(TICK_SECONDS, self._look_at_clock)

    @property
    def port(self) -> int:
        """The number of the UDP port."""
        return int(self._transports[0].get_extra_info("sockname")[1])

    def reload(self) -> None:
        """Uses the configuration's current certificate from now on. Raises ``QuicConfigurationError``."""
        for transport in self._transports:
            transport.reload()

    def _ping(self) -> None:
        """Sends PINGs until the end of the server, because a graceful stop may take longer than the idle
        timeout."""
        loop = asyncio.get_running_loop()
        self._keep_alive = loop.call_later(self._keep_alive_seconds, self._ping)
        for connection in list(self.service.connections):
            connection.ping_if_busy()

    def _look_at_clock(self) -> None:
        loop = asyncio.get_running_loop()
        # The next timer is started first, so that an exception of a connection does not end the series.
        self._tick = loop.call_later(TICK_SECONDS, self._look_at_clock)
        for connection in list(self.service.connections):
            try:
                connection.tick()
            except Exception as error:  # noqa: BLE001 - the other connections need their tick
                text = "Exception in the timer of an HTTP/3 connection"
                self.service.report("fault", text, error)

    def close(self) -> None:
        """Accepts no new connections. Open connections continue until they are shut down."""
        self.service.stopping = True
        self.stop_accepting()

    def stop_accepting(self) -> None:
        """Accepts no new connections. Connections whose handshake has begun are still served."""
        for transport in self._transports:
            transport.stop_accepting()

    def abort(self) -> None:
        """Closes the remaining connections and the endpoints, whose sockets close a little later."""
        for timer in (self._keep_alive, self._tick):
            if timer is not None:
                timer.cancel()
        self._keep_alive = self._tick = None
        for protocol in list(self.service.connections):
            protocol.close(ErrorCode.H3_NO_ERROR, "the server has stopped")
        for transport in self._transports:
            transport.close()

    async def wait_closed(self) -> None:
        """Closes the endpoints with their remaining connections. Waits until all have ended."""
        self.abort()
        for transport in self._transports:
            await transport.wait_closed()
        self._transports = []


def warn_about_small_buffers(sock: socket.socket) -> None:
    """Logs a line if the kernel gives a socket smaller buffers than requested."""
    # The kernel doubles the requested size, for its own overhead, and reports the doubled size (socket(7)).
    receiving, sending = (
        sock.getsockopt(socket.SOL_SOCKET, option) // 2
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF)
    )
    if min(receiving, sending) < ROOM_ENOUGH:
        logger.info(
            "HTTP/3's socket has buffers of %d KiB to receive and %d KiB to send: for full speed set "
            "net.core.rmem_max and net.core.wmem_max to %d",
            receiving >> 10,
            sending >> 10,
            ROOM_WANTED,
        )
