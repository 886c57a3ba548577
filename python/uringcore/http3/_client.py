"""Requests to any origin, on connections that are kept: :class:`Client`.

::

    async with uringcore.http3.Client() as client:
        response = await client.get("https://example.org/")
        async with client.stream("PUT", "https://example.org/big", content=parts()) as response:
            async for part in response.iter_bytes():
                ...

A request goes on an open connection to its origin, or waits for one that is being made
(``_connection_pool``). Second tries are decided here, and nowhere else.

A malformed response ends its request; a connection error of RFC 9114 ends the connection. 0-RTT data goes to
the address of the last connection, with a ticket that is used once, and only with safe requests. If nothing
answers there for four round trips, and at least a quarter of a second, all addresses of the name are tried,
as in a first connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

from uringcore.http3._connection_pool import ConnectionPool
from uringcore.http3._errors import (
    ConnectError,
    ConnectionLostError,
    HTTP3Error,
    ReadTimeoutError,
    RequestResetError,
    URLError,
)
from uringcore.http3._exchange import InterimHandler, Response
from uringcore.http3._pooled_connection import PooledConnection
from uringcore.http3._request import Content, Headers, Request, pairs, to_bytes
from uringcore.http3._request_methods import Methods
from uringcore.http3._resumption_cache import ResumptionCache, Route
from uringcore.http3._timeouts_and_limits import Limits, Timeouts
from uringcore.http3._unpooled_connection import client_configuration
from uringcore.http3._url import parse_url
from uringcore.http3._websocket import (
    MAX_MESSAGE_BYTES,
    WebSocket,
    opened,
    websocket_request,
)
from uringcore.quic._errors import QuicIdleTimeoutError
from uringcore.quic._host_argument_checks import server_name_of
from uringcore.quic.configuration import QuicConfiguration

__all__ = ["Client", "pooled_configuration"]

# Seconds without a packet after which a connection with open requests sends a PING (RFC 9114 section 5.1:
# connections are kept open while responses are outstanding).
KEEP_ALIVE = 10.0

TOO_EARLY = 425

_SCHEME = re.compile("[A-Za-z][A-Za-z0-9+.-]*://")


class Client(Methods):
    """Requests to any origin. Connections are opened when requests need them, and kept for later ones.

    ``base_url`` is an ``https`` URL without a query; a URL without a scheme, such as ``"/path"``, is appended
    to it. ``headers`` are sent with each request that does not name the same field itself. ``cafile`` is a
    PEM file with the authorities to trust instead of the system's; ``verify=False`` accepts any certificate.
    ``configuration`` replaces ``cafile`` and ``verify`` and sets everything else but the server's name.
    ``limits`` bounds connections and waiting requests. ``timeouts`` apply to requests without their own.
    ``early_data=False`` never sends a request as 0-RTT data.

    - When a server goes away, or all streams of a connection are in use, the next request opens another
      connection.
    - A request is sent a second time, on another connection, if the server has certainly not acted on it, or
      if it is idempotent and its connection ended; but only if its body was given as bytes or has not been
      read (RFC 9114 section 4.1.1, RFC 9110 section 9.2.2).
    - A connection gets no further requests after a ``ReadTimeoutError``, or if it was idle and the server
      then stays silent for a second: the server may have been killed.
    - Connections are resumed. If the server allows it, requests with a safe method and no body leave as
      0-RTT data; a request that the server answers with 425 (Too Early) is sent again after the handshake.

    Safe for many tasks of one loop; runs on any asyncio loop. Raises :class:`URLError` for an invalid
    ``base_url``.
    """

    def __init__(
        self,
        *,
        base_url: str | None = None,
        headers: Headers = (),
        cafile: str | None = None,
        verify: bool = True,
        configuration: QuicConfiguration | None = None,
        limits: Limits | None = None,
        timeouts: Timeouts | None = None,
        early_data: bool = True,
    ) -> None:
        if configuration is None:
            configuration = pooled_configuration(cafile, verify)
        self._configuration = configuration
        self.limits: Limits = Limits() if limits is None else limits
        self.timeouts: Timeouts = Timeouts() if timeouts is None else timeouts
        self._early_data = early_data
        self._pools: dict[Route, ConnectionPool] = {}
        self._resumption_cache = ResumptionCache()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._base = None if base_url is None else _checked_base(base_url)
        self._headers = [(to_bytes(name).lower(), value) for name, value in pairs(headers)]

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes all connections. Open requests fail, and later ones raise ``RuntimeError``."""
        self._is_closed = True
        for pool in self._pools.values():
            pool.close()
        if self._loop is asyncio.get_running_loop():
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # Requests

    @contextlib.asynccontextmanager
    async def websocket(
        self,
        url: str,
        *,
        headers: Headers = (),
        subprotocols: Sequence[str] = (),
        max_size: int = MAX_MESSAGE_BYTES,
        timeouts: Timeouts | None = None,
    ) -> AsyncIterator[WebSocket]:
        """A WebSocket (RFC 9220) at a ``wss`` or ``https`` URL; leaving the block closes it.

        ``max_size`` bounds a received message, in bytes. ``timeouts.read`` bounds the wait for the server's
        answer and for each message; by default the wait for messages has no bound. Raises
        :class:`WebSocketRefusedError`, or another :class:`HTTP3Error`.
        """
        headers = self._with_defaults(headers)
        request = websocket_request(self._absolute(url), headers, subprotocols)
        given = replace(self.timeouts, read=None) if timeouts is None else timeouts
        answer = (self.timeouts if timeouts is None else timeouts).read
        pool = self._pool_of(Route.direct(request.origin))
        connection = await pool.lease(False, given)
        try:
            assert connection.protocol is not None
            opening = opened(connection.protocol, request, given, max_size, answer)
            async with opening as websocket:
                yield websocket
        finally:
            pool.release(connection)

    def _request(self, method: str, url: str, headers: Headers, content: Content | None) -> Request:
        return Request.to(method, self._absolute(url), self._with_defaults(headers), content)

    async def _send(
        self,
        request: Request,
        *,
        route: Route | None = None,
        on_interim: InterimHandler | None = None,
        timeouts: Timeouts | None = None,
        patience: float | None = None,
        repeat: bool = True,
    ) -> Response:
        """Sends a request and waits for the header section of its response, which the caller closes.

        ``route`` is the place to connect to, if it is not the origin itself. After ``patience`` seconds
        without a connection the request ends (``ConnectTimeoutError``); the connection is still tried for
        ``timeouts.connect`` seconds. ``repeat=False`` leaves second tries to the caller.
        """
        route = Route.direct(request.origin) if route is None else route
        timeouts = self.timeouts if timeouts is None else timeouts
        safe = request.is_safe
        while True:
            pool = self._pool_of(route)
            connection = await pool.lease(safe, timeouts, patience)
            try:
                response = await self._fetch(pool, connection, request, timeouts, on_interim)
            except HTTP3Error as exc:
                if self._is_closed or not repeat or not request.may_repeat(exc):
                    raise
                repeat = False
                continue
            if response.status == TOO_EARLY and response.was_early:
                # The second try of a request that was answered with 425 is not sent as early data (RFC 8470
                # section 5.2).
                await response.aclose()
                safe = False
                continue
            return response

    def _is_connected(self, route: Route) -> bool:
        """True if there is a connection to ``route`` that takes any request now."""
        pool = self._pools.get(route)
        return pool is not None and pool.free(safe=False) is not None

    async def _fetch(
        self,
        pool: ConnectionPool,
        connection: PooledConnection,
        request: Request,
        timeouts: Timeouts,
        on_interim: InterimHandler | None,
    ) -> Response:
        assert connection.protocol is not None
        try:
            fetching = connection.protocol.fetch(request, timeouts, on_interim)
            if connection.awaits_probe:
                fetching = _watched(pool, connection, request, fetching)
            response = await fetching
        except BaseException as exc:
            if isinstance(exc, ReadTimeoutError) or (
                isinstance(exc, RequestResetError) and exc.retryable
            ):
                # The server may be dead, or it rejects requests. So the connection gets no further requests.
                connection.retire()
            pool.release(connection)
            if isinstance(exc, ConnectionLostError) and not connection.protocol.is_established:
                raise ConnectError(str(exc)) from exc.__cause__
            raise
        response._on_close = lambda: _release_on_close(pool, connection, response)
        return response

    def _absolute(self, url: str) -> str:
        if self._base is None or _SCHEME.match(url):
            return url
        return self._base + url.lstrip("/")

    def _with_defaults(self, headers: Headers) -> Headers:
        if not self._headers:
            return headers
        given = list(pairs(headers))
        names = {to_bytes(name).lower() for name, _ in given}
        return [*(field for field in self._headers if field[0] not in names), *given]

    # Connections

    def _pool_of(self, route: Route) -> ConnectionPool:
        loop = asyncio.get_running_loop()
        if self._is_closed:
            raise RuntimeError("the client is closed")
        if loop is not self._loop:
            # The client is used on another loop. The connections of the old loop can be neither used nor
            # closed.
            self._loop = loop
            self._pools = {}
            self._tasks = set()
        pool = self._pools.get(route)
        if pool is None:
            configuration = self._configuration._named(server_name_of(route.origin.host))
            pool = ConnectionPool(
                self.limits,
                lambda early, timeout: self._open(route, configuration, early, timeout),
                self._settle_waiting,
            )
            self._pools[route] = pool
        return pool

    def _open(
        self, route: Route, configuration: QuicConfiguration, early: bool, timeout: float | None
    ) -> PooledConnection | None:
        """Opens a connection. Returns ``None`` if ``Limits.connections`` are open and none is idle."""
        if not self._make_room():
            return None
        connection = PooledConnection(
            route,
            configuration,
            self._resumption_cache.of(route),
            early=early and self._early_data,
            timeout=timeout,
            on_change=self._changed,
        )
        self._tasks.add(connection.task)
        connection.task.add_done_callback(self._tasks.discard)
        return connection

    def _make_room(self) -> bool:
        every = [one for pool in self._pools.values() for one in pool.connections]
        if len(every) < self.limits.connections:
            return True
        idle = [one for one in every if one.idle_timer is not None]
        if not idle:
            return False
        min(idle, key=_idle_since).close()
        return True

    def _changed(self, connection: PooledConnection) -> None:
        pool = self._pools.get(connection.route)
        if pool is None or self._is_closed:
            return
        pool.changed(connection)
        if not connection.is_over:
            return
        self._settle_waiting()
        if pool.is_empty:
            del self._pools[connection.route]

    def _settle_waiting(self) -> None:
        """Serves requests of other origins that wait because ``Limits.connections`` are open."""
        for pool in list(self._pools.values()):
            if pool.has_waiters:
                pool.settle()


def _checked_base(url: str) -> str:
    """Checks ``base_url``, and returns it with a slash at its end, so that paths can be appended."""
    parse_url(url)
    if "?" in url or "#" in url:
        raise URLError(f"base_url: {url!r} has a query or a fragment")
    return url.rstrip("/") + "/"


def _release_on_close(
    pool: ConnectionPool, connection: PooledConnection, response: Response
) -> None:
    if response.timed_out:
        connection.retire()
    pool.release(connection)


async def _watched(
    pool: ConnectionPool,
    connection: PooledConnection,
    request: Request,
    fetching: Coroutine[Any, Any, Response],
) -> Response:
    """Returns the response of a request on a connection whose PING is not acknowledged yet. If the server
    stays silent, the connection gets no more requests, and a request that may be repeated fails before QUIC's
    idle time-out."""
    task = asyncio.ensure_future(fetching)
    try:
        await asyncio.wait([task], timeout=connection.patience)
        if not task.done() and connection.awaits_probe:
            pool.died(connection)
            why = "the connection died while it was idle: the server is silent"
            lost = ConnectionLostError.by(QuicIdleTimeoutError(0, None, "", why))
            if request.may_repeat(lost):
                raise lost
        return await task
    except BaseException:
        task.cancel()
        (left,) = await asyncio.gather(task, return_exceptions=True)
        if isinstance(left, Response):
            await left.aclose()
        raise


def pooled_configuration(cafile: str | None = None, verify: bool = True) -> QuicConfiguration:
    """Makes the default configuration of a client's connections, which are kept for several requests."""
    configuration = client_configuration(cafile, verify)
    configuration.keep_alive = KEEP_ALIVE
    return configuration


def _idle_since(connection: PooledConnection) -> float:
    return 0.0 if connection.idle_timer is None else connection.idle_timer.when()
