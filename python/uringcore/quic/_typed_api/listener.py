"""``listen``: a server, whose program accepts connections one by one."""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import Sequence
from typing import overload

from uringcore.quic._close_argument_checks import check_close
from uringcore.quic._endpoint_transport import QuicTransport
from uringcore.quic._errors import ListenerClosedError
from uringcore.quic._typed_api.accepted_connections import AcceptedConnections
from uringcore.quic._typed_api.await_and_async_with import AwaitableContext, ClosedOnExit
from uringcore.quic._typed_api.certificates import CertificateSource
from uringcore.quic._typed_api.config import ServerConfig
from uringcore.quic._typed_api.connection import Connection
from uringcore.quic._typed_api.listener_settings import settings_of
from uringcore.quic._typed_api.listener_socket import Binding
from uringcore.quic._typed_api.unclosed_objects import end_forgotten, made_at
from uringcore.quic.workers import PortWorker

__all__ = ["Listener", "listen"]


class Listener(ClosedOnExit):
    """A server's socket. Up to ``backlog`` connections wait for :meth:`accept`: those with a complete
    handshake, and with ``early_data`` those that have sent early data. More are refused.

    ``async with listener:`` closes it at the end of the block, with its connections. An unreferenced listener
    is closed when it is collected.
    """

    def __init__(self, transport: QuicTransport, accepted: AcceptedConnections) -> None:
        """Internal: :func:`~uringcore.quic.listen` makes listeners."""
        self._transport = transport
        self._accepted = accepted
        self._is_closed = False
        self._origin = made_at(asyncio.get_running_loop())

    @property
    def address(self) -> tuple[str, int]:
        """The address and port that the listener's socket is bound to."""
        name = self._transport.get_extra_info("sockname")
        return str(name[0]), int(name[1])

    @property
    def is_closed(self) -> bool:
        """True if the listener was closed."""
        return self._is_closed

    def stats(self) -> dict[str, int]:
        """Counters: connections, datagrams and bytes in both directions, and refusals by reason."""
        return self._transport.stats()

    async def accept(self) -> Connection:
        """Returns the next connection. A cancelled call has taken none.

        Raises :class:`ListenerClosedError` once the listener is closed.
        """
        backlog = self._accepted.backlog
        while (link := backlog.take()) is None:
            if self._is_closed:
                raise ListenerClosedError("the listener is closed")
            await backlog.wait()
        return Connection(link)

    def __aiter__(self) -> Listener:
        return self

    async def __anext__(self) -> Connection:
        try:
            return await self.accept()
        except ListenerClosedError:
            raise StopAsyncIteration from None

    def reload(self, config: ServerConfig | None = None) -> None:
        """Reads the files of the settings again (certificates, keys, authorities), or applies other settings,
        for new connections. Open connections continue unchanged.

        Sessions stay good under another certificate too, and so do tokens, unless ``token_keys`` lacks
        their key now. Connections from before a change of ``stateless_reset_key`` are reset with the key of
        their time. A ``config`` may differ in everything but ``connection_id_length``, ``limits`` and
        ``preferred_address``, which belong to the socket. The call blocks the loop while it reads files.

        Raises :class:`QuicConfigurationError`, which names the field, if a file is invalid (it may be half
        replaced) or a field cannot change, and then nothing has changed;
        :class:`ListenerClosedError` if the listener does not accept any more.
        """
        self._accepted.reload(self._transport, config)

    def stop_accepting(self) -> None:
        """Refuses new connections from now on. Open connections, and those that wait for :meth:`accept`,
        continue.
        """
        self._transport.stop_accepting()

    def close(self, code: int = 0, reason: str = "") -> None:
        """Closes all connections, with an application's error code and a reason, and then the socket. Queued
        data that is not yet sent is dropped.

        Raises ``ValueError`` for a code that does not fit in 62 bits, and then nothing is closed.
        """
        check_close(code, reason)
        if self._is_closed:
            return
        self._is_closed = True
        _close(self._transport, self._accepted, code, reason)

    async def drain(self, timeout: float | None = None) -> None:
        """Refuses new connections, waits until the open ones have ended, and closes the socket.

        A worker sends new clients to the next worker of its port, by a Retry. Connections in the backlog can
        be accepted meanwhile. After ``timeout`` seconds the remaining connections are closed with code 0;
        ``None`` waits without a limit. After a cancellation the listener refuses connections until
        :meth:`close` is called.
        """
        self._transport.drain()
        done, _ = await asyncio.wait([self._transport._closed], timeout=timeout)
        if not done:
            self.close()
            await self.wait_closed()
        self._is_closed = True
        self._accepted.backlog.clear()

    async def wait_closed(self) -> None:
        """Waits until the socket is released, which is after each peer has received the close or had time for
        it.
        """
        await self._transport.wait_closed()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {'closed' if self._is_closed else 'open'}>"

    def __del__(self) -> None:
        transport, loop = self._transport, self._transport._loop
        if not self._is_closed and not loop.is_closed():
            left = (transport, self._accepted, 0, "")
            end_forgotten("listener", self, self._origin, loop, _close, *left)


def _close(transport: QuicTransport, accepted: AcceptedConnections, code: int, reason: str) -> None:
    transport.stop_accepting()
    transport.close_connections(code, reason)
    transport.close()
    accepted.backlog.clear()


@overload
def listen(
    host: str,
    port: int,
    config: ServerConfig | None = None,
    *,
    certificate: CertificateSource | None = None,
    certificates: Sequence[CertificateSource] | None = None,
    alpn: Sequence[str] | None = None,
    reuse_port: bool = False,
) -> AwaitableContext[Listener]: ...


@overload
def listen(
    *,
    config: ServerConfig | None = None,
    certificate: CertificateSource | None = None,
    certificates: Sequence[CertificateSource] | None = None,
    alpn: Sequence[str] | None = None,
    workers: PortWorker,
) -> AwaitableContext[Listener]: ...


@overload
def listen(
    *,
    config: ServerConfig | None = None,
    certificate: CertificateSource | None = None,
    certificates: Sequence[CertificateSource] | None = None,
    alpn: Sequence[str] | None = None,
    sock: socket.socket,
) -> AwaitableContext[Listener]: ...


def listen(
    host: str | None = None,
    port: int | None = None,
    config: ServerConfig | None = None,
    *,
    certificate: CertificateSource | None = None,
    certificates: Sequence[CertificateSource] | None = None,
    alpn: Sequence[str] | None = None,
    reuse_port: bool = False,
    workers: PortWorker | None = None,
    sock: socket.socket | None = None,
) -> AwaitableContext[Listener]:
    """Listens for QUIC connections: ``async with listen(...) as listener:``, or
    ``listener = await listen(...)``, and then the program closes it.

    ``certificate``, ``certificates`` and ``alpn`` override those of ``config``; a certificate is needed.
    ``"::"`` takes IPv4 as well, and with port 0 the system chooses. ``reuse_port`` lets sockets of several
    programs bind the port.

    Instead of ``host`` and ``port``, ``workers`` is this process's part of a
    :class:`~uringcore.quic.workers.PortGroup`: several processes serve one port, each with a listener. The
    group's keys are used if ``config`` has none. Or ``sock`` is a bound UDP socket that is not connected,
    which the listener owns and closes.

    Raises :class:`QuicConfigurationError` for an impossible setting, ``TypeError`` without a certificate or
    an address, ``ValueError`` for arguments that exclude each other, and ``OSError`` if the address cannot
    be bound.
    """
    binding = Binding.checked(
        "listen()", host, port, reuse_port=reuse_port, workers=workers, sock=sock
    )
    config = settings_of(
        "listen()", config, certificate=certificate, certificates=certificates, alpn=alpn
    )
    return AwaitableContext(functools.partial(_listen, binding, config))


async def _listen(binding: Binding, config: ServerConfig) -> Listener:
    loop = asyncio.get_running_loop()
    accepted = AcceptedConnections(loop, config, binding.workers)
    transport = await binding.open(loop, accepted.served.accept_settings)
    return Listener(transport, accepted)
