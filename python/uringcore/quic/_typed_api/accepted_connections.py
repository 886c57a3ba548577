"""``AcceptedConnections``: the connections that a listener's endpoint accepts, until ``accept()`` returns
them.

Not here: the queue itself (``accept_backlog``).
"""

from __future__ import annotations

import asyncio

from uringcore.quic._endpoint_transport import QuicTransport
from uringcore.quic._typed_api.accept_backlog import Backlog
from uringcore.quic._typed_api.config import ServerConfig
from uringcore.quic._typed_api.connection_event_dispatch import ConnectionProtocol
from uringcore.quic._typed_api.listener_settings import ListenerSettings
from uringcore.quic.connection import QuicConnection
from uringcore.quic.packet import QuicErrorCode
from uringcore.quic.workers import PortWorker

__all__ = ["AcceptedConnections"]


class AcceptedConnections:
    """Makes the protocol object of each connection that the endpoint accepts, with the current settings. Adds
    it to the backlog when the handshake is complete, or when early data can be answered.

    The endpoint refers to this object and not to the listener, so that the listener can be garbage-collected.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, config: ServerConfig, worker: PortWorker | None
    ) -> None:
        self.backlog: Backlog[ConnectionProtocol] = Backlog(loop, config.backlog)
        self.served: ListenerSettings = ListenerSettings(
            self._make_protocol, config, worker, lambda config: config._configuration
        )

    def reload(self, transport: QuicTransport, config: ServerConfig | None) -> None:
        """See :meth:`ListenerSettings.reload`."""
        self.served.reload(transport, config)
        self.backlog.resize(self.served.config.backlog)

    def _make_protocol(self, quic: QuicConnection) -> ConnectionProtocol:
        config = self.served.config
        return ConnectionProtocol(
            quic,
            datagram_bytes=config.datagram_buffer,
            drops_newest=config.datagram_overflow == "newest",
            close_timeout=config.close_timeout,
            on_connected=self._connected,
        )

    def _connected(self, link: ConnectionProtocol) -> None:
        if not self.backlog.enter(link):
            reason = "too many wait to be accepted"
            link.close_about(QuicErrorCode.CONNECTION_REFUSED, 0, reason)
