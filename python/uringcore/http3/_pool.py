"""Requests to any origin, on connections that are kept: :class:`Pool`.

::

    async with uringcore.http3.Pool() as pool:
        response = await pool.request("GET", "https://example.org/")
        async with pool.stream("PUT", "https://example.org/big", content=parts()) as response:
            async for part in response.iter_bytes():
                ...

A request goes on the connection to its origin that is there, or waits for one that is being made
(line.py). A second try is decided here, and nowhere else.

A fault ends what it is about: a malformed response ends its request, what RFC 9114 calls a connection
error ends the connection. 0-RTT data goes to the address of the last connection, with a ticket that is
used once, and only with safe requests. If nobody answers there for four round trips, and at least a
quarter of a second, all addresses of the name are tried as if nothing were known.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

from uringcore.http3._client import client_configuration
from uringcore.http3._connection_slots import ConnectionSlots
from uringcore.http3._errors import (
    ConnectError,
    ConnectionLostError,
    HTTP3Error,
    ReadTimeoutError,
    RequestResetError,
)
from uringcore.http3._exchange import InterimHandler, Response
from uringcore.http3._limits import Limits, Timeouts
from uringcore.http3._pooled import PooledConnection
from uringcore.http3._request import Content, Headers, Request
from uringcore.http3._resolution import Memories, Route
from uringcore.http3._websocket import (
    MAX_MESSAGE_BYTES,
    WebSocket,
    opened,
    websocket_request,
)
from uringcore.quic._errors import QuicIdleTimeoutError
from uringcore.quic._targets import server_name_of
from uringcore.quic.configuration import QuicConfiguration

__all__ = ["Pool", "pool_configuration"]

# Seconds without a packet after which a connection that is waited on asks whether the server is there
# (RFC 9114 section 5.1: connections are kept open while responses are outstanding).
KEEP_ALIVE = 10.0

TOO_EARLY = 425


class Pool:
    """Connections to origins, opened and closed as requests come and go.

    ``cafile`` is a PEM file of the authorities to trust instead of the system's; ``verify=False``
    accepts any certificate. ``configuration`` replaces both and sets everything else but the server's
    name. ``timeouts`` are those of requests that bring none. ``early_data=False`` never sends a
    request as 0-RTT data.

    - A connection whose server goes away, or whose streams are all in use, is followed by another.
    - A request that a server has certainly not acted on, and an idempotent one whose connection has
      ended under it, is sent again on another connection, once, if its body was given as bytes or has
      not been read (RFC 9114 section 4.1.1, RFC 9110 section 9.2.2).
    - A connection gets no further requests after a ``ReadTimeoutError``, or when it says nothing for a second
      after it has rested: its server may have been killed.
    - Connections are resumed. If the server allows, requests with a safe method and no body leave as
      0-RTT data; one that the server finds too early (425) is sent again after the handshake.

    Safe for many tasks of one loop.
    """

    def __init__(
        self,
        *,
        cafile: str | None = None,
        verify: bool = True,
        configuration: QuicConfiguration | None = None,
        limits: Limits | None = None,
        timeouts: Timeouts | None = None,
        early_data: bool = True,
    ) -> None:
        if configuration is None:
            configuration = pool_configuration(cafile, verify)
        self._configuration = configuration
        self.limits = Limits() if limits is None else limits
        self.timeouts = Timeouts() if timeouts is None else timeouts
        self._early_data = early_data
        self._slots: dict[Route, ConnectionSlots] = {}
        self._memories = Memories()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def __aenter__(self) -> Pool:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes all connections; requests that are under way fail, and no more are taken."""
        self._is_closed = True
        for slots in self._slots.values():
            slots.close()
        if self._loop is asyncio.get_running_loop():
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # Requests

    @contextlib.asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str,
        *,
        headers: Headers = (),
        content: Content | None = None,
        on_interim: InterimHandler | None = None,
        timeouts: Timeouts | None = None,
    ) -> AsyncIterator[Response]:
        """Makes a request; the block runs when the response's header section is here.

        ``content`` is sent while the response is being read. Leaving the block early cancels what is
        left of the exchange. ``on_interim(status, fields)`` is called for each interim response.
        Raises an :class:`HTTP3Error`, or what ``content`` raises.
        """
        request = Request.to(method, url, headers, content)
        response = await self.send(request, on_interim=on_interim, timeouts=timeouts)
        try:
            yield response
        finally:
            await response.aclose()

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Headers = (),
        content: Content | None = None,
        on_interim: InterimHandler | None = None,
        timeouts: Timeouts | None = None,
    ) -> Response:
        """Makes a request and reads the whole response into memory. Arguments as in :meth:`stream`."""
        async with self.stream(
            method,
            url,
            headers=headers,
            content=content,
            on_interim=on_interim,
            timeouts=timeouts,
        ) as response:
            await response.read()
            return response

    async def get(self, url: str, *, headers: Headers = ()) -> Response:
        """``request("GET", url)``."""
        return await self.request("GET", url, headers=headers)

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

        ``max_size`` is the most bytes that a message received may have. ``timeouts.read`` is for the
        server's answer and for each message to come; by default messages have no limit here. Raises
        :class:`WebSocketRefusedError`, or another :class:`HTTP3Error`.
        """
        request = websocket_request(url, headers, subprotocols)
        given = replace(self.timeouts, read=None) if timeouts is None else timeouts
        answer = (self.timeouts if timeouts is None else timeouts).read
        slots = self._slots_of(Route.direct(request.origin))
        connection = await slots.lease(False, given)
        try:
            assert connection.protocol is not None
            opening = opened(connection.protocol, request, given, max_size, answer)
            async with opening as websocket:
                yield websocket
        finally:
            slots.release(connection)

    async def send(
        self,
        request: Request,
        *,
        route: Route | None = None,
        on_interim: InterimHandler | None = None,
        timeouts: Timeouts | None = None,
        patience: float | None = None,
        repeat: bool = True,
    ) -> Response:
        """Sends a request and waits for its response's header section; ``aclose()`` the response.

        ``route`` is where to connect, if not to the origin itself. After ``patience`` seconds without
        a connection the request gives up (``ConnectTimeoutError``), while the connection is still tried
        for ``timeouts.connect``. ``repeat=False`` leaves second tries to the caller.
        """
        route = Route.direct(request.origin) if route is None else route
        timeouts = self.timeouts if timeouts is None else timeouts
        safe = request.is_safe
        while True:
            slots = self._slots_of(route)
            connection = await slots.lease(safe, timeouts, patience)
            try:
                response = await self._fetch(slots, connection, request, timeouts, on_interim)
            except HTTP3Error as exc:
                if self._is_closed or not repeat or not request.may_repeat(exc):
                    raise
                repeat = False
                continue
            if response.status == TOO_EARLY and response.was_early:
                # RFC 8470 section 5.2: once more, and not early.
                await response.aclose()
                safe = False
                continue
            return response

    def is_connected(self, route: Route) -> bool:
        """True if there is a connection to ``route`` that takes any request now."""
        slots = self._slots.get(route)
        return slots is not None and slots.free(safe=False) is not None

    async def _fetch(
        self,
        slots: ConnectionSlots,
        connection: PooledConnection,
        request: Request,
        timeouts: Timeouts,
        on_interim: InterimHandler | None,
    ) -> Response:
        assert connection.protocol is not None
        try:
            fetching = connection.protocol.fetch(request, timeouts, on_interim)
            if connection.is_doubtful:
                fetching = _watched(slots, connection, request, fetching)
            response = await fetching
        except BaseException as exc:
            if isinstance(exc, ReadTimeoutError) or (
                isinstance(exc, RequestResetError) and exc.retryable
            ):
                # The next one would fare no better: the server may be dead, or rejects it as well.
                connection.retire()
            slots.release(connection)
            if isinstance(exc, ConnectionLostError) and not connection.protocol.is_established:
                raise ConnectError(str(exc)) from exc.__cause__
            raise
        response._on_close = lambda: _give_back(slots, connection, response)
        return response

    # Connections

    def _slots_of(self, route: Route) -> ConnectionSlots:
        loop = asyncio.get_running_loop()
        if self._is_closed:
            raise RuntimeError("the pool is closed")
        if loop is not self._loop:
            # Connections of a loop that is no longer run cannot be used, nor closed.
            self._loop = loop
            self._slots = {}
            self._tasks = set()
        slots = self._slots.get(route)
        if slots is None:
            configuration = self._configuration._named(server_name_of(route.origin.host))
            slots = ConnectionSlots(
                self.limits,
                lambda early, timeout: self._open(route, configuration, early, timeout),
                self._settle_waiting,
            )
            self._slots[route] = slots
        return slots

    def _open(
        self, route: Route, configuration: QuicConfiguration, early: bool, timeout: float | None
    ) -> PooledConnection | None:
        """A new connection, if there is room for one."""
        if not self._make_room():
            return None
        connection = PooledConnection(
            route,
            configuration,
            self._memories.of(route),
            early=early and self._early_data,
            timeout=timeout,
            on_change=self._changed,
        )
        self._tasks.add(connection.task)
        connection.task.add_done_callback(self._tasks.discard)
        return connection

    def _make_room(self) -> bool:
        every = [one for slots in self._slots.values() for one in slots.connections]
        if len(every) < self.limits.connections:
            return True
        idle = [one for one in every if one.idle_timer is not None]
        if not idle:
            return False
        min(idle, key=_idle_since).close()
        return True

    def _changed(self, connection: PooledConnection) -> None:
        slots = self._slots.get(connection.route)
        if slots is None or self._is_closed:
            return
        slots.changed(connection)
        if not connection.is_over:
            return
        self._settle_waiting()
        if slots.is_empty:
            del self._slots[connection.route]

    def _settle_waiting(self) -> None:
        """There may be room, for which another origin's requests wait."""
        for slots in list(self._slots.values()):
            if slots.has_waiters:
                slots.settle()


def _give_back(slots: ConnectionSlots, connection: PooledConnection, response: Response) -> None:
    if response.timed_out:
        connection.retire()
    slots.release(connection)


async def _watched(
    slots: ConnectionSlots,
    connection: PooledConnection,
    request: Request,
    fetching: Coroutine[Any, Any, Response],
) -> Response:
    """The response, unless the connection turns out dead: then it gets no more requests, and one that may
    be repeated need not wait for QUIC's idle time-out."""
    task = asyncio.ensure_future(fetching)
    try:
        await asyncio.wait([task], timeout=connection.patience)
        if not task.done() and connection.is_doubtful:
            slots.died(connection)
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


def pool_configuration(cafile: str | None = None, verify: bool = True) -> QuicConfiguration:
    """What a pool's connections are set up with, if nobody says otherwise."""
    configuration = client_configuration(cafile, verify)
    configuration.keep_alive = KEEP_ALIVE
    return configuration


def _idle_since(connection: PooledConnection) -> float:
    return 0.0 if connection.idle_timer is None else connection.idle_timer.when()
