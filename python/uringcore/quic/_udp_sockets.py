"""UDP sockets for QUIC: resolved, bound, with large buffers.

Receiving is in :mod:`uringcore.quic._endpoint_transport`, sharing a port in :mod:`uringcore.quic.workers`.

A secret for stateless resets is refused on a socket with SO_REUSEPORT outside of a ``PortGroup``, whose port
no other program can bind, and on one whose address another socket has. SO_REUSEADDR is switched off: reset
keys are derived from the socket's name, which must belong to one live socket.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import struct
from typing import Any

from uringcore.quic._host_argument_checks import check_bound, number_of

__all__ = [
    "bind_udp",
    "bound_socket",
    "connect_socket",
    "further_socket",
    "is_connected",
    "make_room",
    "name_of",
    "numeric_family",
    "reachable",
    "refuse_further_sockets",
    "resolve",
    "shares_port",
]

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def bind_udp(
    family: int, address: tuple[Any, ...], *, reuse_port: bool = False, only_v6: bool = False
) -> socket.socket:
    """Returns a non-blocking UDP socket bound to ``address``; ``"::"`` accepts IPv4 peers as well.

    ``only_v6`` excludes IPv4. Raises ``OSError``, which names the address.
    """
    sock = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        if family == socket.AF_INET6:
            # IPv4 is received as well only on a socket that is bound to "::", as in aioquic.
            only_v6 = only_v6 or address[0] != "::"
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only_v6)
        if reuse_port:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        make_room(sock)
        sock.bind(address)
    except OSError as exc:
        sock.close()
        raise OSError(exc.errno, f"error while binding to {address!r}: {exc.strerror}") from None
    return sock


async def resolve(
    loop: asyncio.AbstractEventLoop, addr: tuple[Any, ...], family: int = 0
) -> list[tuple[int, tuple[Any, ...]]]:
    """Returns the socket addresses of ``(host, port[, flowinfo, scope_id])`` as ``(family, address)`` pairs.

    A numeric host needs no look-up, which would cost a thread.
    """
    numeric = numeric_family(addr[0])
    port = number_of(addr[1])
    # If the port is the name of a service, the system resolves it.
    if numeric and family in (0, numeric) and not isinstance(port, str):
        return [(numeric, (addr[0], port, *addr[2:]))]
    infos = await loop.getaddrinfo(addr[0], addr[1], family=family, type=socket.SOCK_DGRAM)
    if not infos:
        raise OSError(f"getaddrinfo() returned nothing for {addr[0]!r}")
    return [(info[0], info[4]) for info in infos]


async def bound_socket(
    loop: asyncio.AbstractEventLoop,
    local_addr: tuple[Any, ...] | None,
    family: int,
    reuse_port: bool | None = None,
) -> socket.socket:
    """Returns a bound UDP socket for QUIC; without a host in ``local_addr``, on all addresses."""
    host, port = (None, 0) if local_addr is None else local_addr[:2]
    check_bound(host, port)
    # An empty host means all addresses, as for asyncio's servers.
    if not host or local_addr is None:
        family = family or socket.AF_INET
        every = "::" if family == socket.AF_INET6 else "0.0.0.0"
        address: tuple[Any, ...] = (every, number_of(port))
    else:
        family, address = (await resolve(loop, local_addr, family))[0]
    return bind_udp(family, address, reuse_port=bool(reuse_port))


async def further_socket(
    loop: asyncio.AbstractEventLoop, local_addr: Any, remote: tuple[Any, ...] | None
) -> socket.socket:
    """Returns an additional UDP socket that is bound. It has the address family of ``remote``."""
    family = 0 if remote is None else numeric_family(remote[0])
    if local_addr is not None:
        found = (await resolve(loop, local_addr))[0]
        if family not in (0, found[0]):
            raise ValueError(
                f"local_addr: {local_addr[0]} cannot reach {remote[0] if remote else None}"
            )
        local_addr = found[1]
    return await bound_socket(loop, local_addr, family)


def connect_socket(sock: socket.socket, remote: tuple[Any, ...]) -> None:
    """Connects the socket: on other loops than uringcore's, only a connected one reports that there is no
    peer.
    """
    try:
        sock.connect(remote)
    except BaseException:
        sock.close()
        raise


def is_connected(sock: socket.socket) -> bool:
    """True if the socket has one peer."""
    try:
        sock.getpeername()
    except OSError:
        return False
    return True


def numeric_family(host: str) -> int:
    """Returns the address family of a numeric address. 0 if ``host`` is a name."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return family
    return 0


def name_of(sock: Any) -> bytes:
    """Returns the name of a bound socket, from which keys are derived that no other socket may have: its
    addresses.

    Two sockets have one name only through ``SO_REUSEPORT`` (:func:`shares_port`) or ``SO_REUSEADDR``
    (:func:`refuse_further_sockets`). ``sock`` has a ``fileno()``; other loops have sockets of their own kind.
    """
    with socket.socket(fileno=os.dup(sock.fileno())) as own:
        host, port, *more = own.getsockname()
        # The scope of an IPv6 address is added to the name below, as a number.
        packed = _unmapped(ipaddress.ip_address(host.partition("%")[0])).packed
        scope = more[1] if more else 0
        device = own.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, _DEVICE_NAME_MAX)
    # The name begins with the length of the address, so that an IPv4 and an IPv6 address never have the same
    # name.
    return struct.pack("!BHI", len(packed), port, scope) + packed + device.rstrip(b"\0")


def shares_port(sock: Any) -> bool:
    """True if other sockets may be bound to the socket's address (``SO_REUSEPORT``)."""
    with socket.socket(fileno=os.dup(sock.fileno())) as own:
        return bool(own.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT))


def refuse_further_sockets(sock: Any) -> bool:
    """Prevents further sockets from being bound to the address. Returns False, and changes nothing, if
    another one is bound to it already.

    With ``SO_REUSEADDR`` on both, which systemd sets, the kernel gives the newer one all unicast datagrams.
    """
    with socket.socket(fileno=os.dup(sock.fileno())) as own:
        reuse_address = own.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
        if not reuse_address and own.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT):
            # This socket belongs to a worker of a PortGroup. Only its siblings, which have SO_REUSEPORT, can
            # be bound to its address.
            return True
        # This comes first, so that no other socket can be bound to the address between the check and the end
        # of sharing.
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        is_shared = True
        try:
            is_shared = _shares_address(own)
        finally:
            if is_shared:
                own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse_address)
        return not is_shared


def _shares_address(own: socket.socket) -> bool:
    """True if the kernel's tables have another UDP socket with the address of this one.

    The tables lack scopes and devices, so a link-local address or a bound device is assumed to be alone. So
    is every socket if ``/proc`` cannot be read. A connected socket does not count: it gets datagrams of one
    peer.
    """
    host, port, *more = own.getsockname()
    device = own.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, _DEVICE_NAME_MAX)
    if device.rstrip(b"\0") or (more and more[1]):
        return False
    address, inode = _unmapped(ipaddress.ip_address(host)), os.fstat(own.fileno()).st_ino
    for table in ("/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"):
        try:
            with open(table, encoding="ascii") as lines:
                entries = [line.split() for line in lines][1:]
        except (FileNotFoundError, PermissionError):
            continue
        for entry in entries:
            # proc(5): an address is written as 32-bit words in the machine's byte order.
            words, _, its_port = entry[1].partition(":")
            is_connected = int(entry[2].partition(":")[2], 16) != 0
            if int(its_port, 16) != port or int(entry[9]) == inode or is_connected:
                continue
            packed = b"".join(
                struct.pack("=I", int(words[at : at + 8], 16)) for at in range(0, len(words), 8)
            )
            if _unmapped(ipaddress.ip_address(packed)) == address:
                return True
    return False


def _unmapped(address: _Address) -> _Address:
    """An IPv4 address that is mapped into IPv6 (RFC 4291 section 2.5.5.2) as what it is."""
    return getattr(address, "ipv4_mapped", None) or address


def reachable(family: int, addr: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns the numeric address by which a socket of ``family`` sends to ``(host, port[, flowinfo,
    scope_id])``.

    Looking up a name blocks. Raises ``TypeError``, ``ValueError`` and ``OSError``.
    """
    host, port = addr[:2]
    if not isinstance(host, str):
        raise TypeError(f"addr: the host must be str, not {type(host).__name__}")
    if not isinstance(port, int):
        raise TypeError(f"addr: the port must be int, not {type(port).__name__}")
    if not 0 < port < 65536:
        raise ValueError(f"addr: the port must be from 1 to 65535, not {port}")
    numeric = numeric_family(host)
    if not numeric:
        flags = socket.AI_V4MAPPED if family == socket.AF_INET6 else 0
        return socket.getaddrinfo(host, port, family, socket.SOCK_DGRAM, flags=flags)[0][4]
    if numeric == family:
        return (host, port) if family == socket.AF_INET else addr
    if family == socket.AF_INET:
        raise ValueError(f"addr: a socket for IPv4 does not reach {host}")
    return (f"::ffff:{host}", port, 0, 0)


def make_room(sock: socket.socket) -> None:
    """Enlarges the receive buffer for datagrams that arrive while the loop is busy: the system's default
    holds some 270 small datagrams, and further ones are lost. The system may permit less
    (``net.core.rmem_max``).
    """
    # The kernel doubles the requested size, for its own overhead, and reports the doubled size.
    if sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) < 2 * _RECEIVE_BUFFER:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)


_RECEIVE_BUFFER = 1 << 20
_DEVICE_NAME_MAX = 16
"IFNAMSIZ"
