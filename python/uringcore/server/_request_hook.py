"""The option ``--request-hook``: an object that observes each request, with OpenTelemetry's attributes.

The package needs no OpenTelemetry. An object with these two methods connects any library for traces or
metrics::

    from opentelemetry import context, propagate, trace
    from opentelemetry.trace import SpanKind, StatusCode

    tracer = trace.get_tracer("my-server")


    class Spans:
        def request_started(self, scope, attributes):
            fields = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
            span = tracer.start_span(
                attributes["http.request.method"],
                context=propagate.extract(fields),
                kind=SpanKind.SERVER,
                attributes=attributes,
            )
            return span, context.attach(trace.set_span_in_context(span))

        def request_ended(self, started, attributes, error):
            span, token = started
            span.set_attributes(attributes)
            if "error.type" in attributes:
                span.set_status(StatusCode.ERROR)
            context.detach(token)
            span.end()


    hook = Spans()

Both methods run on the loop's thread, in the context of the application's task, so ``attach`` makes the
span current for the application. They must not wait. An exception of theirs is logged, and the request
goes on.
"""

from __future__ import annotations

import logging
from typing import Any, Protocol

__all__ = ["HookedRequests", "RequestHook"]

METHODS = frozenset(
    {"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"}
)
"""Methods that are attributes as they are. Others are ``_OTHER``, so that clients cannot make new values."""

logger = logging.getLogger("uvicorn.error")


class RequestHook(Protocol):
    """Observes requests of the types ``http`` and ``websocket``."""

    def request_started(self, scope: Any, attributes: dict[str, Any]) -> Any:
        """Called before the application. The result is passed to :meth:`request_ended`."""

    def request_ended(
        self, started: Any, attributes: dict[str, Any], error: BaseException | None
    ) -> None:
        """Called when the application has returned, or raised ``error``."""


class HookedRequests:
    """Wraps an application."""

    def __init__(self, application: Any, hook: RequestHook) -> None:
        self._application = application
        self._hook = hook

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Runs as an ASGI application."""
        if scope["type"] not in ("http", "websocket"):
            await self._application(scope, receive, send)
            return
        try:
            started = self._hook.request_started(scope, start_attributes(scope))
        except Exception:
            logger.exception("The request hook has failed at the start of a request")
            await self._application(scope, receive, send)
            return
        status: int | None = None

        async def observed_send(message: Any) -> None:
            nonlocal status
            before, status = status, status_after(message, status)
            try:
                await send(message)
            except Exception:
                # The message was refused. After a cancellation it may have been sent.
                status = before
                raise

        error: BaseException | None = None
        try:
            await self._application(scope, receive, observed_send)
        except BaseException as raised:
            error = raised
            raise
        finally:
            attributes = end_attributes(scope, status, error)
            try:
                self._hook.request_ended(started, attributes, error)
            except Exception:
                logger.exception("The request hook has failed at the end of a request")


def status_after(message: Any, status: int | None) -> int | None:
    """Returns the status of a response once the message is sent. ``status`` is the one before."""
    kind = message["type"]
    if kind in ("http.response.start", "websocket.http.response.start"):
        return int(message["status"])
    if kind == "websocket.accept":
        return 101
    if kind == "websocket.close" and status is None:
        return 403  # The server refuses a WebSocket that is closed before it is accepted.
    return status


def start_attributes(scope: Any) -> dict[str, Any]:
    """Returns the attributes of a request, by OpenTelemetry's semantic conventions for HTTP servers."""
    method = scope.get("method", "GET")
    found: dict[str, Any] = {
        "http.request.method": method if method in METHODS else "_OTHER",
        "url.scheme": scope.get("scheme", "http"),
        "url.path": scope["path"],
        "network.protocol.name": "http",
        "network.protocol.version": scope.get("http_version", "1.1"),
    }
    if method not in METHODS:
        found["http.request.method_original"] = method
    if scope["query_string"]:
        found["url.query"] = scope["query_string"].decode("latin-1")
    if scope.get("client"):
        found["client.address"], found["client.port"] = scope["client"]
    if scope.get("server"):
        found["server.address"] = scope["server"][0]
        if scope["server"][1] is not None:
            found["server.port"] = scope["server"][1]
    for name, value in scope["headers"]:
        if name == b"user-agent":
            found["user_agent.original"] = value.decode("latin-1")
    return found


def end_attributes(scope: Any, status: int | None, error: BaseException | None) -> dict[str, Any]:
    """Returns the attributes that are known at the end."""
    found: dict[str, Any] = {}
    # Starlette and FastAPI store the route.
    route = getattr(scope.get("route"), "path", None)
    if isinstance(route, str):
        found["http.route"] = route
    if isinstance(error, Exception) and status is None:
        # The server answers in place of the application, unless the request was cancelled.
        status = 500
    if status is not None:
        found["http.response.status_code"] = status
    if error is not None:
        kind = type(error)
        module = "" if kind.__module__ == "builtins" else kind.__module__ + "."
        found["error.type"] = module + kind.__qualname__
    elif status is not None and status >= 500:
        found["error.type"] = str(status)
    return found
