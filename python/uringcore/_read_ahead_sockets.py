"""Sockets that only one loop uses, from which it may therefore read ahead.

Reading ahead is faster: a loop accepts connections and receives datagrams before the program asks for them.
It does so on a socket that it has made and bound itself. A socket that the program passes (``sock=``) may be
inherited or duplicated, so other processes or threads may use it too. From such a socket the loop takes one
connection or datagram at a time, right before it handles it. So a loop that is busy or stopped keeps nothing
back that another process could handle.

Listeners that share a port (``reuse_port``) have separate queues. When one of them closes, the kernel can
give its unaccepted connections to the others, so a loop does not accept ahead there either.

uringcore's server binds its sockets itself, and declares those that no other process has
(:func:`add_own_listeners`). ``_fork_handlers`` handles a fork, which makes all sockets shared. ``src/engine``
does the reading ahead.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import weakref
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

__all__ = ["ExclusiveSockets", "add_own_listeners"]

_Method = TypeVar("_Method", bound=Callable[..., Any])
# The class is read at import, because programs may replace asyncio's name.
_Stock: Any = asyncio.SelectorEventLoop


def _with_asyncio_signature(method: _Method) -> _Method:
    """Gives a method the signature and the docstring of the running version's method."""
    stock = getattr(_Stock, method.__name__)
    functools.update_wrapper(method, stock, assigned=("__doc__",), updated=())
    return method


class ExclusiveSockets:
    """The methods by which a loop gets a listening or a datagram socket."""

    _own_listeners: weakref.WeakSet[socket.socket]
    _protocol_of_own_socket: asyncio.BaseProtocol | None

    @_with_asyncio_signature
    async def create_server(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: Any = None,
        port: Any = None,
        *,
        sock: socket.socket | None = None,
        reuse_port: bool | None = None,
        start_serving: bool = True,
        **options: Any,
    ) -> asyncio.Server:
        base: Any = super()
        given = (protocol_factory, host, port)
        if sock is not None or reuse_port:
            options |= {"sock": sock, "reuse_port": reuse_port, "start_serving": start_serving}
            shared: asyncio.Server = await base.create_server(*given, **options)
            return shared
        server = await base.create_server(*given, start_serving=False, **options)
        return await self._serve_alone(server, start_serving)

    @_with_asyncio_signature
    async def create_unix_server(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        path: Any = None,
        *,
        sock: socket.socket | None = None,
        start_serving: bool = True,
        **options: Any,
    ) -> asyncio.Server:
        base: Any = super()
        if sock is not None:
            options |= {"sock": sock, "start_serving": start_serving}
            shared: asyncio.Server = await base.create_unix_server(
                protocol_factory, path, **options
            )
            return shared
        server = await base.create_unix_server(
            protocol_factory, path, start_serving=False, **options
        )
        return await self._serve_alone(server, start_serving)

    async def _serve_alone(self, server: Any, start_serving: bool) -> asyncio.Server:
        self._own_listeners.update(server._sockets)
        if start_serving:
            server._start_serving()
            # As in asyncio, the server does not accept connections before its caller continues.
            await asyncio.sleep(0)
        alone: asyncio.Server = server
        return alone

    def _is_shared_listener(self, sock: Any) -> bool:
        return sock not in self._own_listeners

    @_with_asyncio_signature
    async def create_datagram_endpoint(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        local_addr: Any = None,
        remote_addr: Any = None,
        *,
        sock: socket.socket | None = None,
        **options: Any,
    ) -> tuple[Any, Any]:
        def make_protocol() -> asyncio.BaseProtocol:
            # asyncio calls `_make_datagram_transport` next, without the information that it has made the
            # socket itself. So the loop recognises its own socket by this protocol.
            self._protocol_of_own_socket = protocol = protocol_factory()
            return protocol

        base: Any = super()
        try:
            made: tuple[Any, Any] = await base.create_datagram_endpoint(
                make_protocol if sock is None else protocol_factory,
                local_addr,
                remote_addr,
                sock=sock,
                **options,
            )
        finally:
            # The attribute is still set if asyncio has made a transport of its own class.
            self._protocol_of_own_socket = None
        return made

    def _is_shared_datagram_socket(self, protocol: asyncio.BaseProtocol) -> bool:
        own, self._protocol_of_own_socket = self._protocol_of_own_socket, None
        return own is not protocol


def add_own_listeners(loop: asyncio.AbstractEventLoop, sockets: Iterable[socket.socket]) -> None:
    """Allows a loop to accept ahead on listening sockets that it gets later by ``sock=``.

    This process must have bound the sockets, and no other process or thread may use them. A fork ends the
    permission.
    """
    if isinstance(loop, ExclusiveSockets):
        loop._own_listeners.update(sockets)
