"""The sockets that a server listens on, TCP and UDP: bound by address, or passed in.

All are bound before the application's lifespan begins, so that a port in use is reported before anything
starts. _systemd_sockets.py finds the sockets that systemd passes, _quic_listener.py receives on UDP, and
uvicorn on TCP.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import stat
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from uringcore.quic._udp_sockets import bind_udp, make_room, shares_port
from uringcore.server._config import Config
from uringcore.server._metrics_port import METRICS_PATH
from uringcore.server._startup_errors import STARTUP_FAILURE
from uringcore.server._systemd_sockets import activation_sockets

__all__ = [
    "ServerSockets",
    "bind_addresses",
    "bind_metrics_or_exit",
    "close_metrics",
    "listen_or_exit",
    "log_addresses",
    "log_metrics_address",
    "remove_unix",
]

logger = logging.getLogger("uvicorn.error")

# The number of attempts if the system chooses the port. It must be free for UDP and TCP on every address.
PORT_ATTEMPTS = 16

SHARED_PORT = (
    "--http3-reset-key: the UDP socket that was passed shares its port (SO_REUSEPORT, ReusePort= of "
    "systemd): servers with one key there would end each other's connections. Leave one of the two out."
)

Address = tuple[socket.AddressFamily, tuple[Any, ...]]


@dataclass
class ServerSockets:
    """The sockets that one server listens on. Either list may be empty."""

    tcp: list[socket.socket] = field(default_factory=list)
    """Bound stream sockets, TCP or Unix. They may be listening already."""

    udp: list[socket.socket] = field(default_factory=list)
    """Bound, non-blocking UDP sockets."""

    are_given: bool = False
    """True if the sockets were passed in."""

    own_tcp: list[socket.socket] = field(default_factory=list)
    """The sockets of ``tcp`` that this process has bound itself and that no other process has.

    The loop accepts ahead on them: 44 µs of processor time instead of 50 for a connection with one request.
    Sockets of ``--fd``, of systemd, of a program and of ``--reload``'s parent are shared.
    """

    @classmethod
    def by_kind(cls, sockets: Iterable[socket.socket]) -> ServerSockets:
        """Sorts bound sockets by their types. Raises ``OSError`` for one that a server cannot use."""
        found = cls(are_given=True)
        for sock in sockets:
            if sock.type == socket.SOCK_STREAM:
                found.tcp.append(sock)
            elif sock.type == socket.SOCK_DGRAM and sock.family != socket.AF_UNIX:
                sock.setblocking(False)
                make_room(sock)
                found.udp.append(sock)
            else:
                raise OSError(f"a server cannot listen on {sock}")
        return found

    def __iter__(self) -> Iterator[socket.socket]:
        return iter([*self.tcp, *self.udp])

    def close(self) -> None:
        """Closes all sockets in this process."""
        for sock in self:
            sock.close()


def listen(config: Config) -> ServerSockets:
    """Returns the sockets that the options name, or those that systemd has passed: then nothing is bound
    unless requested.

    Raises ``OSError`` with a one-line text if a socket is not available.
    """
    found = ServerSockets.by_kind(activation_sockets())
    found.are_given = any(found)
    try:
        if config.fd is not None:
            found.tcp = [socket_of(config.fd, "--fd", socket.SOCK_STREAM)]
        elif config.uds is not None:
            found.own_tcp = [bind_unix(config.uds)]
            found.tcp = list(found.own_tcp)
        if config.http3_fd is not None:
            found.udp = [socket_of(config.http3_fd, "--http3-fd", socket.SOCK_DGRAM)]
        if config.keys.reset and any(map(shares_port, found.udp)):
            raise OSError(SHARED_PORT)
        # The metrics port is bound first, and its socket listens at once. Otherwise two servers could bind
        # the port, and the second would fail only later.
        bind_metrics(config)
        bind_missing(found, config)
        return found
    except BaseException:
        found.close()
        close_metrics(config)
        raise


def listen_or_exit(config: Config) -> ServerSockets:
    try:
        return listen(config)
    except OSError as exc:
        logger.error(exc.strerror or exc)
        sys.exit(STARTUP_FAILURE)


def bind_missing(found: ServerSockets, config: Config) -> None:
    """The ports that are to be served besides the sockets that are there."""
    port = None if found.tcp or found.are_given else config.port
    udp_port = None
    if config.http3 and not found.udp:
        udp_port = port if config.http3_port is None else config.http3_port
    if port is not None or udp_port is not None:
        bound = bind_addresses(config.host, port, udp_port)
        found.tcp += bound.tcp
        found.own_tcp += bound.tcp
        found.udp += bound.udp
    if port is not None:
        config.port = found.tcp[0].getsockname()[1]


def bind_metrics(config: Config) -> None:
    """The ports of the metrics and of redirects, unless they are bound. Raises ``OSError``."""
    web = config.web
    for option, host, port, sockets in (
        ("--metrics-port", config.metrics_host, config.metrics_port, config.metrics_sockets),
        ("--redirect-http", config.host, web.redirect_http, web.redirect_sockets),
    ):
        if port is None or sockets:
            continue
        try:
            sockets += bind_addresses(host, port, None, tcp=option).tcp
            for sock in sockets:
                sock.listen()
        except BaseException:
            close_metrics(config)
            raise


def bind_metrics_or_exit(config: Config) -> None:
    try:
        bind_metrics(config)
    except OSError as exc:
        logger.error(exc.strerror or exc)
        sys.exit(STARTUP_FAILURE)


def close_metrics(config: Config) -> None:
    """Closes these ports in this process."""
    for sockets in (config.metrics_sockets, config.web.redirect_sockets):
        while sockets:
            sockets.pop().close()


def bind_addresses(
    host: str | None, port: int | None, udp_port: int | None, *, tcp: str = "TCP"
) -> ServerSockets:
    """Sockets on every address of ``host``: TCP on ``port`` and UDP on ``udp_port``, none for ``None``.

    ``host`` works as in ``loop.create_server``: ``None`` or empty means every interface. With port 0 the
    system chooses one number for both. Raises ``OSError`` with a one-line text if an address is not
    available; ``tcp`` names TCP in that text.
    """
    addresses = addresses_of(host)
    for attempt in range(PORT_ATTEMPTS):
        sockets = ServerSockets()
        try:
            bind_all(sockets, addresses, port, udp_port, tcp)
            return sockets
        except BaseException as exc:
            sockets.close()
            is_chosen = 0 in (port, udp_port) and isinstance(exc, OSError)
            if not is_chosen or attempt == PORT_ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def bind_all(
    sockets: ServerSockets,
    addresses: Iterable[Address],
    port: int | None,
    udp_port: int | None,
    tcp: str,
) -> None:
    for family, (host, _, *rest) in addresses:
        if udp_port is not None:
            with name_in_errors(f"UDP {host}:{udp_port} for HTTP/3"):
                # IPv6 sockets do not accept IPv4, which gets a socket of its own, as in asyncio's
                # create_server for TCP.
                sock = bind_udp(family, (host, udp_port, *rest), only_v6=True)
            sockets.udp.append(sock)
            chosen = sock.getsockname()[1]
            port = chosen if port == udp_port else port
            udp_port = chosen
        if port is not None:
            with name_in_errors(f"{tcp} {host}:{port}"):
                sock = bind_tcp(family, (host, port, *rest))
            sockets.tcp.append(sock)
            port = sock.getsockname()[1]


def bind_unix(path: str) -> socket.socket:
    """Binds a Unix socket, and replaces one that a previous server has left. Raises ``OSError``."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with name_in_errors(f"--uds {path}"):
            mode = remove_unix(path) or 0o666
            sock.bind(path)
            # The new socket gets the permissions of the previous one, as in uvicorn.
            change_mode(path, mode)
    except BaseException:
        sock.close()
        raise
    return sock


def change_mode(path: str, mode: int) -> None:
    """Changes the permissions of the socket that was just bound, and of no other file at its path."""
    place = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISSOCK(os.fstat(place).st_mode):
            raise OSError(errno.EEXIST, "another process has replaced the socket")
        os.chmod(f"/proc/self/fd/{place}", mode)
    finally:
        os.close(place)


def remove_unix(path: str) -> int:
    """Removes the file of a Unix socket, and no other kind of file. Returns the file's permissions, or 0."""
    with contextlib.suppress(FileNotFoundError):
        found = os.lstat(path)
        if stat.S_ISSOCK(found.st_mode):
            os.remove(path)
            return stat.S_IMODE(found.st_mode)
    return 0


def socket_of(fd: int, option: str, kind: socket.SocketKind) -> socket.socket:
    """Returns a duplicate of the socket with the descriptor ``fd``. Raises ``OSError``.

    The given descriptor stays open.
    """
    with name_in_errors(f"{option} {fd}"):
        sock = socket.socket(fileno=os.dup(fd))
    if sock.type != kind:
        sock.close()
        wanted = "stream" if kind == socket.SOCK_STREAM else "UDP"
        raise OSError(f"cannot listen on {option} {fd}: it is not a {wanted} socket")
    return next(iter(ServerSockets.by_kind([sock])))


def bind_tcp(family: socket.AddressFamily, address: tuple[Any, ...]) -> socket.socket:
    """Binds as ``loop.create_server`` does. Clients cannot connect yet, because it does not listen."""
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
    except BaseException:
        sock.close()
        raise
    return sock


def addresses_of(host: str | None) -> list[Address]:
    with name_in_errors(f"host {host}"):
        answers = socket.getaddrinfo(
            host or None, 0, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE
        )
    # Duplicates are removed, because /etc/hosts often lists an address twice. The order is the resolver's.
    return list(dict.fromkeys((family, address) for family, _, _, _, address in answers))


def at(sock: socket.socket) -> str:
    """Returns a socket's local address as text."""
    name = sock.getsockname()
    if isinstance(name, tuple):
        return f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"
    return os.fsdecode(name)


def log_addresses(config: Config, sockets: ServerSockets) -> None:
    """Logs the addresses of the server."""
    scheme = "https" if config.is_ssl else "http"
    host, port = config.host or "0.0.0.0", config.port
    if sockets.are_given and config.fd is None:
        names = [f"{at(sock)} ({sock.type.name})" for sock in sockets]
        where = f"sockets of systemd: {', '.join(names)}"
    elif config.fd is not None:
        where = f"socket {sockets.tcp[0].getsockname()}"
    elif config.uds is not None:
        where = f"unix socket {config.uds}"
    else:
        where = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
    logger.info("Uvicorn running on %s (Press CTRL+C to quit)", where)
    log_metrics_address(config)


def log_metrics_address(config: Config) -> None:
    """Logs the address of the metrics, if they have a port, and of the status page on it; and that of
    redirects."""
    for sock in config.web.redirect_sockets:
        logger.info("Redirecting http://%s to HTTPS", at(sock))
    for sock in config.metrics_sockets:
        logger.info("Metrics on http://%s%s", at(sock), config.metrics_path or METRICS_PATH)
        if config.status_on_metrics_port:
            logger.info("Status page on http://%s%s", at(sock), config.status_page)


@contextlib.contextmanager
def name_in_errors(what: str) -> Iterator[None]:
    """A context that adds the address to the text of an ``OSError``."""
    try:
        yield
    except OSError as exc:
        is_of_names = isinstance(exc, socket.gaierror)
        why = exc.strerror if is_of_names else os.strerror(exc.errno or 0)
        raise OSError(exc.errno, f"cannot listen on {what}: {why}") from None
