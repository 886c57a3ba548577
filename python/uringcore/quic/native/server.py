"""``listen``: a server, whose connections are accepted one by one."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from collections.abc import Generator, Sequence
from types import TracebackType
from typing import Any

from uringcore.quic.acceptance import Acceptance
from uringcore.quic.connection import QuicConnection
from uringcore.quic.endpoint import open_server
from uringcore.quic.errors import ListenerClosed
from uringcore.quic.native.config import Certificate, ServerConfig
from uringcore.quic.native.connection import Connection
from uringcore.quic.native.link import Link
from uringcore.quic.packet import QuicErrorCode
from uringcore.quic.transport import QuicTransport

__all__ = ["Listener", "Listening", "listen"]


def listen(
    host: str,
    port: int,
    config: ServerConfig | None = None,
    *,
    certificate: Certificate | None = None,
    alpn: Sequence[str] | None = None,
    reuse_port: bool = False,
) -> Listening:
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
    return Listening(host, port, config, reuse_port)


class Listening:
    """What :func:`listen` returns: nothing happens before it is awaited or entered."""

    def __init__(self, host: str, port: int, config: ServerConfig, reuse_port: bool) -> None:
        self._address = (host, port)
        self._config = config
        self._reuse_port = reuse_port
        self._listener: Listener | None = None

    def __await__(self) -> Generator[object, None, Listener]:
        return self._listen().__await__()

    async def __aenter__(self) -> Listener:
        self._listener = await self._listen()
        return self._listener

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.__aexit__(exc_type, exc_value, traceback)

    async def _listen(self) -> Listener:
        loop = asyncio.get_running_loop()
        config = self._config
        listener = Listener(loop, config.backlog)

        def made(quic: QuicConnection) -> Link:
            return Link(
                quic,
                datagram_bytes=config.datagram_buffer,
                close_timeout=config.close_timeout,
                on_connected=listener._connected,
            )

        acceptance = Acceptance(
            made, config._configuration, retry=config.retry, limits=config.limits
        )
        listener._transport = await open_server(
            loop, acceptance, self._address, reuse_port=self._reuse_port
        )
        return listener


class Listener:
    """A server's socket. Connections whose handshake is complete wait to be accepted, ``backlog`` of
    them; more are refused.

    ``async with listener:`` closes it at the end of the block, with its connections.
    """

    _transport: QuicTransport

    def __init__(self, loop: asyncio.AbstractEventLoop, backlog: int) -> None:
        self._loop = loop
        self._backlog = backlog
        # Not connections yet: those close themselves when nobody has them, and warn.
        self._waiting: deque[Link] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._is_closed = False

    @property
    def address(self) -> tuple[str, int]:
        """The address and port that it is bound to."""
        name = self._transport.get_extra_info("sockname")
        return str(name[0]), int(name[1])

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._is_closed

    def stats(self) -> dict[str, int]:
        """Counters: connections, datagrams and bytes in both directions, who was refused and why."""
        return self._transport.stats()

    async def accept(self) -> Connection:
        """The next connection. Cancelled, it has taken none.

        Raises :class:`ListenerClosed` once the listener is closed.
        """
        while not self._waiting:
            if self._is_closed:
                raise ListenerClosed("the listener is closed")
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    # It was woken, and leaves: the connection is for the next one.
                    self._wake()
                raise
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
        return Connection(self._waiting.popleft())

    def __aiter__(self) -> Listener:
        return self

    async def __anext__(self) -> Connection:
        try:
            return await self.accept()
        except ListenerClosed:
            raise StopAsyncIteration from None

    def stop_accepting(self) -> None:
        """Refuses new connections from now on; those that are open, or wait to be accepted, go on."""
        self._transport.stop_accepting()

    def close(self, code: int = 0, reason: str = "") -> None:
        """Closes all connections, with an error code of the application's and a reason, and then the
        socket. What is queued and not yet sent is dropped."""
        if self._is_closed:
            return
        self._is_closed = True
        self._transport.stop_accepting()
        self._transport.close_connections(code, reason)
        self._transport.close()
        self._waiting.clear()
        while self._waiters:
            self._wake()

    async def wait_closed(self) -> None:
        """Waits until the socket is released: until each peer has heard, or had the time to."""
        await self._transport.wait_closed()

    async def __aenter__(self) -> Listener:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
        await self.wait_closed()

    def _connected(self, link: Link) -> None:
        if len(self._waiting) >= self._backlog:
            link.close_about(QuicErrorCode.CONNECTION_REFUSED, 0, "too many wait to be accepted")
            return
        self._waiting.append(link)
        self._wake()

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
