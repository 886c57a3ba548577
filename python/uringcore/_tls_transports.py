"""TLS on the loop: its transports, and ``start_tls``.

:class:`uringcore._uringcore.TlsProtocol` implements the handshake, records and shutdown over any transport.
The core makes the TLS connections of a server itself, without this file.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import constants
from typing import TYPE_CHECKING, Any, cast

from . import _uringcore

if TYPE_CHECKING:
    import contextvars
    import socket
    import ssl
else:
    try:
        import ssl
    except ImportError:  # a CPython that was built without OpenSSL
        ssl = None

__all__ = ["SSL_HANDSHAKE_TIMEOUT", "SSL_SHUTDOWN_TIMEOUT", "TlsTransports"]

SSL_HANDSHAKE_TIMEOUT: float = constants.SSL_HANDSHAKE_TIMEOUT
SSL_SHUTDOWN_TIMEOUT: float = getattr(constants, "SSL_SHUTDOWN_TIMEOUT", 30.0)  # CPython 3.11

_asyncio_logger = logging.getLogger("asyncio")


class TlsTransports:
    """The TLS methods of :class:`uringcore.UringEventLoop`."""

    if TYPE_CHECKING:
        # An attribute of the loop.
        _ensure_fd_no_transport: Any

    def _make_ssl_transport(
        self,
        rawsock: socket.socket,
        protocol: asyncio.BaseProtocol,
        sslcontext: ssl.SSLContext,
        waiter: asyncio.Future[None] | None = None,
        *,
        server_side: bool = False,
        server_hostname: str | None = None,
        extra: dict[str, Any] | None = None,
        server: Any = None,
        ssl_handshake_timeout: float | None = SSL_HANDSHAKE_TIMEOUT,
        ssl_shutdown_timeout: float | None = SSL_SHUTDOWN_TIMEOUT,
        context: contextvars.Context | None = None,
    ) -> asyncio.Transport:
        self._ensure_fd_no_transport(rawsock)
        loop = cast(_uringcore.LoopCore, self)
        tls = _uringcore.TlsProtocol(
            loop,
            protocol,
            sslcontext,
            waiter,
            server_side,
            server_hostname,
            ssl_handshake_timeout=ssl_handshake_timeout,
            ssl_shutdown_timeout=ssl_shutdown_timeout,
        )
        transport = tls._get_app_transport()
        try:
            cast(Any, self)._make_socket_transport(
                rawsock, tls, extra=extra, server=server, context=context
            )
        except BaseException:
            tls.connection_lost(None)  # breaks the reference cycle of the two halves
            raise
        return cast(asyncio.Transport, transport)

    async def start_tls(
        self,
        transport: asyncio.BaseTransport,
        protocol: asyncio.BaseProtocol,
        sslcontext: ssl.SSLContext,
        *,
        server_side: bool = False,
        server_hostname: str | None = None,
        ssl_handshake_timeout: float | None = None,
        ssl_shutdown_timeout: float | None = None,
    ) -> asyncio.Transport | None:
        """Start TLS on an existing connection.

        Args:
            transport: the connection; from now on only the returned transport may be used.
            protocol: receives the decrypted bytes. ``connection_made()`` is not called again.
            sslcontext: certificates, verification, versions.
            server_side: act as the TLS server.
            server_hostname: the name that the server's certificate is checked against.
            ssl_handshake_timeout: seconds that the handshake may take; 60 if ``None``.
            ssl_shutdown_timeout: seconds that the peer has to answer close_notify; 30 if ``None``.

        Returns:
            The transport for ``protocol``; ``None`` if the connection was closed meanwhile, as in
            asyncio.

        Raises:
            RuntimeError: this CPython has no ``ssl`` module.
            TypeError: ``sslcontext`` is not an ``ssl.SSLContext``, or the transport cannot carry TLS.
            ValueError: a time-out is not positive.
            ssl.SSLError: the handshake failed.
            ConnectionError: the connection ended during the handshake, or it took too long.
        """
        if ssl is None:
            raise RuntimeError("Python ssl module is not available")
        if not isinstance(sslcontext, ssl.SSLContext):
            raise TypeError(
                f"sslcontext is expected to be an instance of ssl.SSLContext, got {sslcontext!r}"
            )
        if not getattr(transport, "_start_tls_compatible", False):
            raise TypeError(f"transport {transport!r} is not supported by start_tls()")
        loop = cast(Any, self)
        lower = cast(asyncio.Transport, transport)
        waiter = loop.create_future()
        tls: Any = _uringcore.TlsProtocol(
            loop,
            protocol,
            sslcontext,
            waiter,
            server_side,
            server_hostname,
            call_connection_made=False,
            ssl_handshake_timeout=ssl_handshake_timeout,
            ssl_shutdown_timeout=ssl_shutdown_timeout,
        )
        # The new transport must not receive data before its connection_made().
        lower.pause_reading()
        lower.set_protocol(tls)
        begun = [loop.call_soon(tls.connection_made, lower)]
        if server_side and (early := _taken_from_reader(protocol)):
            begun.append(loop.call_soon(tls.data_received, early))
        begun.append(loop.call_soon(lower.resume_reading))
        try:
            await waiter
        except BaseException:
            lower.close()
            for handle in begun:
                handle.cancel()
            # The waiter keeps the exception, whose traceback keeps this frame. So the variables of the frame
            # would form a reference cycle.
            del waiter, begun, handle, tls, lower, transport
            raise
        return cast("asyncio.Transport | None", tls._get_app_transport())

    def _log_tls(self, message: str, protocol: Any, milliseconds: float | None = None) -> None:
        args = (protocol,) if milliseconds is None else (protocol, milliseconds)
        _asyncio_logger.debug(message, *args)


def _taken_from_reader(protocol: asyncio.BaseProtocol) -> bytes:
    """Returns bytes of the handshake that a stream reader has read before ``start_tls``, as CPython 3.14."""
    reader: Any = getattr(protocol, "_stream_reader", None)
    if reader is None or not isinstance(protocol, asyncio.StreamReaderProtocol):
        return b""
    early = bytes(reader._buffer)
    reader._buffer.clear()
    return early
