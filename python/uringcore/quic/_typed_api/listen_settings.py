"""The arguments that ``quic.listen`` and ``webtransport.serve`` have in common: the socket, and the settings.

:class:`ListenerSettings` is the settings of an open listener and their reload. Not here: what is done with
accepted connections (``acceptor``, ``uringcore.webtransport``).
"""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from uringcore.quic._endpoint_transport import QuicTransport
from uringcore.quic._errors import ListenerClosedError, QuicConfigurationError
from uringcore.quic._open_endpoint import open_server
from uringcore.quic._server_endpoint_settings import AcceptSettings, ServerFactory
from uringcore.quic._typed_api.certificates import CertificateSource
from uringcore.quic._typed_api.config import ServerConfig
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.workers import PortWorker

__all__ = ["Binding", "ListenerSettings", "settings_of"]

MakeConfiguration = Callable[[ServerConfig], QuicConfiguration]


@dataclass(frozen=True)
class Binding:
    """The socket of a listener: an address to bind, a worker of a ``PortGroup``, or a bound socket."""

    address: tuple[str, int] | None
    reuse_port: bool
    workers: PortWorker | None
    sock: socket.socket | None

    @classmethod
    def checked(
        cls,
        caller: str,
        host: str | None,
        port: int | None,
        *,
        reuse_port: bool,
        workers: PortWorker | None,
        sock: socket.socket | None,
    ) -> Binding:
        """The binding that the arguments of ``caller`` describe. Raises ``TypeError`` without an address, and
        ``ValueError`` for arguments that exclude each other."""
        if workers is None and sock is None:
            if host is None or port is None:
                raise TypeError(f"{caller} needs a host and a port, workers or sock")
            return cls((host, port), reuse_port, None, None)
        if workers is not None and not isinstance(workers, PortWorker):
            raise TypeError(f"workers: must be a PortWorker, one of a PortGroup, not {workers!r}")
        if sock is not None and not _is_bound_udp(sock):
            raise ValueError("sock: must be a bound, unconnected UDP socket")
        if workers is not None and sock is not None:
            raise ValueError("sock: cannot be given with workers, which have one")
        if host is not None or port is not None or reuse_port:
            name = "sock" if workers is None else "workers"
            raise ValueError(f"{name}: is bound already, without host, port and reuse_port")
        return cls(None, False, workers, sock)

    async def open(
        self, loop: asyncio.AbstractEventLoop, accept_settings: AcceptSettings
    ) -> QuicTransport:
        """Opens the endpoint. It owns a given socket, and a duplicate of a worker's."""
        sock = self.sock if self.workers is None else self.workers.socket.dup()
        return await open_server(
            loop, accept_settings, self.address, sock=sock, reuse_port=self.reuse_port
        )


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


def _is_bound_udp(sock: socket.socket) -> bool:
    """True for a UDP socket that is bound to a port, and not connected."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6) or sock.type != socket.SOCK_DGRAM:
        return False
    try:
        sock.getpeername()
    except OSError as error:
        return error.errno == errno.ENOTCONN and sock.getsockname()[1] != 0
    return False


def _plain(value: object) -> object:
    """Returns a list as a tuple, so that both compare equal."""
    return tuple(_plain(item) for item in value) if isinstance(value, (list, tuple)) else value


# Settings of the endpoint, which stays open, so that a reload cannot change them.
_FIXED = ("connection_id_length", "limits", "preferred_address")
