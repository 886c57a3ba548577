"""Sockets whose bytes pass through Python: which they are, and what carries them.

A program may give asyncio a socket whose class has a ``recv()`` or a ``send()`` of its own (to count,
to record, to encrypt, to fail in a test) and asyncio calls it. The ring knows nothing of methods, so
such a socket gets asyncio's own transport, over the loop's watchers. It is as fast as on asyncio.

Not here: ``sock_*`` calls, which decide for themselves (``src/py/plain_socket.rs``).
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

__all__ = [
    "DATAGRAM_METHODS",
    "LISTENER_METHODS",
    "STREAM_METHODS",
    "AsyncioTransports",
    "are_replaced",
]

# What asyncio's transports call to move bytes.
STREAM_METHODS = ("recv", "recv_into", "send", "sendmsg", "shutdown")
DATAGRAM_METHODS = ("recvfrom", "send", "sendto")
LISTENER_METHODS = ("accept",)

# Bound at import: programs replace the classes.
_Socket = socket.socket
_stock_check = asyncio.SelectorEventLoop._ensure_fd_no_transport  # type: ignore[attr-defined]


def are_replaced(sock: Any, methods: tuple[str, ...]) -> bool:
    """Whether one of `methods` of `sock` is other than ``socket.socket``'s."""
    kind = type(sock)
    if kind is _Socket:
        return False
    # An instance of a subclass may have some that its class has not.
    own: Any = getattr(sock, "__dict__", ())
    return any(
        name in own or getattr(kind, name, None) is not getattr(_Socket, name) for name in methods
    )


class AsyncioTransports:
    """What the loop has to see to where a transport is asyncio's own."""

    def _ensure_fd_no_transport(self, fd: Any) -> None:
        core: Any = super()
        core._ensure_fd_no_transport(fd)
        loop: Any = self
        # asyncio's list of its own transports: empty, as a rule.
        if loop._transports:
            _stock_check(loop, fd)
