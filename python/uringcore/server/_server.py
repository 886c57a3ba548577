"""uvicorn's server with HTTP/3 added.

uvicorn implements the lifespan, TCP, signals and the order of a graceful stop. This class adds the sockets
before start-up and the QUIC endpoints after it, Alt-Svc, the reload of a renewed certificate, and HTTP/3's
part of the stop. _run_modes.py chooses the process that a server runs in.

The stop runs however ``serve()`` ends, also after a cancellation or an exception, and the cause is raised
after the sockets are closed. A forced stop ends what it does not wait for (``_drop``): applications are
cancelled and have one second, TCP connections are aborted, the lifespan is abandoned. uvicorn's
``handle_exit`` is called, because programs replace it. Afterwards no signal is raised again, and a second
SIGINT interrupts a start-up. The stop runs in a separate task, which no scope of anyio cancels; a scope
that is cancelled, before the stop or during it, bounds the application's ``lifespan.shutdown``. Only
``Task.cancel`` or a second SIGINT ends the stop sooner.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from types import FrameType
from typing import Any, Protocol

from uvicorn.server import Server as UvicornServer

from uringcore._read_ahead_sockets import add_own_listeners
from uringcore.quic._qlog_files import QuicSequenceLogger
from uringcore.quic.workers import PortWorker
from uringcore.server._asgi_service_factory import logs_access, make_asgi
from uringcore.server._cancel_shield import shielded, wait_despite_cancel
from uringcore.server._cancellation_log import log_one_cancellation
from uringcore.server._certificate_reload import CertificateReloader
from uringcore.server._common_asgi_scope import TLSExtension
from uringcore.server._config import Config
from uringcore.server._credential_reload import reload_keys
from uringcore.server._http3_shared_state import HTTP3Service
from uringcore.server._lifespan import Lifespan
from uringcore.server._listening_sockets import (
    ServerSockets,
    bind_metrics_or_exit,
    close_metrics,
    listen_or_exit,
    log_addresses,
    log_metrics_address,
)
from uringcore.server._metrics_port import MetricsPort
from uringcore.server._native_tcp import NativeTCP
from uringcore.server._proxy_protocol import expect_headers
from uringcore.server._quic_listener import HTTP3Listener
from uringcore.server._redirect_port import start_redirects
from uringcore.server._request_log import RequestLog
from uringcore.server._startup_errors import STARTUP_FAILURE
from uringcore.server._tcp_shutdown import (
    close_lingering,
    end_handshakes,
    has_transports,
    shut_down_late,
)
from uringcore.server._terminal_detection import has_terminal
from uringcore.server._webtransport_sessions import SessionService

__all__ = ["Server"]

ALT_SVC_MAX_AGE_SECONDS = 86400

# Seconds for which a server that is being replaced still serves all clients.
HAND_OVER_SECONDS_MIN = 1.0

# Seconds that applications have to end after a forced stop has cancelled them.
CANCELLED_SECONDS_MAX = 1.0

# Minimum seconds for an application's shutdown after a cancellation, if the time for requests is shorter.
LIFESPAN_SECONDS_MIN = 5.0

logger = logging.getLogger("uvicorn.error")


class Slot(Protocol):
    """The interface between a server and its supervisor."""

    places: Sequence[PortWorker]
    """The worker's place on each UDP port."""

    def serving(self, server: Server) -> None: ...
    def ending(self) -> None: ...
    def used_up(self) -> bool:
        """True if the server should continue until its successor serves."""


class Server(UvicornServer):
    """Serves HTTP/1.1 and WebSocket over TCP, and HTTP/3 over UDP, from one loop.

    ``run`` and ``serve`` accept bound ``sockets``, TCP and UDP, distinguished by their types. HTTP/3 is
    served if there is a UDP socket among them. Without ``sockets`` the options set the addresses.
    ``slot`` is a worker's slot from its supervisor.
    """

    config: Config
    should_exit: bool
    force_exit: bool

    def __init__(self, config: Config, slot: Slot | None = None) -> None:
        super().__init__(config)
        self._slot = slot
        self._listener: HTTP3Listener | None = None
        self._request_log: RequestLog | None = None
        self._certificate: CertificateReloader | None = None
        self._metrics: MetricsPort | None = None
        self._tls = TLSExtension(None)
        self._is_retiring = False
        self._is_hung_up = False
        self._loop: asyncio.AbstractEventLoop | None = None
        # The Alt-Svc field that this server adds; the user's own fields are elsewhere.
        self._alternative: tuple[bytes, bytes] | None = None
        # The exception that ended the service; None after a request to stop.
        self._failure: BaseException | None = None
        self._had_terminal = has_terminal()
        self.on_serving: Callable[[], object] | None = None
        """Called when the start-up is complete."""

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serves on its own loop until a signal ends it."""
        # Before the coroutine is made, because it would never be awaited if no loop can be created.
        self.config.check_loop()
        super().run(sockets)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serves on the running loop until a signal ends it, or :attr:`should_exit` is set.

        A cancellation stops it gracefully, as SIGTERM does: requests have ``timeout_graceful_shutdown``
        seconds (30). Then the application's ``lifespan.shutdown`` has as many, but at least five, and is
        cancelled after that. An exception that ends the service has these limits, too. In a stop that a
        signal or :attr:`should_exit` began, ``lifespan.shutdown`` has no such limit.

        A cancelled scope of anyio counts as one cancellation, although it cancels at each ``await``. If the
        scope is cancelled during a stop, the stop continues, and the limit of ``lifespan.shutdown`` counts
        from then on. ``Task.cancel`` during a stop, however it began, stops at once: requests and
        ``lifespan.shutdown`` are cancelled.

        A cancellation that began the stop, or stopped it at once, is raised when the stop has ended; so is an
        exception that began it. When ``serve`` has ended, its ports are free and it can serve again.
        """
        await super().serve(sockets)
        failure, self._failure = self._failure, None
        if failure is not None:
            # Reset, because the server has ended itself: a second serve() must not end at once.
            self.should_exit = self.force_exit = False
            raise failure

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Binds, runs uvicorn's start-up (lifespan, TCP), then starts HTTP/3."""
        self._loop = asyncio.get_running_loop()
        self._failure = None
        if sockets is not None:
            mine = ServerSockets.by_kind(sockets)
            # Duplicated, because uvicorn closes its sockets before QUIC connections have ended.
            mine.udp = [sock.dup() for sock in mine.udp]
            if self._slot is not None:
                mine.tcp = [self._own_copy(sock) for sock in mine.tcp]
            if not self.config.metrics_sockets:
                bind_metrics_or_exit(self.config)
                log_metrics_address(self.config)
        else:
            mine = listen_or_exit(self.config)
            add_own_listeners(self._loop, mine.own_tcp)
        places: Sequence[socket.socket | PortWorker] = mine.udp
        if self._slot is not None:
            places = self._slot.places
        try:
            await self._start(mine, places)
        except BaseException:
            for server in getattr(self, "servers", ()):
                server.close()
            for sock in mine.udp if sockets is not None else mine:
                sock.close()
            with shielded():
                await self._end_startup()
            raise
        if sockets is None:
            log_addresses(self.config, mine)
        if self._slot is not None:
            self._slot.serving(self)
        if self.on_serving is not None:
            self.on_serving()

    async def _start(
        self, sockets: ServerSockets, places: Sequence[socket.socket | PortWorker]
    ) -> None:
        config = self.config
        if config.http3 and not places:
            logger.warning("HTTP/3 is off: there is no UDP socket among those given.")
        elif config.http3:
            first = places[0]
            sock = first.socket if isinstance(first, PortWorker) else first
            self._announce(sock.getsockname()[1])
        elif places:
            logger.warning("A UDP socket that was given is not used: HTTP/3 is off.")
        if config.is_native_http:
            # The service must exist before connections are accepted.
            scheme = "https" if config.is_ssl else "http"
            asgi = make_asgi(self, self._log(), self._is_overloaded, "1.1", scheme)
            config.http1 = NativeTCP(config, asgi, self.server_state, self._log())
            config.http1.start()
            if config.observer is not None:
                config.observer.sources.tcp = config.http1.service
        try:
            with expect_headers(config, self._log().report):
                await super().startup(sockets.tcp)
        except OSError as exc:
            # listen(2) fails if another process began to listen on the port after this one bound its socket.
            logger.error("cannot listen on TCP: %s", exc.strerror or exc)
            await self.lifespan.shutdown()
            sys.exit(STARTUP_FAILURE)
        if self.lifespan.should_exit:  # Older versions of uvicorn return instead of exiting.
            sys.exit(STARTUP_FAILURE)
        if config.http3 and places:
            await self._start_http3(places)
        if config.is_ssl and config.ssl_context_factory is None:
            self._certificate = CertificateReloader(config)
        await start_redirects(self, self._log(), self._own_copy)
        if config.observer is not None and config.metrics_sockets:
            self._metrics = MetricsPort(config.observer)
            await self._metrics.start([self._own_copy(sock) for sock in config.metrics_sockets])

    def _own_copy(self, sock: socket.socket) -> socket.socket:
        """Duplicates a socket on which other processes accept too: uvicorn closes its sockets at the end."""
        return sock if self._slot is None else sock.dup()

    def _announce(self, port: int) -> None:
        """Adds Alt-Svc (RFC 7838) to responses: it announces HTTP/3 on this port to HTTP/1.1 clients."""
        headers = self.config.encoded_headers
        if all(name != b"alt-svc" for name, _ in headers):
            value = f'h3=":{port}"; ma={ALT_SVC_MAX_AGE_SECONDS}'
            self._alternative = (b"alt-svc", value.encode())
            self.config.encoded_headers = [*headers, self._alternative]

    def _log(self) -> RequestLog:
        if self._request_log is None:
            self._request_log = RequestLog(self.config.http3_log_lines)
        return self._request_log

    async def _start_http3(self, places: Sequence[socket.socket | PortWorker]) -> None:
        config = self.config
        assert config.quic is not None
        self._tls.renew(config.server_certificate_pem)
        loop = asyncio.get_running_loop()
        log = self._log()
        asgi = make_asgi(self, log, self._is_overloaded, "3", "https")
        sessions = None
        if config.http3_webtransport:
            sessions = SessionService(
                config.loaded_app,
                limits=config.session_limits.checked(),
                state=self.server_state,
                report=log.report,
                log_access=log.access if logs_access(config) else None,
                fresh_context=getattr(config, "reset_contextvars", False),
            )
        service = HTTP3Service(
            asgi,
            self.server_state,
            config.http3_limits.checked(
                refuses_early=config.http3_early_data == "refuse",
                protocols=config.http3_connect,
            ),
            self._tls,
            log.report,
            sessions,
            None if config.observer is None else config.observer.connection_ended,
            None if config.observer is None else config.observer.response_given_up,
        )
        listener = HTTP3Listener(service)
        await listener.start(
            places, config.quic, limits=config.quic_limits, retry=config.http3_retry
        )
        self._listener = listener
        servers: list[Any] = self.servers
        servers.append(listener)
        self._update_default_headers()
        logger.info(
            "HTTP/3 running on UDP port %d (%s)", listener.port, getattr(loop, "backend", "asyncio")
        )

    async def _end_startup(self) -> None:
        """Undoes a start-up that failed or was cancelled."""
        try:
            await self._end_lifespan()
        finally:
            if self._listener is not None:
                await self._listener.wait_closed()
            await self._close_services()

    async def _end_lifespan(self) -> None:
        lifespan = self.lifespan
        if not isinstance(lifespan, Lifespan):
            return
        self._bound_lifespan()
        try:
            if lifespan.is_running:
                await lifespan.shutdown()
        finally:
            lifespan.abandon()

    def _bound_lifespan(self) -> None:
        """Bounds the application's shutdown from now on, since no later cancellation may end it."""
        if isinstance(self.lifespan, Lifespan):
            seconds = self.config.timeout_graceful_shutdown or 0
            self.lifespan.bound_shutdown(max(seconds, LIFESPAN_SECONDS_MIN))

    async def main_loop(self) -> None:
        """Runs until the server is to stop. An exception or cancellation begins the stop as well."""
        try:
            await super().main_loop()
        except (Exception, asyncio.CancelledError) as exc:  # noqa: BLE001 - raised again by serve()
            # The exception is stored and raised after the stop. Without that uvicorn would leave sockets and
            # connections open.
            self._failure = exc
            # Programs that replace handle_exit or poll should_exit end their endless responses then.
            self.handle_exit(signal.SIGTERM, None)

    async def on_tick(self, counter: int) -> bool:
        """Called by uvicorn ten times a second."""
        should_exit = await super().on_tick(counter)
        observer = self.config.observer
        if observer is not None:
            if counter == 0:
                await observer.start()
            observer.tick(self.server_state, self._listener)
        if self._listener is not None:
            self.server_state.total_requests += self._listener.service.asgi.take_answered()
        if self.config.http1 is not None:
            self.server_state.total_requests += self.config.http1.asgi.take_answered()
        if counter % 10 == 0:
            self._update_default_headers()
            if self._request_log is not None:
                self._request_log.tick()
        is_asked, self._is_hung_up = self._is_hung_up, False
        if is_asked:
            reload_keys(self.config, self._listener)
        if self._certificate is not None and (counter % 10 == 0 or is_asked):
            self._look_at_certificate(self._certificate, is_asked)
        if should_exit and not self.should_exit and self._slot is not None:
            # The server has reached its number of requests. Reset the limit, so that uvicorn logs it once.
            self.config.limit_max_requests = None
            self.__dict__.pop("limit_max_requests", None)
            should_exit = not self._slot.used_up()
        return should_exit

    def _look_at_certificate(self, certificate: CertificateReloader, is_asked: bool) -> None:
        if (certificate.has_changed() or is_asked) and certificate.renew(self._listener):
            # The file may have been removed again, which the next check reports.
            with contextlib.suppress(OSError):
                self._tls.renew(self.config.server_certificate_pem)

    def _is_overloaded(self) -> bool:
        """True if the limit of concurrency is reached, as uvicorn counts for HTTP/1.1."""
        state, limit = self.server_state, self.config.limit_concurrency
        return limit is not None and max(len(state.connections), len(state.tasks)) >= limit

    def _update_default_headers(self) -> None:
        """Copies uvicorn's default headers to the services. HTTP/3 needs no Alt-Svc that points to itself."""
        headers = self.server_state.default_headers
        if self.config.http1 is not None:
            self.config.http1.asgi.set_default_headers(headers)
        if self._listener is not None:
            headers = [header for header in headers if header != self._alternative]
            self._listener.service.set_default_headers(headers)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Runs uvicorn's graceful stop, and ends HTTP/3."""
        stopping = asyncio.ensure_future(self._shutdown(sockets))

        def interrupt(cause: asyncio.CancelledError) -> None:
            self._failure, self.force_exit = cause, True
            # The cancellation comes after the first step of the task, which closes the ports.
            asyncio.get_running_loop().call_soon(stopping.cancel)

        with log_one_cancellation():
            if self._failure is not None:
                self._bound_lifespan()
            await wait_despite_cancel(stopping, interrupt, self._bound_lifespan)
            try:
                stopping.result()
            except asyncio.CancelledError as exc:
                # The stop may be cancelled by a second SIGINT, or by code that cancels all tasks of the loop.
                self._failure, self.force_exit = self._failure or exc, True
            if self.force_exit:
                await self._drop()

    async def _drop(self) -> None:
        """Ends at once what a forced stop does not wait for.

        It takes a few seconds at most, and no cancellation interrupts it: serve() returns with free ports.
        """
        ending = asyncio.ensure_future(self._end_all())
        await wait_despite_cancel(ending, functools.partial(setattr, self, "_failure"))
        ending.result()

    async def _end_all(self) -> None:
        for server in self.servers:
            server.close()
        tasks = list(self.server_state.tasks)
        for task in tasks:
            task.cancel()
        try:
            if tasks:
                await asyncio.wait(tasks, timeout=CANCELLED_SECONDS_MAX)
        finally:
            # Done before the next wait, because the loop may be about to end.
            self._force()
            if self._listener is not None:
                self._listener.abort()
        if self._listener is not None:
            await self._listener.wait_closed()
        await self._close_services()

    def _force(self) -> None:
        """Aborts TCP connections and abandons the lifespan. From CPython 3.12 on ``wait_closed()`` of an
        asyncio server waits for its connections, whatever they are doing."""
        for connection in list(self.server_state.connections):
            transport = getattr(connection, "transport", None)
            if isinstance(transport, asyncio.Transport):
                transport.abort()
        for server in self.servers:
            # CPython 3.13 and later have this. It also ends connections in the middle of a TLS handshake.
            if hasattr(server, "abort_clients"):
                server.abort_clients()
        if isinstance(self.lifespan, Lifespan):
            self.lifespan.abandon()

    async def _shutdown(self, sockets: list[socket.socket] | None) -> None:
        if self._slot is not None:
            self._slot.ending()
            if self._metrics is not None:
                # Workers that continue serve the metrics. If none does, the kernel refuses clients.
                self._metrics.stop_accepting()
                close_metrics(self.config)
        state: Any = self.server_state
        # A request that begins from now on is the last one of its TCP connection.
        state.default_headers = [*state.default_headers, (b"connection", b"close")]
        if self.config.http1 is not None:
            self.config.http1.announce_stop()
        with close_lingering(state.connections):
            if self._is_retiring:
                await self._hand_over()
            with shut_down_late(state.connections), end_handshakes(self.servers, state.connections):
                await super().shutdown(sockets)
        if self._listener is not None:
            # Waited for again, because uvicorn skips this step when its time limit has passed.
            await self._listener.wait_closed()
        if self._request_log is not None:
            self._request_log.close()
            self._request_log = None
        traces = None if self.config.quic is None else self.config.quic.quic_logger
        if isinstance(traces, QuicSequenceLogger):
            await asyncio.to_thread(traces.flush)
        await self._close_services()
        if self.config.observer is not None:
            self.config.observer.close()

    async def _close_services(self) -> None:
        if self.config.http1 is not None:
            self.config.http1.stop()
            self.config.http1 = None
        if self._metrics is not None:
            await self._metrics.close()
            self._metrics = None
        if self._slot is None:
            close_metrics(self.config)

    def retire(self) -> None:
        """Stops while another process continues on the same sockets, without an error for any client.

        A client may be sending a request on an idle TCP connection at any moment. So such a connection
        serves one more request, whose response closes it, for as long as keep-alive would have lasted.
        """
        self._is_retiring = True
        self.should_exit = True

    async def _hand_over(self) -> None:
        loop = asyncio.get_running_loop()
        for server in self.servers:
            for sock in getattr(server, "sockets", ()):
                loop.remove_reader(sock)
        if self._listener is not None:
            self._listener.stop_accepting()
        # Clients that have just connected get this time for their handshake and their first request.
        await asyncio.sleep(HAND_OVER_SECONDS_MIN)
        # Programs that replace handle_exit end their endless responses.
        self.handle_exit(signal.SIGTERM, None)
        for server in self.servers:
            server.close()
        if self._listener is not None:
            for connection in list(self._listener.service.connections):
                connection.shutdown()
        end = loop.time() + self.config.timeout_keep_alive
        while loop.time() < end and not self.force_exit:
            if not self.server_state.connections and not any(map(has_transports, self.servers)):
                break
            await asyncio.sleep(0.05)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Also captures SIGHUP, unless a supervisor handles it or it is ignored (nohup)."""
        is_mine = self._slot is None and threading.current_thread() is threading.main_thread()
        before = signal.getsignal(signal.SIGHUP)
        with super().capture_signals():
            if not is_mine or before in (signal.SIG_IGN, None):
                yield
                return
            signal.signal(signal.SIGHUP, self._hang_up)
            try:
                yield
            finally:
                signal.signal(signal.SIGHUP, before)

    def _hang_up(self, sig: int, frame: FrameType | None) -> None:
        """Handles SIGHUP: reloads the certificate and the keys, or stops if the terminal has hung up."""
        if self._had_terminal and not has_terminal():
            self.handle_exit(signal.SIGTERM, None)
        else:
            self._is_hung_up = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handles SIGINT and SIGTERM: stops gracefully; a second SIGINT stops at once.

        uvicorn raises the signal again after the stop, so that the process dies of it. This server
        returns instead, and its process exits with status 0, because a requested stop has succeeded.

        uvicorn's method is called, since programs replace it to be notified of the stop. A second SIGINT
        raises ``KeyboardInterrupt`` during start-up, and ends the wait for connections and for the
        application's shutdown.
        """
        super().handle_exit(sig, frame)
        self._captured_signals.clear()
        if not self.force_exit:
            return
        if not self.started:
            raise KeyboardInterrupt
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._force)
