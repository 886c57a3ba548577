"""``Accepting``: the connections that a listener's endpoint accepts, until a program has them."""

from __future__ import annotations

import asyncio
import dataclasses

from uringcore._uringcore import QuicServerSetup
from uringcore.quic._acceptance import Acceptance
from uringcore.quic._errors import QuicConfigurationError
from uringcore.quic._native.backlog import Backlog
from uringcore.quic._native.config import ServerConfig
from uringcore.quic._native.link import Link
from uringcore.quic.connection import QuicConnection
from uringcore.quic.packet import QuicErrorCode
from uringcore.quic.workers import PortWorker

__all__ = ["Accepting"]


class Accepting:
    """Makes the link of each accepted connection, with the current settings, and puts it in the backlog.

    The endpoint refers to this object and not to the listener, so that a listener which the program
    forgets is collected.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, config: ServerConfig, worker: PortWorker | None
    ) -> None:
        self.backlog: Backlog[Link] = Backlog(loop, config.backlog)
        self._config = config
        self.acceptance: Acceptance = Acceptance(
            self._made,
            config._configuration,
            retry=config.retry,
            limits=config.limits,
            worker=worker,
        )

    def reload(self, config: ServerConfig | None) -> QuicServerSetup:
        """Reads the files of the settings again, or takes other settings, for new connections.

        Raises :class:`QuicConfigurationError`, and then nothing has changed.
        """
        # A copy reads what the fields name.
        config = dataclasses.replace(self._config) if config is None else config
        for name in _FIXED:
            if _plain(getattr(config, name)) != _plain(getattr(self._config, name)):
                message = "cannot change while the listener is open"
                raise QuicConfigurationError(name, message)
        setup = self.acceptance.change(config._configuration, config.retry)
        self._config = config
        self.backlog.resize(config.backlog)
        return setup

    def _made(self, quic: QuicConnection) -> Link:
        config = self._config
        return Link(
            quic,
            datagram_bytes=config.datagram_buffer,
            drops_newest=config.datagram_overflow == "newest",
            close_timeout=config.close_timeout,
            on_connected=self._connected,
        )

    def _connected(self, link: Link) -> None:
        if not self.backlog.enter(link):
            reason = "too many wait to be accepted"
            link.close_about(QuicErrorCode.CONNECTION_REFUSED, 0, reason)


def _plain(value: object) -> object:
    """A list as a tuple: a program may give either."""
    return tuple(_plain(item) for item in value) if isinstance(value, (list, tuple)) else value


# They are the endpoint's, which stays.
_FIXED = ("connection_id_length", "limits", "preferred_address", "stateless_reset_key")
