"""One UDP socket with its QUIC connections: ``create_quic_endpoint`` and the transport it returns.

On uringcore's loop the socket belongs to the loop's engine and packets never reach Python. On any
other loop ``foreign`` moves them.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import ipaddress
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from uringcore._uringcore import LoopCore, QuicEndpoint, QuicServerSetup
from uringcore.quic.acceptance import (
    Acceptance,
    ProtocolFactory,
    ServerFactory,
    endpoint_options,
)
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.connection import QuicConnection
from uringcore.quic.errors import QuicConfigurationError
from uringcore.quic.eyeballs import ATTEMPT_DELAY, Attempt, first_to_answer, interleaved
from uringcore.quic.foreign import ForeignDriver, say_what_is_faster
from uringcore.quic.limits import RetryPolicy, ServerLimits
from uringcore.quic.sessions import SessionStore
from uringcore.quic.sockets import (
    bound_socket,
    connect_socket,
    further_socket,
    is_connected,
    numeric_family,
    resolve,
)
from uringcore.quic.workers import PortWorker

__all__ = ["ProtocolFactory", "QuicTransport", "create_quic_endpoint"]


class ConnectionProtocol(Protocol):
    """What a connection's protocol is called with."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...


class QuicTransport(asyncio.BaseTransport):
    """The UDP socket of one or many QUIC connections.

    ``get_extra_info`` knows ``"socket"``, ``"sockname"`` and ``"quic_endpoint"``.
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
        self._make_setup: Callable[[], QuicServerSetup] | None = None
        self._driver: ForeignDriver | None = None
        self._datagram_transport: asyncio.DatagramTransport | None = None

    @classmethod
    def over(
        cls,
        loop: asyncio.AbstractEventLoop,
        datagram_transport: asyncio.DatagramTransport,
        acceptance: Acceptance,
    ) -> QuicTransport:
        """A server on a datagram transport that the program has opened, on any loop.

        Its protocol must hand on ``datagram_received`` and ``connection_lost``.
        """
        self = cls(loop, datagram_transport.get_extra_info("socket"))
        self._make_setup = acceptance.setup
        self._owns_socket = False
        driver = self._open_foreign(acceptance.options(self))
        self._datagram_transport = datagram_transport
        driver.connection_made(datagram_transport)
        acceptance.began()
        return self

    def datagram_received(self, data: bytes, addr: Any) -> None:
        """A datagram on a transport that :meth:`over` was given."""
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

        ``remote_addr`` is an ``(ip, port)`` tuple. The handshake is only begun: await the
        protocol's ``wait_connected``. With ``transmit=False`` its first packets wait for the
        protocol's first ``transmit()``, as ``uringcore.asyncio.connect`` explains.
        """
        protocol = self._connection(protocol_factory, configuration)
        if transmit:
            protocol.connect(remote_addr)
        else:
            protocol.connect(remote_addr, transmit=False)
        return protocol

    def reload(self) -> None:
        """Takes up a server's configuration as it is now, for new connections: certificates, say.

        Open connections go on as they are. Raises ``QuicConfigurationError``, and then nothing has
        changed.
        """
        if self._make_setup is None:
            raise RuntimeError("only a server has a configuration to reload")
        setup = self._make_setup()
        if self._is_serving:
            self._need_endpoint().set_server(setup)

    def close(self) -> None:
        """Closes every connection (application error code 0) and then the socket.

        The socket stays open until each peer has answered, or had time to hear of it (three of its
        probe time-outs, together at most 3 seconds): a close that was lost is sent again when the
        peer goes on talking (RFC 9000 section 10.2.1). Nothing has to wait for that.
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
        """The same as :meth:`close`: the peers are told, nothing is waited for."""
        self.close()

    def drop(self) -> None:
        """The same as :meth:`close` for a client that nobody misses: on other loops than uringcore's,
        where somebody would have to wait for it, the socket is closed at once."""
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
        """Whether :meth:`close` was called."""
        return self._closing

    def lingers(self) -> bool:
        """Whether a closed transport waits for peers that may not have heard of it.

        Only on uringcore's loop is nobody needed for that.
        """
        return (
            self._driver is None and not self._closed.done() and not self._need_endpoint().may_end
        )

    async def wait_closed(self) -> None:
        """Waits until the socket is released."""
        await asyncio.shield(self._closed)

    def flush(self) -> None:
        """Sends what is queued. The uringcore loop does that by itself at the end of a turn."""
        if self._driver is not None:
            self._driver.flush()

    def stop_accepting(self) -> None:
        """Refuses new connections from now on; those that are open go on, and so does the socket."""
        if self._closing:
            return
        self._is_serving = False
        self._need_endpoint().stop_accepting()

    def close_connections(self, error_code: int = 0, reason_phrase: str = "") -> None:
        """Closes every connection with an application's error code; the socket stays open."""
        if self._closing:
            return
        self._need_endpoint().close_connections(error_code, reason_phrase)
        self.flush()

    def is_serving(self) -> bool:
        """Whether new connections are accepted, on a server."""
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
        prepare: Callable[[QuicConnection], None] | None,
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
        """The protocol of a handshake that is complete, which has heard of all that happened."""
        attempt.let_go()
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
                self._loop, self._sock.fileno(), on_closed=self._released, **options
            )
            self._info["quic_endpoint"] = self._endpoint
            deliver = self._endpoint.deliver_events
            self._endpoint.set_on_answer(functools.partial(self._call_soon, deliver))
            try:
                for address in preferred:
                    await self._receive_at(address)
            except BaseException:
                # The engine gives the socket back first, or takes it; the caller closes nothing.
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
        """Packets are moved by a datagram transport, which the driver has to be told."""
        say_what_is_faster(self._loop)
        self._is_serving = "server" in options
        self._endpoint = QuicEndpoint.sans_io(now=self._loop.time(), **options)
        self._info["quic_endpoint"] = self._endpoint
        self._driver = ForeignDriver(self._loop, self._endpoint, self._released)
        self._endpoint.set_on_answer(functools.partial(self._call_soon, self._driver.flush))
        self._endpoint.set_on_error(self._report)
        return self._driver

    def _report(self, message: str, exc: BaseException) -> None:
        """As uringcore's own loop does, on another one."""
        self._loop.call_exception_handler({"message": message, "exception": exc})

    def _call_soon(self, callback: Callable[[], None]) -> None:
        """For a session store's thread, whose answers nobody wants once the loop is closed.

        What they cause is the program's: it runs in the context in which this was opened.
        """
        try:
            self._loop.call_soon_threadsafe(callback, context=self._context)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    async def _receive_at(self, address: tuple[str, int]) -> None:
        """Makes sure that datagrams to an address of a server's arrive."""
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
        """A further socket, as its number and its name; for ``remote``, of the same family.

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


async def create_quic_endpoint(
    loop: asyncio.AbstractEventLoop,
    protocol_factory: ServerFactory,
    local_addr: tuple[Any, ...] | None = None,
    remote_addr: tuple[Any, ...] | None = None,
    *,
    configuration: QuicConfiguration,
    sock: socket.socket | None = None,
    family: int = 0,
    reuse_port: bool | None = None,
    retry: RetryPolicy = "auto",
    limits: ServerLimits | None = None,
    worker: PortWorker | None = None,
    session_store: SessionStore | None = None,
    transmit: bool = True,
    happy_eyeballs_delay: float | None = ATTEMPT_DELAY,
) -> tuple[QuicTransport, Any]:
    """Opens a UDP socket for QUIC, in the manner of ``loop.create_datagram_endpoint``.

    With ``remote_addr`` it is a client: one connection is begun, ``protocol_factory(quic)`` makes
    its protocol, and ``(transport, protocol)`` is returned; await ``protocol.wait_connected()``.
    ``transmit=False`` holds its first packets back, as :meth:`QuicTransport.connect` says.
    A name with several addresses is connected to as :func:`connect_first` explains, and then the
    handshake is complete when this returns, and raises what it can raise; with ``transmit=False``,
    and on a given ``sock``, it is the first address.

    Without, it is a server (``configuration.is_client`` must be false): ``protocol_factory(quic)``
    is called for each accepted connection and ``(transport, None)`` is returned. A server may have
    one factory for each application protocol, as a mapping from names to factories.

    ``sock`` is a bound UDP socket to take over, instead of the addresses; ``worker`` one of a
    :class:`~uringcore.quic.workers.PortGroup`, which has a socket. ``retry`` says when a server
    validates a client's address first (RFC 9000 section 8.1.2), and ``limits`` what else it may
    answer; both are explained in :mod:`uringcore.quic.limits`. ``session_store`` goes before
    the configuration's, and with it a server reads 0-RTT data.

    Raises ``QuicConfigurationError`` naming the field, ``ValueError`` for arguments that do not go
    together, and ``OSError`` when the socket cannot be made.
    """
    if remote_addr is None:
        if configuration.is_client:
            raise ValueError("remote_addr: a client's configuration needs an address to connect to")
        if worker is not None and (sock is not None or local_addr is not None):
            raise ValueError("worker: has a socket of its own, no other can be given")
        acceptance = Acceptance(
            protocol_factory,
            configuration,
            retry=retry,
            limits=limits,
            worker=worker,
            session_store=session_store,
        )
        if worker is not None:
            sock = worker.socket.dup()
        server = await open_server(
            loop, acceptance, local_addr, sock=sock, family=family, reuse_port=reuse_port
        )
        return server, None
    if not configuration.is_client:
        raise ValueError("remote_addr: the configuration says is_client=False")
    if isinstance(protocol_factory, Mapping) or worker is not None:
        raise ValueError("protocol_factory, worker: a mapping and a worker are for servers")
    if sock is not None and local_addr is not None:
        raise ValueError("local_addr: a given socket is bound already")
    configuration.setup()
    addresses = interleaved(await resolve(loop, remote_addr, family))
    if sock is None and transmit and len(addresses) > 1:
        return await connect_first(
            loop,
            protocol_factory,
            addresses,
            local_addr,
            configuration=configuration,
            limits=limits,
            reuse_port=reuse_port,
            happy_eyeballs_delay=happy_eyeballs_delay,
        )
    family, remote = addresses[0]
    sock = sock or await bound_socket(loop, local_addr, family, reuse_port)
    transport = await _open(loop, sock, lambda _: endpoint_options(configuration, limits))
    try:
        protocol = transport.connect(
            protocol_factory, remote, configuration=configuration, transmit=transmit
        )
        return transport, protocol
    except BaseException:
        transport.close()
        raise


async def connect_first(
    loop: asyncio.AbstractEventLoop,
    protocol_factory: ProtocolFactory,
    addresses: Sequence[tuple[int, tuple[Any, ...]]],
    local_addr: tuple[Any, ...] | None = None,
    *,
    configuration: QuicConfiguration,
    prepare: Callable[[QuicConnection], None] | None = None,
    limits: ServerLimits | None = None,
    reuse_port: bool | None = None,
    happy_eyeballs_delay: float | None = ATTEMPT_DELAY,
) -> tuple[QuicTransport, Any]:
    """A client's endpoint and protocol at the first of ``addresses`` that completes a handshake.

    The next address is tried ``happy_eyeballs_delay`` seconds after the one before, or as soon as
    one has failed; ``None``, and a ``local_addr`` with a port, try them one by one. When one has won,
    the protocol is made, once, and told of the events so far; its own ``connect`` is not called.
    ``prepare`` is called with each connection before it begins.

    The session ticket and the token are shown at the first address only that can be sent to: they may
    be used once, and whoever sees them at several knows that it is one client (RFC 8446 appendix C.4,
    RFC 9000 section 8.1.3).
    """
    anonymous = configuration._without_credentials()
    known: Attempt | None = None

    async def begin(family: int, remote: tuple[Any, ...]) -> Attempt:
        nonlocal known
        is_first = known is None or known.has_reached_nobody
        mine = configuration if is_first else anonymous
        sock = await bound_socket(loop, local_addr, family, reuse_port)
        if not isinstance(loop, LoopCore):
            connect_socket(sock, remote)
        transport = await _open(loop, sock, lambda _: endpoint_options(mine, limits))
        try:
            attempt = transport._attempt(mine, remote, prepare)
        except BaseException:
            transport.drop()
            raise
        if is_first:
            known = attempt
        return attempt

    shares_port = local_addr is not None and bool(local_addr[1])
    delay = None if shares_port else happy_eyeballs_delay
    attempt = await first_to_answer(addresses, begin, delay, shares_port)
    transport: Any = attempt.transport
    try:
        return transport, transport._made(protocol_factory, attempt)
    except BaseException:
        transport.drop()
        raise


async def open_server(
    loop: asyncio.AbstractEventLoop,
    acceptance: Acceptance,
    local_addr: tuple[Any, ...] | None = None,
    *,
    sock: socket.socket | None = None,
    family: int = 0,
    reuse_port: bool | None = None,
) -> QuicTransport:
    """A server's endpoint on a new socket, or on ``sock``."""
    if sock is not None and local_addr is not None:
        raise ValueError("local_addr: a given socket is bound already")
    sock = sock or await bound_socket(loop, local_addr, family, reuse_port)
    transport = await _open(loop, sock, acceptance.options, acceptance.preferred_address)
    transport._make_setup = acceptance.setup
    acceptance.began()
    return transport


async def _open(
    loop: asyncio.AbstractEventLoop,
    sock: socket.socket,
    options: Callable[[QuicTransport], dict[str, Any]],
    preferred: Sequence[tuple[str, int]] = (),
) -> QuicTransport:
    try:
        transport = QuicTransport(loop, sock)
        await transport._open(options(transport), preferred)
    except BaseException:
        sock.close()
        raise
    return transport


# As long as the engine waits for peers that may not have heard of a close.
_CLOSING_MAX = 3.0
