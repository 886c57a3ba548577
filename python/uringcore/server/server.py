"""uvicorn's server with the HTTP/3 side beside it.

Lifespan, TCP, signals and the order of a graceful stop are uvicorn's. Added: the UDP sockets before
start-up and the endpoints after it, Alt-Svc, and HTTP/3's share of the stop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.server import Server as UvicornServer

from uringcore._uringcore import AsgiService
from uringcore.server.config import ServerConfig
from uringcore.server.listener import HTTP3Listener, sockets_on
from uringcore.server.log import RequestLog
from uringcore.server.scope import EXTENSIONS, common_scope, encode_path, tls_extension
from uringcore.server.service import Service

__all__ = ["Server", "serve"]

ALT_SVC_MAX_AGE_SECONDS = 86400

logger = logging.getLogger("uvicorn.error")


def serve(config: ServerConfig) -> None:
    """Runs a server until a signal ends it.

    Raises ``SystemExit`` with uvicorn's code 3 when start-up fails.
    """
    if config.dev_certificate is not None:
        for line in config.dev_certificate.describe().splitlines():
            logger.info(line)
    try:
        if config.use_subprocess:
            # Reload and workers: uvicorn's supervisors, whose processes serve TCP on our loop.
            uvicorn.run(config.app, **config.uvicorn_options())
        else:
            serve_here(config)
    finally:
        config.cleanup()


def serve_here(config: ServerConfig) -> None:
    """In this process."""
    server = Server(config)
    try:
        server.run()
    except KeyboardInterrupt:
        logger.info("Interrupted before start-up was complete")
    finally:
        if config.uds is not None and os.path.exists(config.uds):
            os.remove(config.uds)
    if not server.started:
        sys.exit(STARTUP_FAILURE)


class Server(UvicornServer):
    """Serves HTTP/1.1 and WebSocket over TCP, and HTTP/3 over UDP, from one loop."""

    config: ServerConfig

    def __init__(self, config: ServerConfig) -> None:
        super().__init__(config)
        self._listener: HTTP3Listener | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Binds UDP, then lets uvicorn run lifespan and bind TCP, then starts HTTP/3."""
        config = self.config
        if not config.http3 or sockets is not None:
            await super().startup(sockets)
            return
        try:
            udp = sockets_on(config.host, config.port)
        except OSError as exc:
            logger.error(exc.strerror or exc)
            sys.exit(STARTUP_FAILURE)
        try:
            # The same number for both, also when the system chose it.
            config.port = udp[0].getsockname()[1]
            self._announce(config.port)
            await super().startup(None)
            await self._start_http3(udp)
        except BaseException:
            for sock in udp:
                sock.close()
            raise

    def _announce(self, port: int) -> None:
        """Alt-Svc (RFC 7838) tells HTTP/1.1 clients that the same port speaks HTTP/3."""
        headers = self.config.encoded_headers
        if all(name != b"alt-svc" for name, _ in headers):
            value = f'h3=":{port}"; ma={ALT_SVC_MAX_AGE_SECONDS}'
            self.config.encoded_headers = [*headers, (b"alt-svc", value.encode())]

    async def _start_http3(self, udp: list[socket.socket]) -> None:
        config = self.config
        assert config.quic is not None
        extensions: dict[str, Any] = dict(EXTENSIONS)
        extensions["tls"] = tls_extension(config.server_certificate_pem)
        loop = asyncio.get_running_loop()
        log = RequestLog(config.http3_log_lines)
        logs_access = config.access_log and logging.getLogger("uvicorn.access").hasHandlers()
        asgi = AsgiService(
            config.loaded_app,
            event_loop=loop,
            scope=common_scope(asgi_version=config.asgi_version, root_path=config.root_path),
            root_path=config.root_path,
            raw_root_path=encode_path(config.root_path),
            state=self.lifespan.state,
            extensions=extensions,
            tasks=self.server_state.tasks,
            report=log.report,
            log_access=log.access if logs_access else None,
            overloaded=None if config.limit_concurrency is None else self._is_overloaded,
            fresh_context=getattr(config, "reset_contextvars", False),
        )
        service = Service(asgi, self.server_state, config.http3_limits.checked())
        listener = HTTP3Listener(service)
        await listener.start(udp, config.quic, limits=config.quic_limits, retry=config.http3_retry)
        self._listener = listener
        servers: list[Any] = self.servers
        servers.append(listener)
        self._update_default_headers()
        logger.info(
            "HTTP/3 running on UDP port %d (%s)", config.port, getattr(loop, "backend", "asyncio")
        )

    async def on_tick(self, counter: int) -> bool:
        """Called by uvicorn ten times a second."""
        should_exit = await super().on_tick(counter)
        if self._listener is not None:
            self.server_state.total_requests += self._listener.service.asgi.take_answered()
            if counter % 10 == 0:
                self._update_default_headers()
        return should_exit

    def _is_overloaded(self) -> bool:
        """As uvicorn counts, over HTTP/1.1."""
        state, limit = self.server_state, self.config.limit_concurrency
        return limit is not None and max(len(state.connections), len(state.tasks)) >= limit

    def _update_default_headers(self) -> None:
        """What uvicorn sends with every response, less what HTTP/3 clients needn't be told."""
        assert self._listener is not None
        self._listener.service.asgi.set_default_headers(
            [header for header in self.server_state.default_headers if header[0] != b"alt-svc"]
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """uvicorn's graceful stop; then nothing of HTTP/3 is left either."""
        await super().shutdown(sockets)
        if self._listener is not None:
            # Again, since uvicorn doesn't come to it when its time limit is up.
            await self._listener.wait_closed()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """SIGINT and SIGTERM: stop gracefully; a second SIGINT: at once.

        uvicorn raises the signal again when all is done, so that the process dies of it. A server
        that was asked to stop and did has succeeded: this one returns, and exits with status 0.
        """
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        else:
            self.should_exit = True
