"""Sockets whose methods a program has overridden: their detection, and their transports.

A program may pass a socket whose class defines ``recv()`` or ``send()`` (to count, to record, to encrypt, to
fail in a test), and asyncio calls these methods. Or a program replaces a method of ``socket.socket`` itself,
as tests do that forbid the network. The core would bypass these methods. So such a socket gets asyncio's own
transport, on the loop's watchers, which is as fast as on asyncio.

The methods of ``socket.socket`` are checked when a transport is made; existing transports do not change.
``sock_*`` calls have their own check (``src/py/sock/plain_sockets.rs``).
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ._uringcore import _replaced_socket_methods

if TYPE_CHECKING:
    import contextvars

__all__ = [
    "DATAGRAM_METHODS",
    "STREAM_METHODS",
    "TRANSPORTS_TAKE_A_CONTEXT",
    "AsyncioTransports",
    "accepts_otherwise",
    "are_replaced",
    "stock_get_extra_info",
]

# The methods by which asyncio's transports send and receive.
STREAM_METHODS = ("recv", "recv_into", "send", "sendmsg", "shutdown")
DATAGRAM_METHODS = ("recvfrom", "send", "sendto")

# From CPython 3.15 on, asyncio passes each of its transports the context in which the transport calls its
# protocol.
TRANSPORTS_TAKE_A_CONTEXT = sys.version_info >= (3, 15)

# The classes are read at import, because programs may replace them.
_Socket = socket.socket
stock_get_extra_info = asyncio.BaseTransport.get_extra_info
_stock_check = asyncio.SelectorEventLoop._ensure_fd_no_transport  # type: ignore[attr-defined]


def are_replaced(sock: Any, methods: tuple[str, ...]) -> bool:
    """True if one of `methods` of `sock` is not the one of ``socket.socket``."""
    kind = type(sock)
    replaced = _replaced_socket_methods()
    if replaced and not set(methods).isdisjoint(replaced):
        return True
    if kind is _Socket:
        return False
    # An instance of a subclass may have attributes that its class does not have.
    own: Any = getattr(sock, "__dict__", ())
    return any(
        name in own or getattr(kind, name, None) is not getattr(_Socket, name) for name in methods
    )


def accepts_otherwise(sock: Any) -> bool:
    """True if ``sock`` overrides ``socket.socket.accept``.

    An object around a socket that forwards the call to it, as gunicorn's, does not override it.
    """
    if isinstance(sock, _Socket):
        return are_replaced(sock, ("accept",))
    around = getattr(getattr(sock, "accept", None), "__self__", None)
    return type(around) is not _Socket or are_replaced(around, ("accept",))


class AsyncioTransports:
    """Support for transports of asyncio's own classes on this loop."""

    def _ensure_fd_no_transport(self, fd: Any) -> None:
        core: Any = super()
        core._ensure_fd_no_transport(fd)
        loop: Any = self
        # `_transports` contains only transports of asyncio's own classes, so it is usually empty.
        if loop._transports:
            _stock_check(loop, fd)

    def _serve_in_python(
        self,
        sock: socket.socket,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        tls: tuple[Any, tuple[Any, ...]] | None,
        server: Any,
        context: contextvars.Context,
    ) -> None:
        """Makes asyncio's own transport for a connection that the core has accepted.

        This runs in ``context``, the context of the connection.
        """
        loop: Any = self
        extra = {"peername": sock.getpeername()}
        sslcontext, timeouts = tls or (None, ())
        given = (protocol_factory, sock, extra, sslcontext, server, *timeouts)
        if TRANSPORTS_TAKE_A_CONTEXT:
            accept = loop._accept_connection2(*given, context=context)
            loop.create_task(accept, context=context)
        else:
            loop.create_task(loop._accept_connection2(*given))
