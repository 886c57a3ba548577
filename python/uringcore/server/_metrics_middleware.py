"""An ASGI middleware that counts requests and serves the pages of metrics and status.

It counts requests of HTTP/1.1 and HTTP/3 alike, by their ASGI messages. _metric_definitions.py and
_status_page.py make the pages, and _stats_snapshot.py collects their data.

The middleware is added only if an option needs it. A report reads a few hundred connections in each iteration
of the loop, and all callers within a second share it. The counters of a connection are added when it ends.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Awaitable, Callable, Collection, MutableMapping, Sequence
from typing import Any, Protocol

from uringcore.quic._openmetrics_text import CONTENT_TYPE, exposition
from uringcore.server import _status_page as status_page
from uringcore.server._metric_definitions import families
from uringcore.server._request_counters import Counters
from uringcore.server._shared_result import SharedResult
from uringcore.server._stats_snapshot import Endpoint, Report, Sources, make_report
from uringcore.server._worker_stats_exchange import WorkerReports

__all__ = ["MetricsMiddleware"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

TICK_SECONDS = 0.1
"""The interval of uvicorn's on_tick."""


class Application(Protocol):
    def __call__(self, scope: Any, receive: Any, send: Any) -> Awaitable[None]: ...


class Listener(Protocol):
    """The interface of the QUIC endpoints that the pages report on."""

    @property
    def service(self) -> Any: ...
    @property
    def endpoints(self) -> Sequence[Endpoint]: ...


Field = tuple[bytes, bytes]

Page = Callable[[bytes], Awaitable[tuple[bytes, list[Field]]]]
"""A page's content and header fields, for a query."""

Answer = tuple[int, list[Field], bytes]
"""A status, header fields, and the content to send."""


class MetricsMiddleware:
    """Wraps one server's application.

    It answers requests for ``metrics_path`` and ``status_path`` itself. ``on_port`` names the pages
    (``"metrics"``, ``"status"``) that only the metrics port serves. ``folder`` is the folder in which the
    processes of a server with several exchange their reports.
    """

    def __init__(
        self,
        *,
        metrics_path: str | None,
        status_path: str | None,
        on_port: Collection[str] = (),
        folder: str | None = None,
    ) -> None:
        self.counts: Counters = Counters()
        self.sources: Sources = Sources()
        # `_own` has the report of this process, for other processes; `_all` those of all processes, for the
        # pages.
        self._own = SharedResult(self._report)
        self._all = SharedResult(self._gathered)
        self._worker_reports: WorkerReports | None = None
        if folder is not None:
            # The process ID identifies the worker, and not the number of its place: while a worker is
            # replaced, two processes have the same place.
            self.sources.worker = str(os.getpid())
            self._worker_reports = WorkerReports(folder, self._own.get)
        self._application: Application | None = None
        self._root_path = ""
        self._tick_at: float | None = None
        self._pages: dict[str, Page] = {}
        self._port_pages: dict[str, Page] = {}
        for name, path, page in (
            ("metrics", metrics_path, self._metrics),
            ("status", status_path, self._status),
        ):
            if path is not None:
                pages = self._port_pages if name in on_port else self._pages
                pages[path] = page

    def before(self, application: Application, root_path: str) -> Application:
        """Returns the application to serve instead of ``application``."""
        self._application = application
        self._root_path = root_path
        return self

    async def start(self) -> None:
        """Called when the server has started, and repeatedly afterwards."""
        if self._worker_reports is not None:
            await self._worker_reports.start()

    def close(self) -> None:
        """Called when the server has ended."""
        if self._worker_reports is not None:
            self._worker_reports.close()

    def tick(self, state: Any, listener: Listener | None) -> None:
        """Called ten times a second while the server runs, with the sources of the report.

        The delay beyond that interval measures the loop's lag.
        """
        self.sources.state = state
        if listener is not None:
            self.sources.connections = listener.service.connections
            self.sources.endpoints = listener.endpoints
        now = time.perf_counter()
        if self._tick_at is not None:
            self.counts.add_lag(max(now - self._tick_at - TICK_SECONDS, 0.0))
        self._tick_at = now

    def response_given_up(self, why: str) -> None:
        """Counts a response that was cancelled because its HTTP/3 client reads too slowly, or not at all.
        ``why`` is the reason."""
        self.counts.given_up[why] += 1

    def connection_ended(self, stats: Any) -> None:
        """Adds the final statistics of a QUIC connection."""
        self.counts.packets_sent += stats["packets_sent"]
        self.counts.packets_lost += stats["packets_lost"]
        self.counts.bytes_lost += stats["bytes_lost"]

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Runs as an ASGI application."""
        assert self._application is not None
        kind = scope["type"]
        if kind == "http":
            page = self._pages.get(scope["path"].removeprefix(self._root_path))
            if page is None:
                await self._request(scope, receive, send)
            else:
                status, fields, body = await answer(page, scope["method"], scope["query_string"])
                await send({"type": "http.response.start", "status": status, "headers": fields})
                await send({"type": "http.response.body", "body": body})
        elif kind == "websocket":
            await self._websocket(scope, receive, send)
        else:
            await self._application(scope, receive, send)

    async def _request(self, scope: Any, receive: Receive, send: Send) -> None:
        assert self._application is not None
        passing = Passing(self.counts, scope, send)
        try:
            await self._application(scope, receive, passing.send)
        finally:
            passing.end()

    async def _websocket(self, scope: Any, receive: Receive, send: Send) -> None:
        assert self._application is not None
        self.counts.websockets += 1
        self.counts.websockets_open += 1
        try:
            await self._application(scope, receive, send)
        finally:
            self.counts.websockets_open -= 1

    # Pages

    async def port_page(self, path: str, method: str, query: bytes) -> Answer | None:
        """Returns the answer to a request on the metrics port; ``None`` for an unknown path."""
        page = self._port_pages.get(path)
        return None if page is None else await answer(page, method, query)

    async def _metrics(self, query: bytes) -> tuple[bytes, list[Field]]:
        return (await self._all.get()).metrics

    async def _status(self, query: bytes) -> tuple[bytes, list[Field]]:
        if query != status_page.DATA_QUERY:
            return status_page.page()
        return (await self._all.get()).status

    async def _report(self) -> Report:
        return await make_report(self.counts, self.sources)

    async def _gathered(self) -> Gathered:
        """Returns the reports of all processes of this server."""
        if self._worker_reports is None:
            return Gathered([await self._report()])
        return Gathered(await self._worker_reports.reports())


class Gathered:
    """The reports of all processes, and the texts that are made from them. Each text is made only once."""

    def __init__(self, reports: Sequence[Report]) -> None:
        self._reports = reports

    @functools.cached_property
    def metrics(self) -> tuple[bytes, list[Field]]:
        """The metrics for Prometheus."""
        text = exposition(families(self._reports))
        return text.encode(), [(b"content-type", CONTENT_TYPE.encode())]

    @functools.cached_property
    def status(self) -> tuple[bytes, list[Field]]:
        """The numbers of the status page."""
        return status_page.data(self._reports)


class Passing:
    """A response that an application is sending."""

    def __init__(self, counts: Counters, scope: Any, send: Send) -> None:
        self._counts = counts
        self._method: str = scope["method"]
        self._version: str = scope["http_version"]
        self._send = send
        self._began_at = time.perf_counter()
        # The status that the server sends if the application sends none.
        self._status = 500
        self._is_open = True
        counts.requests_open[self._version] += 1

    async def send(self, message: Message) -> None:
        await self._send(message)
        if message["type"] == "http.response.start":
            self._status = message["status"]
        elif message["type"] == "http.response.body" and not message.get("more_body", False):
            self.end()

    def end(self) -> None:
        """Counts the response, once."""
        if self._is_open:
            self._is_open = False
            seconds = time.perf_counter() - self._began_at
            self._counts.request_ended(self._version, self._method, self._status, seconds)


async def answer(page: Page, method: str, query: bytes) -> Answer:
    """Returns the answer with one of our pages. The content of the request is not read."""
    status, body, fields = 405, b"", [(b"allow", b"GET, HEAD")]
    if method in ("GET", "HEAD"):
        status = 200
        body, fields = await page(query)
    length = str(len(body)).encode()
    fields = [*fields, (b"cache-control", b"no-store"), (b"content-length", length)]
    return status, fields, b"" if method == "HEAD" else body
