"""The values of a transport's ``get_extra_info``.

Each entry is made at its first use, because most connections of a server never use one. An entry costs 0.3 µs
more here than in Rust. The socket over a transport's descriptor, and the addresses, are made by
``src/py/transport/base_transport/extra_info.rs``.
"""

from __future__ import annotations

import socket
from asyncio import trsock
from asyncio.transports import BaseTransport
from typing import Any

from . import _uringcore
from ._overridden_socket_methods import stock_get_extra_info

__all__ = ["everything", "find", "keep_addresses"]


def find(transport: Any, name: str, default: Any) -> Any:
    """Implements ``get_extra_info``.

    If a program has replaced ``asyncio.BaseTransport.get_extra_info``, as test suites do, the replacement is
    called, because asyncio's own transports would call it too.
    """
    method: Any = BaseTransport.get_extra_info
    if method is not stock_get_extra_info:
        # A function is bound to the transport; an object without `__get__` (a mock) is called without it.
        if hasattr(type(method), "__get__"):
            method = method.__get__(transport, type(transport))
        return method(name) if default is None else method(name, default)
    return _entry(transport, name, default)


def everything(transport: Any) -> Any:
    """Returns the transport's dictionary, with the entries that every socket transport has."""
    for name in ("socket", "sockname", "peername"):
        _entry(transport, name)
    return transport._kept


def keep_addresses(transport: Any) -> None:
    """Stores the addresses of a transport that is about to close its descriptor."""
    _entry(transport, "sockname")
    _entry(transport, "peername")


def _entry(transport: Any, name: str, default: Any = None) -> Any:
    kept = transport._kept
    if kept is not None and name in kept:
        return kept[name]
    if name == "socket":
        value: Any = _shown_socket(transport)
    elif name in ("sockname", "peername"):
        value = transport._ask_address(name)
    else:
        return default
    if kept is None:
        kept = transport._kept = {}
    kept[name] = value
    return value


def _shown_socket(transport: Any) -> trsock.TransportSocket:
    """Returns the entry ``socket`` as asyncio does: an object without methods that send or receive bytes."""
    sock = transport._socket()
    return trsock.TransportSocket(_ClosedSocket(transport) if sock is None else sock)


class _ClosedSocket(socket.socket):
    """The socket of a closed transport, as asyncio shows it: closed, with its family and type.

    It is made without a descriptor, because the process may have no free one.
    """

    __slots__ = ("_kind",)

    def __new__(cls, transport: Any) -> _ClosedSocket:
        return super().__new__(cls)

    def __init__(self, transport: Any) -> None:
        self._io_refs = 0
        self._closed = True
        name = _entry(transport, "sockname")
        is_datagram = isinstance(transport, _uringcore.DatagramTransport)
        kind = socket.SOCK_DGRAM if is_datagram else socket.SOCK_STREAM
        if not isinstance(name, tuple):
            self._kind = (socket.AF_UNIX, kind, 0)
            return
        family = socket.AF_INET if len(name) == 2 else socket.AF_INET6
        self._kind = (family, kind, socket.IPPROTO_UDP if is_datagram else socket.IPPROTO_TCP)

    @property
    def family(self) -> socket.AddressFamily:
        return self._kind[0]

    @property
    def type(self) -> socket.SocketKind:
        return self._kind[1]

    @property
    def proto(self) -> int:
        return self._kind[2]
