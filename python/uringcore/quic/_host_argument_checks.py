"""Checks of the arguments ``host`` and ``port``, made before a name is looked up: errors of the look-up do
not say which argument is wrong.

``_udp_sockets`` looks names up, and ``_happy_eyeballs`` chooses among their addresses.
"""

from __future__ import annotations

from typing import Any

__all__ = ["check_bound", "check_target", "number_of", "server_name_of"]


def check_target(host: Any, port: Any) -> None:
    """Raises ``TypeError`` or ``ValueError`` naming the argument. A port may be text: a number, or the name
    of a service of the system.
    """
    if not isinstance(host, str):
        raise TypeError(f"host: must be text, not {type(host).__name__}")
    if not host:
        raise ValueError("host: must not be empty")
    _check_port(port, 1)


def check_bound(host: Any, port: Any, prefix: str = "") -> None:
    """Raises the errors of :func:`check_target` for an address to be bound. No host stands for all addresses,
    and with port 0 the system chooses one. ``prefix`` begins the names of the arguments."""
    if host is not None and not isinstance(host, str):
        raise TypeError(f"{prefix}host: must be text, not {type(host).__name__}")
    _check_port(port, 0, prefix)


def _check_port(port: Any, least: int, prefix: str = "") -> None:
    if isinstance(port, bool) or not isinstance(port, (int, str)):
        raise TypeError(f"{prefix}port: must be a number, not {type(port).__name__}")
    if isinstance(port, str) and not (port.isascii() and port.isdecimal()):
        if not port:
            raise ValueError(f"{prefix}port: must not be empty")
        return
    if not least <= int(port) <= 65535:
        raise PortRangeError(f"{prefix}port: must be from {least} to 65535, not {port}")


class PortRangeError(ValueError, OverflowError):
    """The number is not that of a port. It is also an ``OverflowError``, which sockets, and so aioquic,
    raise."""


def number_of(port: Any) -> Any:
    """Returns the port as an integer, if it is a text with a number."""
    return int(port) if isinstance(port, str) and port.isascii() and port.isdecimal() else port


def server_name_of(host: str) -> str:
    """Returns the name that the server's certificate must contain: for an IPv6 address, without the zone."""
    return host.partition("%")[0] if ":" in host else host
