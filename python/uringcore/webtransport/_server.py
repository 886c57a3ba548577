"""``serve``: a server, whose sessions are accepted one by one or handled each in a task."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import socket
import sys
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from typing import Any, overload

from uringcore._log_rate_limits import ClientLog
from uringcore._uringcore import AsgiService
from uringcore.quic._endpoint_transport import QuicTransport
from uringcore.quic._errors import DatagramSendError, QuicError
from uringcore.quic._typed_api.accept_backlog import Backlog
from uringcore.quic._typed_api.await_and_async_with import AwaitableContext, ClosedOnExit
from uringcore.quic._typed_api.certificates import CertificateSource
from uringcore.quic._typed_api.config import ServerConfig
from uringcore.quic._typed_api.listener_settings import ListenerSettings, settings_of
from uringcore.quic._typed_api.listener_socket import Binding
from uringcore.quic.connection import QuicConnection
from uringcore.quic.workers import PortWorker
from uringcore.webtransport._errors import WebTransportError
from uringcore.webtransport._server_connection import (
    SESSIONS_MAX,
    SessionTransport,
    not_found,
    over_http3,
    quic_configuration,
    request_limits,
    session_limits,
)
from uringcore.webtransport._session import Session
from uringcore.webtransport._session_lifecycle import SessionState, check_close
from uringcore.webtransport._session_request import SessionRequest, accepted

__all__ = ["Server", "serve"]

Handler = Callable[[Session], Awaitable[object]]

HANDLER_FAILED = 1
"""The code of sessions whose handler has raised."""

logger = logging.getLogger("uringcore.webtransport")


@overload
def serve(
    host: str,
    port: int,
    *,
    certificate: CertificateSource | None = None,
    certificates: Sequence[CertificateSource] | None = None,
    config: ServerConfig | None = None,
    paths: Collection[str] | None = None,
    origins: Collection[str] | None = None,
    protocols: Sequence[str] = (),
    handler: Handler | None = None,
    max_sessions: int = SESSIONS_MAX,
    reuse_port: bool = False,
) -> AwaitableContext[Server]: ...


@overload
def serve(
    *,
    certificate: CertificateSource | None = None,
    certificates: Sequence[CertificateSource] | None = None,
    config: ServerConfig | None = None,
    paths: Collection[str] | None = None,
    origins: Collection[str] | None = None,
    protocols: Sequence[str] = (),
    handler: Handler | None = None,
    max_sessions: int = SESSIONS_MAX,
    workers: PortWorker,
) -> AwaitableContext[Server]: ...


@overload
def serve(
    *,
    certificate: CertificateSource | None = None,
    certificates: Sequence[CertificateSource] | None = None,
    config: ServerConfig | None = None,
    paths: Collection[str] | None = None,
    origins: Collection[str] | None = None,
    protocols: Sequence[str] = (),
    handler: Handler | None = None,
    max_sessions: int = SESSIONS_MAX,
    sock: socket.socket,
) -> AwaitableContext[Server]: ...


def serve(
    host: str | None = None,
    port: int | None = None,
    *,
    certificate: CertificateSource | None = None,
    certificates: Sequence[CertificateSource] | None = None,
    config: ServerConfig | None = None,
    paths: Collection[str] | None = None,
    origins: Collection[str] | None = None,
    protocols: Sequence[str] = (),
    handler: Handler | None = None,
    max_sessions: int = SESSIONS_MAX,
    reuse_port: bool = False,
    workers: PortWorker | None = None,
    sock: socket.socket | None = None,
) -> AwaitableContext[Server]:
    """Serves WebTransport over HTTP/3.

    ``async with serve(...) as server:`` closes the server at the end of the block; after ``server = await
    serve(...)`` the program closes it.

    Without a ``handler``, ``async for request in server`` yields a :class:`SessionRequest` for each client
    that requests a session. With a handler, each session is accepted, with the first of ``protocols`` that
    its client offers, and ``handler(session)`` runs in a task. When it returns, the session is closed; when
    it raises, the exception is logged and the session is closed with code 1.

    Requests for another path than those of ``paths`` (without the query) are answered with 404, requests with
    another ``origin`` field than those of ``origins``, or without one, with 403. ``None`` allows all.

    A client may have ``max_sessions`` at once on its connection; a request beyond them is reset
    (H3_REQUEST_REJECTED). The limits of ``config`` on streams, bytes and datagrams apply to each session,
    QUIC's windows to the connection, ``backlog`` to requests. ``alpn`` and ``datagrams`` of ``config`` cannot
    be changed: WebTransport needs ``h3`` and datagrams.

    ``certificate`` or ``certificates`` replace those of ``config``; a certificate is required. ``host``,
    ``port``, ``reuse_port``, ``workers`` and ``sock`` are those of :func:`uringcore.quic.listen`. Raises
    ``ValueError`` for an argument that is out of range, ``TypeError`` without a certificate, and as
    :func:`uringcore.quic.listen`.
    """
    binding = Binding.checked(
        "serve()", host, port, reuse_port=reuse_port, workers=workers, sock=sock
    )
    config = settings_of("serve()", config, certificate=certificate, certificates=certificates)
    if not 1 <= max_sessions <= 1 << 32:
        raise ValueError(f"max_sessions: must be 1 to {1 << 32}, not {max_sessions}")
    for name, given in (("paths", paths), ("origins", origins), ("protocols", protocols)):
        if isinstance(given, str | bytes):
            raise ValueError(f"{name}: must be several strings, not one")
    config = over_http3(config)
    allowed = _Allowed(
        None if paths is None else frozenset(paths),
        None if origins is None else frozenset(origins),
    )

    async def start() -> Server:
        loop = asyncio.get_running_loop()
        server = Server(
            loop, config, binding.workers, allowed, tuple(protocols), handler, max_sessions
        )
        await server._listen(binding)
        return server

    return AwaitableContext(start)


@dataclasses.dataclass(frozen=True)
class _Allowed:
    """The paths and origins for which the server accepts sessions."""

    paths: frozenset[str] | None
    origins: frozenset[str] | None

    def refusal(self, link: SessionState) -> int | None:
        """The status for a request that may not have a session."""
        asked = link.asked
        if self.paths is not None and asked.path.partition("?")[0] not in self.paths:
            return 404
        if self.origins is not None and asked.origin not in self.origins:
            return 403
        return None


class Server(ClosedOnExit):
    """A WebTransport server. Without a handler, ``config.backlog`` requests may wait for the program; more
    are refused with 503.

    ``async with server:`` closes the server and its sessions at the end of the block.
    """

    _transport: QuicTransport

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: ServerConfig,
        worker: PortWorker | None,
        allowed: _Allowed,
        protocols: tuple[str, ...],
        handler: Handler | None,
        max_sessions: int,
    ) -> None:
        self._loop = loop
        self._served = ListenerSettings(
            {"h3": self._make_transport}, config, worker, quic_configuration
        )
        self._allowed = allowed
        self._protocols = protocols
        self._handler = handler
        self._limits = request_limits()
        self._max_sessions = max_sessions
        self._log = ClientLog(logger, LOG_LINES, logging.INFO)
        self._service = _service(loop, self._log)
        self._transports: set[SessionTransport] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._backlog: Backlog[SessionState] = Backlog(loop, config.backlog)
        self._is_closed = False
        self._is_going_away = False
        self._is_draining = False
        self._ending: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()
        self._tick: asyncio.TimerHandle | None = None
        self._counts = {"sessions_asked": 0, "sessions_refused": 0}

    @property
    def address(self) -> tuple[str, int]:
        """The local address and port."""
        name = self._transport.get_extra_info("sockname")
        return str(name[0]), int(name[1])

    @property
    def is_closed(self) -> bool:
        """True after :meth:`close`."""
        return self._is_closed

    def stats(self) -> dict[str, int]:
        """Counters: sessions open, requested and refused, and those of
        :meth:`uringcore.quic.Listener.stats`."""
        open_now = sum(
            link.is_open
            for session_transport in self._transports
            for link in session_transport.sessions
        )
        return {**self._transport.stats(), **self._counts, "sessions_open": open_now}

    def __aiter__(self) -> Server:
        return self

    async def __anext__(self) -> SessionRequest:
        """The next request. A cancelled call has taken none."""
        if self._handler is not None:
            raise RuntimeError("the server has a handler, which gets the sessions")
        while True:
            link = self._next()
            if link is not None:
                return SessionRequest(link, self._protocols)
            if self._is_closed:
                raise StopAsyncIteration
            await self._backlog.wait()

    def _next(self) -> SessionState | None:
        """Returns the first waiting request whose client is still connected."""
        while (link := self._backlog.take()) is not None:
            if not link.is_closed:
                return link
        return None

    def reload(self, config: ServerConfig | None = None) -> None:
        """Reads the files of the settings again (certificates, keys, authorities), or takes other
        settings, for new connections. Open connections and their sessions continue unchanged.

        What may change, and the exceptions, are those of :meth:`uringcore.quic.Listener.reload`.
        """
        self._served.reload(self._transport, None if config is None else over_http3(config))
        self._backlog.resize(self._served.config.backlog)

    def stop_accepting(self) -> None:
        """Refuses new connections and sessions; open ones continue."""
        self._is_going_away = True
        self._transport.stop_accepting()

    async def drain(self, timeout: float | None = None) -> None:
        """Refuses new connections and sessions, asks all clients to end their sessions, waits until they
        have, and closes the socket.

        A worker sends new clients to the next worker of its port, by a Retry. Requests in the backlog can be
        accepted meanwhile. After ``timeout`` seconds the sessions that are left are closed with code 0;
        ``None`` waits without a limit. After a cancellation the server refuses sessions until :meth:`close`
        is called.
        """
        self._is_going_away = self._is_draining = True
        self._transport.drain()
        for session_transport in list(self._transports):
            session_transport.go_away()
        await asyncio.wait([self._transport._closed], timeout=timeout)
        self.close()
        await self.wait_closed()

    def close(self, code: int = 0, reason: str = "") -> None:
        """Closes all sessions with a code and a reason, and then the socket: see :meth:`wait_closed`.

        Raises ``ValueError`` for a code or a reason that is too long, as a session's ``close``.
        """
        check_close(code, reason)
        if self._is_closed:
            return
        self.stop_accepting()
        for session_transport in list(self._transports):
            for link in list(session_transport.sessions):
                if link.is_open:
                    link.close(code, reason)
                else:
                    link.refuse(503)
        self._is_closed = True
        self._backlog.clear()
        self._ending = self._loop.create_task(self._end())

    async def wait_closed(self) -> None:
        """Waits until the clients have acknowledged the close (``close_timeout`` seconds at most), handlers
        have returned, and the socket is closed."""
        await self._ended.wait()

    async def _end(self) -> None:
        try:
            links = [
                link for session_transport in self._transports for link in session_transport.leaving
            ]
            await asyncio.gather(*(link.wait_released() for link in links))
            if self._tasks:
                timeout = self._served.config.close_timeout
                _, late = await asyncio.wait(self._tasks, timeout=timeout)
                for task in late:
                    task.cancel()
                await asyncio.gather(*late, return_exceptions=True)
        finally:
            if self._tick is not None:
                self._tick.cancel()
                self._tick = None
            self._transport.close_connections(H3_NO_ERROR, "")
            self._transport.close()
        await self._transport.wait_closed()
        self._log.close()
        self._ended.set()

    # Connections and requests

    async def _listen(self, binding: Binding) -> None:
        self._transport = await binding.open(self._loop, self._served.accept_settings)
        self._tick = self._loop.call_later(TICK_SECONDS, self._look_at_clock)

    def _look_at_clock(self) -> None:
        self._tick = self._loop.call_later(TICK_SECONDS, self._look_at_clock)
        self._log.tick()
        for session_transport in list(self._transports):
            session_transport.tick()

    def _make_transport(self, quic: QuicConnection) -> SessionTransport:
        config = self._served.config
        session_transport = SessionTransport(
            quic,
            self._service,
            self._limits,
            close_timeout=config.close_timeout,
            session_limits=session_limits(config, self._max_sessions),
            on_request=self._session_requested,
            on_over=self._transports.discard,
        )
        self._transports.add(session_transport)
        if self._is_draining:
            session_transport.go_away()
        return session_transport

    def _session_requested(self, link: SessionState) -> None:
        self._counts["sessions_asked"] += 1
        status = 503 if self._is_going_away else self._allowed.refusal(link)
        if status is None and self._handler is None and not self._backlog.enter(link):
            status = 503
        if status is not None:
            self._counts["sessions_refused"] += 1
            link.refuse(status)
        elif self._handler is not None:
            self._begin(self._handle(self._handler, link))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs ``work`` as a task, eagerly from CPython 3.12 on."""
        task: asyncio.Task[None]
        if sys.version_info >= (3, 12) and self._loop.get_task_factory() is None:
            task = asyncio.Task(work, loop=self._loop, eager_start=True)
        else:
            task = self._loop.create_task(work)
        if not task.done():
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _handle(self, handler: Handler, link: SessionState) -> None:
        if link.is_closed:
            return
        try:
            session = accepted(link, self._protocols)
        except (WebTransportError, ValueError):
            # The client has disconnected, or has offered none of the protocols.
            link.refuse(500)
            return
        async with session:
            try:
                await handler(session)
            except QuicError as error:
                # An exception because the session has ended is no fault of the handler.
                if not session.is_closed:
                    self._failed(session, link, error)
            except Exception as error:  # noqa: BLE001 - a handler may raise anything
                self._failed(session, link, error)

    def _failed(self, session: Session, link: SessionState, error: Exception) -> None:
        if link.is_abandoned or isinstance(error, DatagramSendError):
            # Clients can cause these exceptions at will, so the number of log lines about them is limited.
            why = "after its client had gone" if link.is_abandoned else "by its client's limit"
            text = f"Exception in the handler of {session!r}, {why}"
            self._log.report("departure", text, (session.peer_address, error))
        else:
            logger.error("Exception in the handler of %r", session, exc_info=error)
        session.close(HANDLER_FAILED, "")


def _service(loop: asyncio.AbstractEventLoop, log: ClientLog) -> AsgiService:
    """Makes the service that answers requests which are not for a session."""
    return AsgiService(
        not_found,
        event_loop=loop,
        scope={"type": "http", "asgi": {"version": "3.0"}, "http_version": "3", "scheme": "https"},
        root_path="",
        raw_root_path=b"",
        state={},
        extensions={},
        tasks=set(),
        report=log.report,
    )


# The number of log lines that one client may cause at once.
LOG_LINES = 10
# Seconds between two checks of time limits.
TICK_SECONDS = 1.0
# The error code for an orderly end of a connection (RFC 9114 section 8.1).
H3_NO_ERROR = 0x100
