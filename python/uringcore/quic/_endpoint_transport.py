"""One UDP socket with its QUIC connections: the transport that ``create_quic_endpoint`` returns.

On uringcore's loop the socket belongs to the loop's engine and packets never reach Python. On any other loop
``_foreign_loops`` moves them. :mod:`uringcore.quic._open_endpoint` opens it.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import ipaddress
import socket
from collections.abc import Callable, Sequence
from typing import Any

from uringcore._buffer_arguments import contiguous_bytes
from uringcore._uringcore import LoopCore, QuicEndpoint, QuicServerSetup
from uringcore.quic._accept_settings import AcceptSettings, ProtocolFactory
from uringcore.quic._close_argument_checks import check_code, check_reason
from uringcore.quic._errors import QuicConfigurationError
from uringcore.quic._foreign_loops import ForeignDriver, log_faster_loop
from uringcore.quic._happy_eyeballs import Attempt
from uringcore.quic._udp_sockets import (
    further_socket,
    is_connected,
    name_of,
    numeric_family,
    reachable,
    refuse_further_sockets,
    shares_port,
)
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.connection import QuicConnection

__all__ = ["QuicTransport"]


class QuicTransport(asyncio.BaseTransport):
    """The UDP socket of one or many QUIC connections.

    ``get_extra_info`` has ``"socket"``, ``"sockname"`` and ``"quic_endpoint"``.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
        self._info: dict[str, Any] = {"socket": sock, "sockname": sock.getsockname()}
        super().__init__(self._info)
        self._loop = loop
        self._context = contextvars.copy_context()
        self._sock = sock
        self._owns_socket = True
        self._closing = False
        self._draining = False
        self._is_serving = False
        self._closed: asyncio.Future[None] = loop.create_future()
        self._endpoint: QuicEndpoint | None = None
        self._accept_settings: AcceptSettings | None = None
        self._is_worker = False
        self._driver: ForeignDriver | None = None
        self._datagram_transport: asyncio.DatagramTransport | None = None

    @classmethod
    def over(
        cls,
        loop: asyncio.AbstractEventLoop,
        datagram_transport: asyncio.DatagramTransport,
        accept_settings: AcceptSettings,
    ) -> QuicTransport:
        """Creates a server on a datagram transport that the program has opened, on any loop.

        Its protocol must forward ``datagram_received`` and ``connection_lost``.
        """
        self = cls(loop, datagram_transport.get_extra_info("socket"))
        self._accept_settings = accept_settings
        self._owns_socket = False
        driver = self._open_foreign(accept_settings.options(self))
        self._datagram_transport = datagram_transport
        driver.connection_made(datagram_transport)
        accept_settings.began()
        return self

    def sendto(self, data: bytes | bytearray | memoryview, addr: Any) -> None:
        """Sends a program's own datagram from the endpoint's port, for STUN or to open a NAT binding for a
        peer.

        It is not part of a connection, and leaves before their packets; ``addr`` is ``(host, port)``. As in a
        network, some datagrams are dropped without an error: those that are too large for UDP or for the
        path, more than 256 in a loop iteration, and, if the socket is connected, those to others than its
        peer. On a transport that is closed or drains this does nothing.

        Raises ``TypeError`` and ``ValueError``, which name the argument, and ``OSError`` for an unknown name
        (looking it up blocks, as in asyncio).
        """
        data = contiguous_bytes(data, "data")
        if not isinstance(addr, tuple) or len(addr) not in (2, 4):
            raise TypeError(f"addr: must be an (ip, port) tuple, not {addr!r}")
        remote = reachable(self._sock.family, addr)
        if self._closing or self._draining:
            return
        self._need_endpoint().send_datagram(data, remote)
        if self._driver is not None:
            self._driver.flush()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        """Passes on a datagram of the transport that :meth:`over` was given."""
        if self._driver is not None:
            self._driver.datagram_received(data, addr)

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport that :meth:`over` was given is closed."""
        if self._driver is not None:
            self._driver.connection_lost(exc)

    def connect(
        self,
        protocol_factory: ProtocolFactory,
        remote_addr: Any,
        *,
        configuration: QuicConfiguration,
        transmit: bool = True,
    ) -> Any:
        """Opens a further client connection on this socket and returns its protocol.

        ``remote_addr`` is an ``(ip, port)`` tuple. The handshake has only begun: await the protocol's
        ``wait_connected``. With ``transmit=False`` its first packets wait for the protocol's first
        ``transmit()``, as ``uringcore.asyncio.connect`` explains.
        """
        protocol = self._connection(protocol_factory, configuration)
        if transmit:
            protocol.connect(remote_addr)
        else:
            protocol.connect(remote_addr, transmit=False)
        return protocol

    def reload(self) -> None:
        """Takes up a server's configuration as it is now, for new connections: certificates and keys, say.

        Open connections go on as they are, and are reset with the key of their time. Raises
        ``QuicConfigurationError``, and then nothing has changed.
        """
        if self._accept_settings is None:
            raise RuntimeError("only a server has a configuration to reload")
        self._accept_with(self._accept_settings.setup(), self._accept_settings.reset_keys())

    def _accept_with(self, setup: QuicServerSetup, reset_keys: list[bytes]) -> None:
        """Accepts new connections with this setup from now on.

        Raises ``QuicConfigurationError`` and ``OSError``, and then nothing has changed.
        """
        if not self._is_serving:
            return
        endpoint = self._need_endpoint()
        if reset_keys:
            # This step comes first, because it may raise an exception.
            endpoint.set_reset_keys(reset_keys, self._name_for_keys())
        endpoint.set_server(setup)

    def close(self) -> None:
        """Closes every connection (application error code 0) and then the socket.

        The socket stays open until each peer has answered, or has had time to get the close (three of its
        probe time-outs, together at most 3 seconds): a lost close is sent again when the peer sends another
        packet (RFC 9000 section 10.2.1). Nothing has to wait for that.
        """
        if self._closing:
            return
        self._closing = True
        self._is_serving = False
        if self._loop.is_closed():
            self._sock.close()
            return
        endpoint = self._need_endpoint()
        if self._driver is not None:
            endpoint.close()
            self._driver.end()
            self._driver.flush()
            self._loop.call_later(_CLOSING_MAX, self._driver.abort)
        elif endpoint.close(fd=self._sock.fileno()):
            self._sock.detach()

    def abort(self) -> None:
        """Equals :meth:`close`: closes the connections without waiting."""
        self.close()

    def drop(self) -> None:
        """Closes a client that the program never received. On other loops than uringcore's, where the program
        would have to wait for :meth:`close`, the socket is closed at once.
        """
        self.close()
        if self._driver is not None:
            self._driver.abort()

    def drain(self) -> None:
        """Refuses new connections from now on; the socket is closed when the last one has ended."""
        if self._closing or self._draining:
            return
        self._draining = True
        self._is_serving = False
        endpoint = self._need_endpoint()
        if endpoint.drain(fd=self._sock.fileno()):
            self._sock.detach()
        if self._driver is not None:
            self._driver.end()
            self._driver.flush()

    def is_closing(self) -> bool:
        """True if :meth:`close` was called."""
        return self._closing

    def lingers(self) -> bool:
        """True if a closed transport waits for peers that may not have got the close.

        On other loops than uringcore's the program has to keep the loop running meanwhile.
        """
        return (
            self._driver is None and not self._closed.done() and not self._need_endpoint().may_end
        )

    async def wait_closed(self) -> None:
        """Waits until the socket is released."""
        await asyncio.shield(self._closed)

    def flush(self) -> None:
        """Sends queued data. uringcore's loop does this automatically at the end of a loop iteration."""
        if self._driver is not None:
            self._driver.flush()

    def stop_accepting(self) -> None:
        """Refuses new connections from now on; open connections and the socket continue."""
        if self._closing:
            return
        self._is_serving = False
        self._need_endpoint().stop_accepting()

    def close_connections(self, error_code: int = 0, reason_phrase: str = "") -> None:
        """Closes every connection with an application's error code. The socket stays open.

        Raises ``ValueError`` for a code that does not fit in 62 bits, and then nothing is closed.
        """
        check_code(error_code, "error_code")
        check_reason(reason_phrase, "reason_phrase")
        if self._closing:
            return
        self._need_endpoint().close_connections(error_code, reason_phrase)
        self.flush()

    def is_serving(self) -> bool:
        """True if a server accepts new connections."""
        return self._is_serving

    def stats(self) -> dict[str, int]:
        """Counters of the endpoint: connections, datagrams and bytes in both directions."""
        return self._need_endpoint().stats()

    def _connection(self, factory: ProtocolFactory, configuration: QuicConfiguration) -> Any:
        quic = QuicConnection(configuration=configuration)
        quic._attach(self._need_endpoint())
        protocol = factory(quic)
        protocol.connection_made(self)
        return protocol

    def _attempt(
        self,
        configuration: QuicConfiguration,
        remote: tuple[Any, ...],
        prepare: Callable[[QuicConnection], object] | None,
    ) -> Attempt:
        """Begins a handshake that has no protocol yet."""
        quic = QuicConnection(configuration=configuration)
        quic._attach(self._need_endpoint())
        if prepare is not None:
            prepare(quic)
        attempt = Attempt(self, quic, remote)
        quic.connect(remote, now=self._loop.time())
        self.flush()
        return attempt

    def _made(self, factory: ProtocolFactory, attempt: Attempt) -> Any:
        """Returns the protocol of an attempt whose handshake is complete, after the events so far were
        delivered to the protocol."""
        attempt.stop_receiving()
        protocol = factory(attempt.quic)
        protocol.connection_made(self)
        attempt.hand_over()
        self.flush()
        return protocol

    def _need_endpoint(self) -> QuicEndpoint:
        if self._endpoint is None:
            raise RuntimeError("the QUIC endpoint is not open")
        return self._endpoint

    async def _open(
        self, options: dict[str, Any], preferred: Sequence[tuple[str, int]] = ()
    ) -> None:
        if isinstance(self._loop, LoopCore):
            self._is_serving = "server" in options
            self._endpoint = QuicEndpoint.on_loop(
                self._loop, self._sock.fileno(), on_closed=self._released, **self._named(options)
            )
            self._info["quic_endpoint"] = self._endpoint
            deliver = self._endpoint.deliver_events
            self._endpoint.set_on_answer(functools.partial(self._call_soon, deliver))
            try:
                for address in preferred:
                    await self._receive_at(address)
            except BaseException:
                # The caller must not close the socket: either the engine owns it, or it has returned it and
                # `close` closes it.
                self.close()
                raise
            return
        if preferred:
            raise QuicConfigurationError(
                "preferred_address", "needs sockets of uringcore's own event loop"
            )
        driver = self._open_foreign(options)
        if is_connected(self._sock):
            self._need_endpoint().keep_to_peer()
        self._datagram_transport, _ = await self._loop.create_datagram_endpoint(
            lambda: driver, sock=self._sock
        )

    def _open_foreign(self, options: dict[str, Any]) -> ForeignDriver:
        """Opens an endpoint whose packets a datagram transport moves; the driver gets the transport later."""
        log_faster_loop(self._loop)
        self._is_serving = "server" in options
        self._endpoint = QuicEndpoint.sans_io(now=self._loop.time(), **self._named(options))
        self._info["quic_endpoint"] = self._endpoint
        self._driver = ForeignDriver(self._loop, self._endpoint, self._released)
        self._endpoint.set_on_answer(functools.partial(self._call_soon, self._driver.flush))
        self._endpoint.set_on_error(self._report)
        return self._driver

    def _named(self, options: dict[str, Any]) -> dict[str, Any]:
        """Adds the socket's name, from which reset keys are derived, to the options."""
        self._is_worker = options["worker"] is not None
        name = self._name_for_keys() if options["reset_keys"] else b""
        return {**options, "socket_name": name}

    def _name_for_keys(self) -> bytes:
        """The name of the socket, from which reset keys are derived; no other socket gets it from now on.

        Raises ``QuicConfigurationError`` if the socket shares its port (SO_REUSEPORT) or its address
        (SO_REUSEADDR).
        """
        if not self._is_worker and shares_port(self._sock):
            raise QuicConfigurationError(
                "stateless_reset_key",
                "the socket shares its port (SO_REUSEPORT), and servers with one key would end each "
                "other's connections: make them workers of a PortGroup, or leave the key out",
            )
        if not refuse_further_sockets(self._sock):
            raise QuicConfigurationError(
                "stateless_reset_key",
                "another socket is bound to the address (SO_REUSEADDR), and servers with one key would "
                "end each other's connections: close it, or leave the key out",
            )
        return name_of(self._sock)

    def _report(self, message: str, exc: BaseException) -> None:
        """Reports an exception on other loops in the manner of uringcore's own loop."""
        self._loop.call_exception_handler({"message": message, "exception": exc})

    def _call_soon(self, callback: Callable[[], None]) -> None:
        """Delivers a result of a session store's thread, or drops it if the loop is closed.

        It runs in the context of the transport's creation, because it calls the program.
        """
        try:
            self._loop.call_soon_threadsafe(callback, context=self._context)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    async def _receive_at(self, address: tuple[str, int]) -> None:
        """Makes sure that the socket receives datagrams to an address of the server."""
        name = self._sock.getsockname()
        family = numeric_family(address[0])
        is_for_all = ipaddress.ip_address(name[0]).is_unspecified
        takes_v4 = self._sock.family == socket.AF_INET or name[0] == "::"
        is_of_family = takes_v4 if family == socket.AF_INET else self._sock.family == family
        if name[1] == address[1] and is_of_family and (is_for_all or name[0] == address[0]):
            return
        await self._add_socket(address)

    async def _add_socket(
        self, local_addr: Any, remote: tuple[Any, ...] | None = None
    ) -> tuple[int, tuple[Any, ...]]:
        """Adds a further socket and returns its number and its name; for ``remote``, of its family.

        Without ``local_addr`` the system chooses one.
        """
        sock = await further_socket(self._loop, local_addr, remote)
        if self._driver is not None:
            return await self._driver.add_socket(sock, remote)
        name = sock.getsockname()
        return self._need_endpoint().add_socket(sock.detach()), name

    def _remove_socket(self, number: int) -> None:
        """Closes a further socket; the first one, 0, is closed with the transport only."""
        if not number or self._closed.done():
            return
        if self._driver is None:
            self._need_endpoint().remove_socket(number)
        else:
            self._driver.remove_socket(number)

    def _moved(self, name: tuple[Any, ...]) -> None:
        self._info["sockname"] = name

    def _released(self) -> None:
        self._closing = True
        self._is_serving = False
        if self._owns_socket:
            self._sock.close()
        if not self._closed.done() and not self._loop.is_closed():
            self._closed.set_result(None)


# The maximum number of seconds for which the engine keeps a closed endpoint's socket open, to repeat
# CONNECTION_CLOSE packets.
_CLOSING_MAX = 3.0
