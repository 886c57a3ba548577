"""The option ``--proxy-protocol``: a proxy begins each TCP connection with a header that names its client.

The header (version 1 or 2) precedes everything else, also a TLS handshake. The extension reads it. This
module receives its bytes, checks that the peer may send one, and then passes the connection on to TLS or to
the HTTP protocol, with the client's address in place of the proxy's.

It needs uringcore's loop, and works with each implementation of HTTP/1.1. HTTP/3 is not concerned: a proxy
for UDP sends no such header.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import ssl
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from uringcore._uringcore import (
    Http1Connection,
    LoopCore,
    TlsProtocol,
    TlsServerTransport,
    read_proxy_header,
)
from uringcore.server._startup_errors import StartupError

__all__ = ["ProxyHeader", "expect_headers"]

logger = logging.getLogger("uvicorn.error")

Report = Callable[[str, str, Any], object]


class _Config(Protocol):
    """The options that matter here."""

    http_protocol_class: Any
    forwarded_allow_ips: Any
    ssl: ssl.SSLContext | None
    web: Any


@contextlib.contextmanager
def expect_headers(config: _Config, report: Report) -> Iterator[None]:
    """Makes the listeners that are created within the block expect the header, if the option is set.

    ``report`` is the log's, for connections that are refused. Raises :class:`StartupError`.
    """
    if not config.web.proxy_protocol:
        yield
        return
    if not isinstance(asyncio.get_running_loop(), LoopCore):
        raise StartupError("proxy_protocol: needs uringcore's event loop", option="proxy_protocol")
    trusted = ProxyHeadersMiddleware(
        None,  # type: ignore[arg-type]
        trusted_hosts=config.forwarded_allow_ips,
    ).trusted_hosts
    make, context = config.http_protocol_class, config.ssl
    if isinstance(make, functools.partial) and make.func is ProxyHeader:
        make = make.args[0]  # The server serves once more.
    # Listeners would begin with the handshake.
    config.ssl = None
    config.http_protocol_class = functools.partial(
        ProxyHeader, make, trusted, context, config.web.proxy_protocol_timeout, report
    )
    try:
        yield
    finally:
        config.ssl = context


class ProxyHeader(asyncio.Protocol):
    """The protocol of a new connection until its header is complete.

    ``make(**options)`` makes the HTTP protocol. ``trusted`` contains the addresses that may send a header;
    ``None`` stands for the peer of a Unix socket. A connection without a complete header within ``seconds``
    is closed.
    """

    def __init__(
        self,
        make: Callable[..., Any],
        trusted: Any,
        context: ssl.SSLContext | None,
        seconds: float,
        report: Report,
        **options: Any,
    ) -> None:
        self._make = functools.partial(make, **options)
        self._trusted = trusted
        self._context = context
        self._seconds = seconds
        self._report = report
        self._received = b""
        self._peer: Any = None
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Refuses a peer that is no trusted proxy."""
        peer = transport.get_extra_info("peername")
        self._peer = peer if isinstance(peer, tuple) else None
        self._transport = transport
        if (None if self._peer is None else self._peer[0]) not in self._trusted:
            self._refuse("the peer is not in --forwarded-allow-ips")
            return
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(
            self._seconds, self._refuse, "its header did not come in time"
        )

    def data_received(self, data: bytes) -> None:
        """Receives bytes of the header, and passes those behind it on."""
        if self._transport is None:
            return
        self._received += data
        try:
            header = read_proxy_header(self._received)
        except ValueError as exc:
            self._refuse(str(exc))
            return
        if header is None:
            return
        length, addresses, is_local = header
        transport: Any = self._transport
        rest = self._received[length:]
        self._end()
        if addresses is not None:
            client, server = addresses
            transport._extra.update(peername=client, sockname=server)
        elif not is_local:
            # The client has no address. The proxy's would make its X-Forwarded fields trustworthy.
            server = transport.get_extra_info("sockname")
            server = server[:2] if isinstance(server, tuple) else server
            transport._extra.update(peername=None, sockname=server)
        self._pass_on(transport, rest, is_renamed=not is_local)

    def _pass_on(self, transport: Any, rest: bytes, *, is_renamed: bool) -> None:
        protocol = self._make()
        if is_renamed and not isinstance(protocol, (Http1Connection, TlsServerTransport)):
            # uvicorn's protocols ask the socket for its peer if there is one.
            transport._extra["socket"] = None
        if self._context is not None:
            loop: Any = asyncio.get_running_loop()
            protocol = TlsProtocol(loop, protocol, self._context, None, True)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if rest and not transport.is_closing():
            protocol.data_received(rest)

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the wait for the header."""
        self._end()

    def _refuse(self, why: str) -> None:
        transport = self._transport
        self._end()
        if transport is not None:
            self._report("client", f"A TCP connection was refused: {why}.", self._peer)
            transport.close()

    def _end(self) -> None:
        self._transport, self._received = None, b""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
