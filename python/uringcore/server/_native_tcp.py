"""HTTP/1.1, HTTP/2 and WebSocket over TCP in the extension: the default of the option ``http``.

The extension reads requests and runs the application, as over HTTP/3. This module makes the extension's
service for a server, and calls its timer. uvicorn accepts the connections, and calls :func:`connect` for
each of them.

A connection uses HTTP/2 if its client begins with that (without TLS), or selects it by ALPN. TLS is that of
the extension as well (``_native_tls``), or CPython's ``ssl``.

uvicorn's classes remain available: ``http="uvicorn"`` leaves the choice among them to uvicorn, and other
names are those of uvicorn's option. ``ws`` with a class of uvicorn's selects its HTTP/1.1 as well.

The limits of HTTP/3 in :data:`SHARED_LIMITS` apply over TCP as well. The limit of a connection without
requests is ``timeout_keep_alive``.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, Protocol

from uvicorn.server import ServerState

from uringcore._uringcore import (
    AsgiService,
    Http1Connection,
    TcpLimits,
    TcpService,
    TlsServerSetup,
    TlsServerTransport,
)
from uringcore.server._certificate_subject import subject
from uringcore.server._common_asgi_scope import TLSExtension
from uringcore.server._http3_limits import HTTP3Limits, websocket_limits

__all__ = [
    "CONNECT",
    "NATIVE_WS",
    "SHARED_LIMITS",
    "NativeTCP",
    "choose_http",
    "connect",
    "needed_classes",
]

NATIVE = "native"
"""The value of the option ``http`` for this implementation."""

UVICORN = "uvicorn"
"""The value of the option ``http`` with which uvicorn chooses among its own classes: its ``auto``."""

NATIVE_WS = ("auto", "none")
"""Values of the option ``ws`` that name no class of uvicorn's."""

CONNECT = "uringcore.server._native_tcp:connect"
"""The value of ``http`` that uvicorn gets instead. uvicorn imports the function of this name."""

TICK_SECONDS = 1.0
STOPPING_TICK_SECONDS = 0.1
"""The interval while the server stops: idle connections delay the stop less."""

NOT_SHARED = frozenset({"keep_alive"})

CLIENT_LIMITS = frozenset(
    {
        "accept_burst",
        "accept_rate",
        "max_connections",
        "max_connections_per_address",
        "max_handshakes",
        "memory",
    }
)
"""Fields of ``ServerLimits`` that apply to TCP. TCP and QUIC share the memory budget, and each counts its own
connections."""

SHARED_LIMITS: frozenset[str] = frozenset(asdict(HTTP3Limits())) - NOT_SHARED | CLIENT_LIMITS
"""Names of the limits of HTTP/3 that apply over TCP as well. Those of resets concern HTTP/2 only."""


def choose_http(options: dict[str, Any]) -> bool:
    """Sets the options ``http`` and ``ws`` to the values that uvicorn gets. Returns True for native HTTP.

    ``auto`` is native unless ``ws`` names a class, which works only with uvicorn's HTTP/1.1.
    """
    ws, http = options.get("ws", "auto"), options.get("http", "auto")
    if ws is None:
        ws = options["ws"] = "none"
    if http == "auto":
        http = NATIVE if ws in NATIVE_WS else UVICORN
    if isinstance(http, str):
        http = {NATIVE: CONNECT, UVICORN: "auto"}.get(http, http)
    options["http"] = http
    return bool(http == CONNECT)


@contextlib.contextmanager
def needed_classes(config: Any) -> Iterator[None]:
    """A context in which uvicorn imports no package for a WebSocket class that native HTTP does not use."""
    ws = config.ws
    if config.http == CONNECT:
        config.ws = "none"
    try:
        yield
    finally:
        config.ws = ws


def connect(*, config: Any, **_: Any) -> Http1Connection | TlsServerTransport:
    """Makes the protocol of a new connection of the server with this ``Config``."""
    http1: NativeTCP = config.http1
    protocol = Http1Connection(http1.service)
    return TlsServerTransport(http1.service, protocol) if http1.has_tls else protocol


class _Log(Protocol):
    """The server's log of requests."""

    def report(self, kind: str, message: str, what: Any) -> object: ...


class NativeTCP:
    """HTTP over TCP in one server."""

    def __init__(
        self,
        config: Any,
        asgi: AsgiService,
        state: ServerState,
        log: _Log,
        *,
        redirects: bool = False,
    ) -> None:
        """``redirects`` is true for the port of ``--redirect-http``, without TLS and WebSocket."""
        is_secure = config.is_ssl and not redirects
        names = SHARED_LIMITS - CLIENT_LIMITS
        limits = {name: getattr(config.http3_limits, name) for name in names}
        observer = config.observer
        self.tls: TLSExtension = TLSExtension(None)
        self.asgi: AsgiService = asgi
        self.service: TcpService = TcpService(
            asgi,
            TcpLimits(
                **limits,
                keep_alive=float(config.timeout_keep_alive),
                websockets=websocket_limits(config) is not None and not redirects,
                clients=config.quic_limits._options(),
                is_secure=is_secure,
                uses_openssl=is_secure and config.tls_setup is None,
            ),
            connections=state.connections,
            tls=self._extension_of(config) if is_secure else None,
            on_slow=None if observer is None else observer.response_given_up,
        )
        self.has_tls: bool = False
        """True if the extension does TLS; false without TLS, and with CPython's."""
        if is_secure and config.tls_setup is not None:
            self.renew_tls(config.tls_setup)
            self.renew_certificate(config.server_certificate_pem)
        self._log = log
        self._tick_seconds = TICK_SECONDS
        self._timer: asyncio.TimerHandle | None = None

    def renew_tls(self, setup: TlsServerSetup) -> None:
        """Sets TLS for connections from now on."""
        self.has_tls = True
        self.service.set_tls_setup(setup)

    def renew_certificate(self, certificate_pem: str | None) -> None:
        """Sets the server's certificate in ASGI's ``tls`` extension of connections from now on."""
        self.tls.renew(certificate_pem)

    def _extension_of(self, config: Any) -> Callable[[Any], dict[str, Any]]:
        """Returns the function that makes ASGI's ``tls`` extension for a transport."""

        def extension(transport: Any) -> dict[str, Any]:
            return tls_extension(self, config, transport)

        return extension

    def start(self) -> None:
        """Begins to enforce time-outs, until :meth:`stop`."""
        self._timer = asyncio.get_running_loop().call_later(self._tick_seconds, self._tick)

    def announce_stop(self) -> None:
        """Makes clients send further requests on other connections, and closes no idle connection yet."""
        self._tick_seconds = STOPPING_TICK_SECONDS
        self.stop()
        self.start()
        try:
            self.service.announce_stop()
        except Exception as error:  # noqa: BLE001 - the server stops after any exception
            self._log.report("fault", "Exception while TCP connections were told to end", error)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        # The timer is restarted first, so that an exception does not stop it.
        self.start()
        try:
            self.service.tick()
        except Exception as error:  # noqa: BLE001 - the timer goes on after any exception
            self._log.report("fault", "Exception in the timer of TCP connections", error)


def tls_extension(server: NativeTCP, config: Any, transport: Any) -> dict[str, Any]:
    """Returns ASGI's ``tls`` extension for a transport whose handshake is complete."""
    if not isinstance(transport, TlsServerTransport):
        connection = transport.get_extra_info("ssl_object")
        return extension_of_openssl(connection, config.server_certificate_pem)
    version, suite, *_ = transport._negotiated() or (0, None)
    return server.tls.of(version, suite, transport._client_chain())


VERSIONS = {"TLSv1": 0x0301, "TLSv1.1": 0x0302, "TLSv1.2": 0x0303, "TLSv1.3": 0x0304}


def extension_of_openssl(connection: ssl.SSLObject, certificate_pem: str | None) -> dict[str, Any]:
    """Returns ASGI's ``tls`` extension for a connection of CPython's ``ssl``."""
    client = connection.getpeercert(binary_form=True)
    # CPython 3.13 and later return the whole chain, earlier versions only the client's own certificate.
    chain_of = getattr(connection, "get_verified_chain", None)
    chain = [] if client is None else [client] if chain_of is None else chain_of()
    return {
        "server_cert": certificate_pem,
        "client_cert_chain": [ssl.DER_cert_to_PEM_cert(bytes(one)) for one in chain],
        "client_cert_name": None if client is None else subject(client),
        # There is no error, because a certificate that fails the verification ends the handshake.
        "client_cert_error": None,
        "tls_version": VERSIONS.get(connection.version() or ""),
        "cipher_suite": cipher_suite(connection),
    }


CIPHER_SUITES: dict[str, int] = {}
"""The numbers of cipher suites by name, of all contexts so far. There are few names, and ``get_ciphers()`` is
slow."""


def cipher_suite(connection: ssl.SSLObject) -> int | None:
    """Returns the number of the connection's cipher suite (RFC 8446 appendix B.4)."""
    cipher = connection.cipher()
    if cipher is None:
        return None
    name = cipher[0]
    if name not in CIPHER_SUITES:
        # The low 16 bits of OpenSSL's number are the registered number.
        ciphers = connection.context.get_ciphers()
        CIPHER_SUITES.update((one["name"], one["id"] & 0xFFFF) for one in ciphers)
    return CIPHER_SUITES.get(name)
