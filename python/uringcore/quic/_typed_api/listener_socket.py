"""``Binding``: the socket of a listener, from the arguments of ``quic.listen`` and ``webtransport.serve``."""

from __future__ import annotations

import asyncio
import errno
import socket
from dataclasses import dataclass

from uringcore.quic._accept_settings import AcceptSettings
from uringcore.quic._endpoint_transport import QuicTransport
from uringcore.quic._open_endpoint import open_server
from uringcore.quic.workers import PortWorker

__all__ = ["Binding"]


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


def _is_bound_udp(sock: socket.socket) -> bool:
    """True for a UDP socket that is bound to a port, and not connected."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6) or sock.type != socket.SOCK_DGRAM:
        return False
    try:
        sock.getpeername()
    except OSError as error:
        return error.errno == errno.ENOTCONN and sock.getsockname()[1] != 0
    return False
