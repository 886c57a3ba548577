"""The option ``--request-ids``: an identifier for each request, and its W3C trace context.

The application gets both in ``scope["state"]``, the client the identifier in ``X-Request-ID``, and the
lines of the log that a request causes have them as fields. Without the option nothing here runs.
"""

from __future__ import annotations

import contextvars
import logging
import re
import secrets
from typing import Any, NamedTuple

from uvicorn.logging import AccessFormatter
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from uringcore.server._trace_context import trace_context

__all__ = ["IdentifyingAccessFormatter", "RequestIds", "identify_records", "identity_of"]


class Identity(NamedTuple):
    """The identifiers of a request. The names are keys of ``scope["state"]``, and attributes of log records.

    The application may change its state, so the log does not read that.
    """

    request_id: str
    trace_id: str
    span_id: str


SCOPE_KEY = "uringcore.request_identity"
"""The key of the scope that has the :class:`Identity`."""

PLAIN = re.compile(r"[0-9A-Za-z._~+/=:@-]{1,128}", re.ASCII)
"""The form of an accepted X-Request-ID, and of each field at the end of a log line. It cannot change the
meaning of a log line or of a header field."""

current: contextvars.ContextVar[Identity | None]
current = contextvars.ContextVar("uringcore_request_ids", default=None)


class RequestIds:
    """Wraps an application, outside of the middleware that replaces the client's address.

    ``trusted`` contains the peers whose ``X-Request-ID`` is accepted (``forwarded_allow_ips``). A request
    of another one, or with several or an odd value, gets a new identifier of 32 hexadecimal digits.
    ``traceparent`` is accepted from everybody if it is valid.
    """

    def __init__(self, application: Any, forwarded_allow_ips: Any) -> None:
        self._application = application
        self._trusted: Any = ProxyHeadersMiddleware(
            None,  # type: ignore[arg-type]
            trusted_hosts=forwarded_allow_ips,
        ).trusted_hosts

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Runs as an ASGI application."""
        if scope["type"] not in ("http", "websocket"):
            await self._application(scope, receive, send)
            return
        request_id = self._request_id(scope)
        traces = [value for name, value in scope["headers"] if name == b"traceparent"]
        trace = trace_context(traces)
        identity = Identity(request_id, trace.trace_id, trace.span_id)
        scope[SCOPE_KEY] = identity
        state = scope.setdefault("state", {})
        state.update(identity._asdict())
        state["parent_span_id"] = trace.parent_span_id
        field = (b"x-request-id", request_id.encode())

        async def send_identified(message: Any) -> None:
            if message["type"] in ("http.response.start", "websocket.accept"):
                headers = list(message.get("headers") or ())
                if all(bytes(name).lower() != field[0] for name, _ in headers):
                    message = {**message, "headers": [*headers, field]}
            await send(message)

        token = current.set(identity)
        try:
            await self._application(scope, receive, send_identified)
        finally:
            current.reset(token)

    def _request_id(self, scope: Any) -> str:
        client = scope.get("client")
        if (client[0] if client else None) in self._trusted:
            given = [value for name, value in scope["headers"] if name == b"x-request-id"]
            if len(given) == 1 and PLAIN.fullmatch(text := given[0].decode("latin-1")):
                return str(text)
        return secrets.token_hex(16)


def identity_of(scope: Any) -> dict[str, str] | None:
    """Returns the fields of a log line about the request with this scope; ``None`` without the option."""
    identity = scope.get(SCOPE_KEY)
    return identity._asdict() if isinstance(identity, Identity) else None


class IdentityFilter(logging.Filter):
    """Adds the fields to records that are logged in the context of a request."""

    def filter(self, record: logging.LogRecord) -> bool:
        identity = current.get()
        if identity is not None:
            for name, value in identity._asdict().items():
                record.__dict__.setdefault(name, value)
        return True


def identify_records() -> None:
    """Adds the fields to the records of the server's loggers. Handlers of a program may use
    :class:`IdentityFilter` too."""
    for name in ("uvicorn.access", "uvicorn.error"):
        found = logging.getLogger(name)
        if not any(isinstance(one, IdentityFilter) for one in found.filters):
            found.addFilter(IdentityFilter())


class IdentifyingAccessFormatter(AccessFormatter):
    """uvicorn's format of the access log, with the fields at the end of a line that has them.

    A program may add attributes with these names to records, so each value is checked.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Returns the line."""
        values = ((name, record.__dict__.get(name)) for name in Identity._fields)
        found = [
            f"{name}={value}"
            for name, value in values
            if isinstance(value, str) and PLAIN.fullmatch(value)
        ]
        return " ".join([super().formatMessage(record), *found])
