"""``listen``: a server, whose connections are accepted one by one."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

from uringcore.quic._acceptance import Acceptance
from uringcore.quic._closing import check_close
from uringcore.quic._endpoint import open_server
from uringcore.quic._errors import ListenerClosedError
from uringcore.quic._native.backlog import Backlog
from uringcore.quic._native.config import Certificate, ServerConfig
from uringcore.quic._native.connection import Connection
from uringcore.quic._native.contexts import AwaitableContext, ClosedOnExit
from uringcore.quic._native.link import Link
from uringcore.quic._native.origin import end_forgotten, made_at
from uringcore.quic._transport import QuicTransport
from uringcore.quic.connection import QuicConnection
from uringcore.quic.packet import QuicErrorCode

__all__ = ["Listener", "listen"]


class Listener(ClosedOnExit):
    """A server's socket. Connections whose handshake is complete wait to be accepted, and with
    ``early_data`` those that bring some before that: ``backlog`` of them; more are refused.

    ``async with listener:`` closes it at the end of the block, with its connections. One that the
    program forgets is closed when it is collected.
    """

    def __init__(self, transport: QuicTransport, backlog: Backlog[Link]) -> None:
        """Not for programs: listeners are made by :func:`~uringcore.quic.listen`."""
        self._transport = transport
        self._backlog = backlog
        self._is_closed = False
        self._origin = made_at(asyncio.get_running_loop())

    @property
    def address(self) -> tuple[str, int]:
        """The address and port that it is bound to."""
        name = self._transport.get_extra_info("sockname")
        return str(name[0]), int(name[1])

    @property
    def is_closed(self) -> bool:
        """True if it was closed."""
        return self._is_closed

    def stats(self) -> dict[str, int]:
        """Counters: connections, datagrams and bytes in both directions, who was refused and why."""
        return self._transport.stats()

    async def accept(self) -> Connection:
        """The next connection. Cancelled, it has taken none.

        Raises :class:`ListenerClosedError` once the listener is closed.
        """
        while (link := self._backlog.take()) is None:
            if self._is_closed:
                raise ListenerClosedError("the listener is closed")
            await self._backlog.wait()
        return Connection(link)

    def __aiter__(self) -> Listener:
        return self

    async def __anext__(self) -> Connection:
        try:
            return await self.accept()
        except ListenerClosedError:
            raise StopAsyncIteration from None

    def stop_accepting(self) -> None:
        """Refuses new connections from now on; those that are open, or wait to be accepted, go on."""
        self._transport.stop_accepting()

    def close(self, code: int = 0, reason: str = "") -> None:
        """Closes all connections, with an error code of the application's and a reason, and then the
        socket. What is queued and not yet sent is dropped.

        Raises ``ValueError`` for a code that does not fit in 62 bits, and then nothing is closed.
        """
        check_close(code, reason)
        if self._is_closed:
            return
        self._is_closed = True
        _close(self._transport, self._backlog, code, reason)

    async def wait_closed(self) -> None:
        """Waits until the socket is released: until each peer has heard, or had the time to."""
        await self._transport.wait_closed()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {'closed' if self._is_closed else 'open'}>"

    def __del__(self) -> None:
        transport, loop = self._transport, self._transport._loop
        if not self._is_closed and not loop.is_closed():
            left = (transport, self._backlog, 0, "")
            end_forgotten("listener", self, self._origin, loop, _close, *left)


def _close(transport: QuicTransport, backlog: Backlog[Link], code: int, reason: str) -> None:
    transport.stop_accepting()
    transport.close_connections(code, reason)
    transport.close()
    backlog.clear()


def listen(
    host: str,
    port: int,
    config: ServerConfig | None = None,
    *,
    certificate: Certificate | None = None,
    alpn: Sequence[str] | None = None,
    reuse_port: bool = False,
) -> AwaitableContext[Listener]:
    """Listens for QUIC connections: ``async with listen(...) as listener:``, or
    ``listener = await listen(...)``, and then the program closes it.

    ``certificate`` and ``alpn`` go before those of ``config``; a certificate is needed. ``"::"`` takes
    IPv4 as well, and port 0 is one of the system's choice. ``reuse_port`` lets sockets of several
    programs bind the port.

    Raises :class:`QuicConfigurationError` for an impossible setting, ``TypeError`` without a
    certificate, and ``OSError`` when the address cannot be bound.
    """
    if config is None:
        if certificate is None:
            raise TypeError("listen() needs a certificate or a config")
        config = ServerConfig(certificate=certificate, alpn=() if alpn is None else alpn)
    else:
        given = {"certificate": certificate, "alpn": alpn}
        changes: dict[str, Any] = {k: v for k, v in given.items() if v is not None}
        config = dataclasses.replace(config, **changes) if changes else config
    return AwaitableContext(functools.partial(_listen, (host, port), config, reuse_port))


async def _listen(address: tuple[str, int], config: ServerConfig, reuse_port: bool) -> Listener:
    loop = asyncio.get_running_loop()
    # The endpoint has the backlog and not the listener, which the program can forget.
    backlog: Backlog[Link] = Backlog(loop, config.backlog)

    def connected(link: Link) -> None:
        if not backlog.enter(link):
            reason = "too many wait to be accepted"
            link.close_about(QuicErrorCode.CONNECTION_REFUSED, 0, reason)

    def made(quic: QuicConnection) -> Link:
        return Link(
            quic,
            datagram_bytes=config.datagram_buffer,
            drops_newest=config.datagram_overflow == "newest",
            close_timeout=config.close_timeout,
            on_connected=connected,
        )

    acceptance = Acceptance(made, config._configuration, retry=config.retry, limits=config.limits)
    transport = await open_server(loop, acceptance, address, reuse_port=reuse_port)
    return Listener(transport, backlog)
