"""The option ``--redirect-http``: a TCP port without TLS whose requests are redirected to HTTPS.

Native HTTP/1.1 serves the port, whatever ``--http`` is, with its limits. The host of a redirect is the one
of the request, if the server's certificate is for it. Otherwise a redirect could lead anywhere, and caches
could store it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from uvicorn.server import Server as UvicornServer

from uringcore._uringcore import AsgiService, Http1Connection, certificate_is_for
from uringcore.server._asgi_service_factory import logs_access
from uringcore.server._common_asgi_scope import common_scope
from uringcore.server._file_signature import Signature, signature
from uringcore.server._native_tcp import NativeTCP
from uringcore.server._request_log import RequestLog
from uringcore.tls import load_pem_x509_certificates

__all__ = ["RedirectPort", "start_redirects"]

HOST = re.compile(
    r"(?:\[(?P<six>[0-9a-fA-F:.]{2,45})\]|(?P<name>[0-9A-Za-z._-]{1,253}))(?::\d{0,5})?", re.ASCII
)
"""The syntax of Host that names a host and an optional port (RFC 9110 section 7.2)."""

HTTPS_PORT = 443


async def start_redirects(
    server: UvicornServer, log: RequestLog, own: Callable[[socket.socket], socket.socket]
) -> None:
    """Starts the port of the option, whose sockets are bound, as one of the server's ``servers``. ``own``
    returns the socket that the port may close."""
    config: Any = server.config
    if not config.web.redirect_sockets:
        return
    port = RedirectPort(server, log)
    servers: list[Any] = server.servers
    servers.append(port)
    await port.start(map(own, config.web.redirect_sockets))


def https_port(server: UvicornServer) -> int:
    """Returns the TCP port that a started server listens on. The option differs for sockets that were given,
    for instance by systemd."""
    for one in server.servers:
        for sock in one.sockets:
            if sock.family in (socket.AF_INET, socket.AF_INET6):
                return int(sock.getsockname()[1])
    return server.config.port


class RedirectPort:
    """Answers every request with 308, to ``https`` on the same host."""

    def __init__(self, server: UvicornServer, log: RequestLog) -> None:
        config: Any = server.config
        self._config = config
        self._https_port: int = config.web.redirect_https_port or https_port(server)
        self._certificate: bytes | None = None
        self._signature: Signature | None = None
        asgi = AsgiService(
            self._answer,
            event_loop=asyncio.get_running_loop(),
            scope=common_scope(asgi_version="3.0", root_path="", http_version="1.1", scheme="http"),
            root_path="",
            raw_root_path=b"",
            state={},
            extensions={},
            tasks=server.server_state.tasks,
            report=log.report,
            log_access=log.access if logs_access(config) else None,
        )
        self._http1 = NativeTCP(config, asgi, server.server_state, log, redirects=True)
        self._servers: list[asyncio.Server] = []

    async def start(self, sockets: Iterable[socket.socket]) -> None:
        """Starts serving. This object owns the sockets from now on."""
        self._http1.start()
        loop = asyncio.get_running_loop()
        connect: Any = functools.partial(Http1Connection, self._http1.service)
        for sock in sockets:
            self._servers.append(await loop.create_server(connect, sock=sock))

    @property
    def sockets(self) -> list[Any]:
        return [sock for server in self._servers for sock in server.sockets]

    def close(self) -> None:
        """Accepts no new clients. The server shuts the open connections down with its own."""
        for server in self._servers:
            server.close()

    async def wait_closed(self) -> None:
        """Waits for the end of the connections."""
        for server in self._servers:
            await server.wait_closed()
        self._http1.stop()

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        host = b"".join(value for name, value in scope["headers"] if name == b"host")
        target = self._authority(host.decode("latin-1"))
        path: bytes = scope["raw_path"]
        if target is None or not path.startswith(b"/"):
            # RFC 9110 section 15.5.20: the connection serves no such host.
            text = b"Misdirected Request"
            head = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(text))]
            await send({"type": "http.response.start", "status": 421, "headers": head})
            await send({"type": "http.response.body", "body": text})
            return
        query: bytes = scope["query_string"]
        location = b"https://" + target + path + (b"?" + query if query else b"")
        head = [(b"location", location), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 308, "headers": head})
        await send({"type": "http.response.body", "body": b""})

    def _authority(self, host: str) -> bytes | None:
        """Returns the host and port of the redirect; ``None`` if no certificate of the server is for this
        host."""
        matched = HOST.fullmatch(host)
        if matched is None:
            return None
        name = matched["six"] or matched["name"].rstrip(".")
        if not self._is_mine(name):
            return None
        name = f"[{name}]" if matched["six"] else name
        return (name if self._https_port == HTTPS_PORT else f"{name}:{self._https_port}").encode()

    def _is_mine(self, name: str) -> bool:
        config = self._config
        # The client gets the certificate of the host that it requests, whatever other names are in it.
        if any(one.is_for(name.lower()) for one in config.named_certificates):
            return True
        files = (config.ssl_certfile,)
        found = signature(files)
        if found != self._signature:
            # The first request, or a renewed certificate. While the file cannot be read, the former one
            # stays.
            with contextlib.suppress(OSError, ValueError):
                self._certificate = load_pem_x509_certificates(Path(files[0]).read_bytes())[0]
                self._signature = found
        return self._certificate is not None and certificate_is_for(self._certificate, name)
