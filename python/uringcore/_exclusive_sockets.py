"""Sockets that belong to one loop alone, so that it may read ahead from them.

Where it is faster and safe, a loop accepts connections and receives datagrams before the program asks for
them: from a socket that it has made and bound itself. A socket that the program gives (``sock=``) may belong
to other processes or threads as well, as an inherited or duplicated one does. From such a socket the loop
takes one connection or datagram at a time, when it is about to handle it. So a process that computes, or is
stopped, withholds nothing from the others. Listeners of one port (``reuse_port``) have separate queues, but
when one of them closes, the kernel can give its unaccepted connections to the others. uringcore's server
passes sockets that it has bound itself, and declares those that no other process has
(:func:`add_own_listeners`).

``_fork_handlers`` handles a fork, which makes all sockets shared. ``src/engine`` does the reading ahead.
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
# Bound at import: programs replace the class.
_Stock: Any = asyncio.SelectorEventLoop


def _takes_what_asyncios_does(method: _Method) -> _Method:
    """Gives a method the signature and the docstring of the running version's method."""
    stock = getattr(_Stock, method.__name__)
    functools.update_wrapper(method, stock, assigned=("__doc__",), updated=())
    return method


class ExclusiveSockets:
    """The methods by which a loop gets a listening or a datagram socket."""

    _own_listeners: weakref.WeakSet[socket.socket]
    _protocol_of_own_socket: asyncio.BaseProtocol | None

    @_takes_what_asyncios_does
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

    @_takes_what_asyncios_does
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
            # As in asyncio, the server has started when the caller continues.
            await asyncio.sleep(0)
        alone: asyncio.Server = server
        return alone

    def _is_shared_listener(self, sock: Any) -> bool:
        return sock not in self._own_listeners

    @_takes_what_asyncios_does
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
            # asyncio makes the transport next, without passing on the origin of the socket.
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
            # asyncio's own transport leaves it set.
            self._protocol_of_own_socket = None
        return made

    def _is_shared_datagram_socket(self, protocol: asyncio.BaseProtocol) -> bool:
        own, self._protocol_of_own_socket = self._protocol_of_own_socket, None
        return own is not protocol


def add_own_listeners(loop: asyncio.AbstractEventLoop, sockets: Iterable[socket.socket]) -> None:
    """Allows one of our loops to accept ahead on sockets that it will be given.

    This process must have bound them, and no other process or thread may have them. A fork ends that.
    """
    if isinstance(loop, ExclusiveSockets):
        loop._own_listeners.update(sockets)
