"""What a transport answers to ``get_extra_info``.

Each entry is made when somebody asks for it: most connections
of a server are never asked.

Not here: the socket over a transport's descriptor, and the addresses (``src/py/transport/extra_info.rs``).

Answers made here cost 0.3 µs more than in Rust.
"""

from __future__ import annotations

import socket
from asyncio import trsock
from asyncio.transports import BaseTransport
from typing import Any

from . import _uringcore
from ._own_methods import stock_get_extra_info

__all__ = ["everything", "find", "keep_addresses"]


def find(transport: Any, name: str, default: Any) -> Any:
    """As ``asyncio.BaseTransport.get_extra_info``, or as what a program has put in its place.

    It is the one method that asyncio's transports inherit as it is, so whoever replaces it there (test
    suites do) means every transport.
    """
    method: Any = BaseTransport.get_extra_info
    if method is not stock_get_extra_info:
        # A function becomes a method, what is no descriptor (a mock) stays what it is.
        if hasattr(type(method), "__get__"):
            method = method.__get__(transport, type(transport))
        return method(name) if default is None else method(name, default)
    return _entry(transport, name, default)


def everything(transport: Any) -> Any:
    """The transport's own dictionary, with the entries that every socket transport has."""
    for name in ("socket", "sockname", "peername"):
        _entry(transport, name)
    return transport._kept


def keep_addresses(transport: Any) -> None:
    """The addresses go with the descriptor."""
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
    """The socket as asyncio shows it: without the methods that would move bytes past the transport."""
    sock = transport._socket()
    return trsock.TransportSocket(_ClosedSocket(transport) if sock is None else sock)


class _ClosedSocket(socket.socket):
    """Stands for the socket of a transport that has ended, as asyncio shows it then: closed, and of its kind.

    Made without a descriptor, of which there may be none left.
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
