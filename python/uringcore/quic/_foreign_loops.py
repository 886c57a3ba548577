"""QUIC on an event loop other than uringcore's: a ``DatagramProtocol`` drives the sans-IO endpoint.

This is how uringcore's QUIC runs on stock asyncio or uvloop. It is correct and not fast: every datagram
passes through Python, which the logger ``uringcore`` reports once. uringcore's own loop uses none of this.

Such a loop does not report the peer of an ICMP error. A client's socket is therefore connected: then it has
only one peer, and a closed port is reported at once. A client that moves to another network (``migrate``)
gets a further socket, with a transport of its own.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, cast

from uringcore.quic._udp_sockets import connect_socket

if TYPE_CHECKING:
    from uringcore.quic.connection import QuicConnection

__all__ = ["ForeignDriver", "OwnConnection", "SansIo", "log_faster_loop"]


class SansIo(Protocol):
    """The object that a driver drives: an endpoint, or a connection without one."""

    def receive_datagram(self, data: bytes, addr: Any, now: float, socket: int = 0) -> None: ...
    def datagrams_to_send(self, now: float) -> list[tuple[bytes, Any]]: ...
    def datagrams_by_socket(self, now: float) -> list[tuple[bytes, Any, int]]: ...
    def get_timer(self) -> float | None: ...
    def handle_timer(self, now: float) -> None: ...
    def deliver_events(self) -> None: ...
    def unreachable(self, addr: Any, errno: int, now: float) -> None: ...
    @property
    def may_end(self) -> bool: ...


class Way:
    """A datagram transport, and the form of address with which a driver sends through it."""

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)
        # An IPv6 socket needs addresses with four fields.
        name = transport.get_extra_info("sockname")
        self._maps_v4 = name is not None and len(name) == 4
        # The address to which the socket is connected; None if it is not.
        self.peer: Any = transport.get_extra_info("peername")

    def send(self, data: bytes, addr: Any) -> None:
        if self.peer is not None:
            # A connected socket cannot send to another address, so the packet is dropped, as if it were lost.
            if addr[:2] == self.peer[:2]:
                self.transport.sendto(data)
            return
        if self._maps_v4 and len(addr) == 2:
            addr = ("::ffff:" + addr[0], addr[1], 0, 0)
        self.transport.sendto(data, addr)


class _FurtherSocket(asyncio.DatagramProtocol):
    """Passes datagrams of a further socket to the driver.

    It ignores errors of the network: only established connections have such a socket, and they ignore these
    errors too.
    """

    def __init__(self, driver: ForeignDriver, number: int) -> None:
        self._driver = driver
        self._number = number

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._driver._received_at(self._number, data, addr)


class ForeignDriver(asyncio.DatagramProtocol):
    """Moves datagrams and the time between a foreign loop and ``sans_io``."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sans_io: SansIo,
        on_closed: Callable[[], None] | None = None,
    ) -> None:
        self._loop = loop
        self._sans_io = sans_io
        self._on_closed = on_closed
        self._first: Way | None = None
        self._further: dict[int, Way] = {}
        self._numbers = itertools.count(1)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: float | None = None
        # True while events are delivered. A receiver of an event may send, which must not deliver further
        # events before this delivery has ended.
        self._pumping = False
        self._again = False
        self._ending = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._first = Way(transport)

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._sans_io_call(self._sans_io.receive_datagram, data, addr, self._loop.time())

    def error_received(self, exc: Exception) -> None:
        peer = self.peer
        if peer is None or not isinstance(exc, OSError) or exc.errno not in _UNREACHABLE:
            # The error names no peer, so it cannot be assigned to a connection.
            return
        # The error is reported in the next iteration, because `sendto` may call this method while events are
        # delivered.
        self._loop.call_soon(self._report_unreachable, peer, exc.errno)

    def _report_unreachable(self, peer: Any, number: int) -> None:
        self._sans_io_call(self._sans_io.unreachable, peer, number, self._loop.time())

    def connection_lost(self, exc: Exception | None) -> None:
        self._first = None
        self._close_further()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._on_closed is not None:
            self._on_closed()

    def flush(self) -> None:
        """Delivers the events that commands have caused, sends packets that are due, and sets the timer."""
        self._sans_io_call(self._sans_io.deliver_events)

    def end(self) -> None:
        """Closes the transport when nothing more has to be sent to any peer."""
        self._ending = True

    def abort(self) -> None:
        """Closes the transport now."""
        self._close_further()
        if self._first is not None:
            self._first.transport.close()

    @property
    def peer(self) -> Any:
        """The address that the endpoint's first socket is connected to, or None."""
        return None if self._first is None else self._first.peer

    async def add_socket(self, sock: socket.socket, remote: Any) -> tuple[int, Any]:
        """Adds a bound socket, which is closed with the first one at the latest.

        It is connected to ``remote`` if the first one is connected. Returns its number and its name.
        """
        if self.peer is not None:
            connect_socket(sock, remote)
        name = sock.getsockname()
        if len(self._further) >= _FURTHER_MAX:
            sock.close()
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        number = next(self._numbers)
        try:
            transport, _ = await self._loop.create_datagram_endpoint(
                lambda: _FurtherSocket(self, number), sock=sock
            )
        except BaseException:
            sock.close()
            raise
        self._further[number] = Way(transport)
        return number, name

    def remove_socket(self, number: int) -> None:
        """Closes a further socket."""
        way = self._further.pop(number, None)
        if way is not None:
            way.transport.close()

    def _close_further(self) -> None:
        for number in list(self._further):
            self.remove_socket(number)

    def _received_at(self, number: int, data: bytes, addr: Any) -> None:
        self._sans_io_call(self._sans_io.receive_datagram, data, addr, self._loop.time(), number)

    def _sans_io_call(self, call: Callable[..., None], *args: Any) -> None:
        if self._pumping:
            self._again = True
            return
        self._pumping = True
        try:
            call(*args)
            while self._again:
                self._again = False
                self._sans_io.deliver_events()
        finally:
            self._pumping = False
            self._send()

    def _send(self) -> None:
        first = self._first
        if first is None:
            return
        if self._further:
            for data, addr, number in self._sans_io.datagrams_by_socket(self._loop.time()):
                way = first if number == 0 else self._further.get(number)
                if way is not None:
                    way.send(data, addr)
        else:
            for data, addr in self._sans_io.datagrams_to_send(self._loop.time()):
                first.send(data, addr)
        if self._ending and self._sans_io.may_end:
            self.abort()
            return
        at = self._sans_io.get_timer()
        if at != self._timer_at or self._timer is None:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None if at is None else self._loop.call_at(at, self._handle_timer)
            self._timer_at = at

    def _handle_timer(self) -> None:
        self._timer = None
        due = self._timer_at if self._timer_at is not None else 0.0
        self._timer_at = None
        self._sans_io_call(self._sans_io.handle_timer, max(due, self._loop.time()))


class OwnConnection:
    """A connection without an endpoint, with the methods of an endpoint that the driver of a foreign loop
    calls."""

    def __init__(self, quic: QuicConnection, is_connected: bool) -> None:
        self._quic = quic
        # A connected socket reaches one peer only, so the connection must not move to another address.
        self._is_to_keep_to_peer = is_connected
        self.datagrams_to_send = quic.datagrams_to_send
        self.get_timer = quic.get_timer
        self.handle_timer = quic.handle_timer

    @property
    def may_end(self) -> bool:
        return self._quic.is_closed

    def receive_datagram(self, data: bytes, addr: Any, now: float, socket: int = 0) -> None:
        endpoint = self._quic._endpoint
        if endpoint is not None and self._is_to_keep_to_peer:
            self._is_to_keep_to_peer = False
            endpoint.keep_to_peer()
        if endpoint is not None and socket:
            endpoint.receive_datagram(data, addr, now, socket)
        else:
            self._quic.receive_datagram(data, addr, now)

    def datagrams_by_socket(self, now: float) -> list[tuple[bytes, Any, int]]:
        endpoint = self._quic._endpoint
        return [] if endpoint is None else endpoint.datagrams_by_socket(now)

    def unreachable(self, addr: Any, errno: int, now: float) -> None:
        endpoint = self._quic._endpoint
        if endpoint is not None:
            endpoint.unreachable(addr, errno, now)

    def deliver_events(self) -> None:
        # A connection with a receiver passes all events to it within `next_event`.
        self._quic.next_event()


def log_faster_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Logs, once a process, that QUIC is faster on uringcore's own loop."""
    global _said
    if not _said:
        _said = True
        logging.getLogger("uringcore").info(
            "QUIC on %s: every datagram passes through Python; on uringcore's own loop "
            "(uringcore.run) none does, which is several times faster",
            type(loop).__qualname__,
        )


_said = False
# The maximum number of further sockets, which is also that of uringcore's loop.
_FURTHER_MAX = 63
# Errors that mean an unreachable peer: those of ICMP messages (RFC 1122 section 3.2.2.1), and those of this
# machine for an address without a route.
_UNREACHABLE = frozenset(
    {
        errno.ECONNREFUSED,
        errno.EHOSTUNREACH,
        errno.ENETUNREACH,
        errno.EHOSTDOWN,
        errno.ENETDOWN,
        errno.ENOPROTOOPT,
        errno.EACCES,
        errno.EPERM,
        errno.EADDRNOTAVAIL,
        errno.EAFNOSUPPORT,
        errno.EINVAL,
    }
)
