"""The settings of an open listener of ``quic.listen`` and ``webtransport.serve``, and their reload.

Not here: the socket (``listener_socket``), and what is done with accepted connections
(``accepted_connections``, ``uringcore.webtransport``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from uringcore.quic._accept_settings import AcceptSettings, ServerFactory
from uringcore.quic._endpoint_transport import QuicTransport
from uringcore.quic._errors import ListenerClosedError, QuicConfigurationError
from uringcore.quic._typed_api.certificates import CertificateSource
from uringcore.quic._typed_api.config import ServerConfig
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.workers import PortWorker

__all__ = ["ListenerSettings", "settings_of"]

MakeConfiguration = Callable[[ServerConfig], QuicConfiguration]


def settings_of(
    caller: str,
    config: ServerConfig | None,
    *,
    certificate: CertificateSource | None,
    certificates: Sequence[CertificateSource] | None,
    alpn: Sequence[str] | None = None,
) -> ServerConfig:
    """The settings of a call: ``config``, with the other arguments in the place of its fields. Raises
    ``TypeError`` without a certificate."""
    if config is not None:
        return config._with(certificate=certificate, certificates=certificates, alpn=alpn)
    if certificate is None and certificates is None:
        raise TypeError(f"{caller} needs a certificate, certificates or a config")
    return ServerConfig(certificate=certificate, certificates=certificates or (), alpn=alpn or ())


class ListenerSettings:
    """The settings with which a listener accepts connections. ``make`` makes a configuration of them."""

    def __init__(
        self,
        factory: ServerFactory,
        config: ServerConfig,
        worker: PortWorker | None,
        make: MakeConfiguration,
    ) -> None:
        self.config: ServerConfig = config
        self._make: MakeConfiguration = make
        self.accept_settings: AcceptSettings = AcceptSettings(
            factory, make(config), retry=config.retry, limits=config.limits, worker=worker
        )

    def reload(self, transport: QuicTransport, config: ServerConfig | None) -> None:
        """Reads the files of the settings again, or takes other settings, for new connections.

        Raises :class:`QuicConfigurationError`, :class:`ListenerClosedError` if no connections are accepted
        any more, and ``OSError`` without a free descriptor, and then nothing has changed.
        """
        if not transport.is_serving():
            raise ListenerClosedError("the listener does not accept connections any more")
        # Making a copy reads the certificates' files again.
        config = dataclasses.replace(self.config) if config is None else config
        for name in _FIXED:
            if _plain(getattr(config, name)) != _plain(getattr(self.config, name)):
                message = "cannot change while the listener is open"
                raise QuicConfigurationError(name, message)
        with self.accept_settings.changed(self._make(config), config.retry) as setup:
            # This fails if the program has set SO_REUSEPORT on the socket in the meantime: such a socket
            # cannot have a reset key.
            transport._accept_with(setup, self.accept_settings.reset_keys())
        self.config = config


def _plain(value: object) -> object:
    """Returns a list as a tuple, so that both compare equal."""
    return tuple(_plain(item) for item in value) if isinstance(value, (list, tuple)) else value


# Settings of the endpoint, which stays open, so that a reload cannot change them.
_FIXED = ("connection_id_length", "limits", "preferred_address")
