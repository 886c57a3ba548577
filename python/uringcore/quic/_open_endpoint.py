"""Opening a UDP socket for QUIC: ``create_quic_endpoint``, for a server or for a client's first address that
answers. The result is a :class:`~uringcore.quic._endpoint_transport.QuicTransport`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from uringcore._uringcore import LoopCore
from uringcore.quic._accept_settings import (
    AcceptSettings,
    ProtocolFactory,
    ServerFactory,
    endpoint_options,
)
from uringcore.quic._endpoint_transport import QuicTransport
from uringcore.quic._happy_eyeballs import ATTEMPT_DELAY, Attempt, first_to_answer, interleaved
from uringcore.quic._udp_sockets import bound_socket, connect_socket, resolve
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.connection import QuicConnection
from uringcore.quic.limits import RetryPolicy, ServerLimits
from uringcore.quic.sessions import SessionStore
from uringcore.quic.workers import PortWorker

__all__ = ["begin_at", "connect_first", "create_quic_endpoint", "open_server"]


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

    With ``remote_addr`` it is a client: one connection is begun, ``protocol_factory(quic)`` makes its
    protocol, and ``(transport, protocol)`` is returned; await ``protocol.wait_connected()``.
    ``transmit=False`` holds its first packets back, as :meth:`QuicTransport.connect` explains. For a name
    with several addresses, :func:`connect_first` chooses the address; then the handshake is complete when
    this returns, and its errors are raised here. With ``transmit=False``, and on a given ``sock``, the first
    address is used.

    Without ``remote_addr`` it is a server (``configuration.is_client`` must be false):
    ``protocol_factory(quic)`` is called for each accepted connection and ``(transport, None)`` is returned. A
    server may have one factory for each application protocol, as a mapping from names to factories.

    ``sock`` is a bound UDP socket to take over, instead of the addresses; ``worker`` is a worker of a
    :class:`~uringcore.quic.workers.PortGroup`, which has a socket. ``retry`` chooses when a server
    validates a client's address first (RFC 9000 section 8.1.2), and ``limits`` its other answers; both are
    explained in :mod:`uringcore.quic.limits`. ``session_store`` overrides the configuration's, and with it a
    server reads 0-RTT data.

    Raises ``QuicConfigurationError`` naming the field, ``ValueError`` for arguments that exclude each other,
    and ``OSError`` when the socket cannot be made.
    """
    if remote_addr is None:
        if configuration.is_client:
            raise ValueError("remote_addr: a client's configuration needs an address to connect to")
        if worker is not None and (sock is not None or local_addr is not None):
            raise ValueError("worker: has a socket of its own, no other can be given")
        accept_settings = AcceptSettings(
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
            loop, accept_settings, local_addr, sock=sock, family=family, reuse_port=reuse_port
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


async def begin_at(
    loop: asyncio.AbstractEventLoop,
    protocol_factory: ProtocolFactory,
    target: tuple[int, tuple[Any, ...]],
    local_addr: tuple[Any, ...] | None = None,
    *,
    configuration: QuicConfiguration,
    transmit: bool = True,
) -> tuple[QuicTransport, Any]:
    """Returns a client's endpoint and protocol at one address, with its handshake only begun: the protocol
    exists earlier and may send first.
    """
    family, address = target
    sock = None
    if not isinstance(loop, LoopCore):
        # On a loop that is not uringcore's, only a connected socket gets the error that the port is closed.
        sock = await bound_socket(loop, local_addr, family)
        with contextlib.suppress(OSError):
            # A failure of the connect is ignored, because the first packet of the handshake fails with the
            # same error.
            sock.connect(address)
    return await create_quic_endpoint(
        loop,
        protocol_factory,
        local_addr if sock is None else None,
        address,
        configuration=configuration,
        sock=sock,
        family=family,
        transmit=transmit,
    )


async def connect_first(
    loop: asyncio.AbstractEventLoop,
    protocol_factory: ProtocolFactory,
    addresses: Sequence[tuple[int, tuple[Any, ...]]],
    local_addr: tuple[Any, ...] | None = None,
    *,
    configuration: QuicConfiguration,
    prepare: Callable[[QuicConnection], object] | None = None,
    limits: ServerLimits | None = None,
    reuse_port: bool | None = None,
    happy_eyeballs_delay: float | None = ATTEMPT_DELAY,
) -> tuple[QuicTransport, Any]:
    """Returns a client's endpoint and protocol at the first of ``addresses`` that completes a handshake.

    The next address is tried ``happy_eyeballs_delay`` seconds after the previous one, or as soon as one has
    failed; ``None``, and a ``local_addr`` with a port, try them one by one. When an attempt has succeeded,
    the protocol is made, once, and gets the events so far; its own ``connect`` is not called. ``prepare`` is
    called with each connection before it begins.

    The session ticket and the token are sent only to the first reachable address: they may be used once, and
    an observer of several addresses could link them to one client (RFC 8446 appendix C.4, RFC 9000 section
    8.1.3).
    """
    anonymous = configuration._without_credentials()
    known: Attempt | None = None

    async def begin(family: int, remote: tuple[Any, ...]) -> Attempt:
        nonlocal known
        is_first = known is None or known.has_no_route
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
    accept_settings: AcceptSettings,
    local_addr: tuple[Any, ...] | None = None,
    *,
    sock: socket.socket | None = None,
    family: int = 0,
    reuse_port: bool | None = None,
) -> QuicTransport:
    """Opens a server's endpoint on a new socket, or on ``sock``."""
    if sock is not None and local_addr is not None:
        raise ValueError("local_addr: a given socket is bound already")
    sock = sock or await bound_socket(loop, local_addr, family, reuse_port)
    transport = await _open(loop, sock, accept_settings.options, accept_settings.preferred_address)
    transport._accept_settings = accept_settings
    accept_settings.began()
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
