"""``free_port``: a number for a server that needs an explicit port.

A program that reports its port is started with port 0; this is for the others. A port that the kernel chose
is of no use to them: until such a server binds it, the kernel may give it to any socket that connects. A
concurrent test must not get it either: an abstract socket name, which all tests in the machine's network
namespace can see, reserves the number until this process ends.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

__all__ = ["free_port"]

CANDIDATES: Iterable[int] = range(10_000, 65_536)
RESERVED = "uringcore-port-"
"""Begins the abstract Unix address that reserves a number."""


def free_port() -> int:
    """Returns a number that is free for TCP and UDP on every interface, and that neither the kernel nor
    another process that calls this function gives away.
    """
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    candidates = [port for port in CANDIDATES if not low <= port <= high]
    random.Random().shuffle(candidates)
    for port in candidates:
        if all(_is_free(family, port) for family in (socket.AF_INET, socket.AF_INET6)) and _take(
            port
        ):
            return port
    raise RuntimeError("no port is free outside of net.ipv4.ip_local_port_range")


def _take(port: int) -> bool:
    """Reserves a port by an abstract Unix address, which is unique and exists until this process ends."""
    name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        name.bind(f"\0{RESERVED}{port}")
    except OSError:
        name.close()
        return False
    name.detach()
    return True


def _is_free(family: socket.AddressFamily, port: int) -> bool:
    with ExitStack() as opened:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            try:
                probe = opened.enter_context(socket.socket(family, kind))
            except OSError:
                # A machine without IPv6.
                return family == socket.AF_INET6
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if kind == socket.SOCK_STREAM:
                # Servers set this too: connections in TIME_WAIT do not block the port.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError:
                return False
    return True
