"""``WebTransportRoute``: sessions in Starlette and FastAPI applications, which do not support them otherwise.

::

    from uringcore.contrib.starlette import WebTransportMiddleware, WebTransportRoute

    async def chat(webtransport):
        async with await webtransport.accept() as session:
            async for data in session.datagrams():
                session.send_datagram(data)

    app = Starlette(
        routes=[WebTransportRoute("/chat/{room}", chat)],
        middleware=[Middleware(WebTransportMiddleware)],
    )

The frameworks' routers refuse scopes of type ``webtransport``, so the middleware finds the route.
:func:`add_webtransport_route` adds both to an application, also to FastAPI's. The middleware finds only
routes of the application itself, not those of a mounted application or of an included router. Of the
application's other middleware only those that are listed before it run.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.convertors import Convertor
from starlette.datastructures import Headers, QueryParams
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Match, NoMatchFound, compile_path, get_name
from starlette.types import ASGIApp, Receive, Scope, Send

from uringcore.webtransport._header_fields import HeadersLike
from uringcore.webtransport._session import Session
from uringcore.webtransport._session_request import SessionRequest

__all__ = [
    "WebTransport",
    "WebTransportMiddleware",
    "WebTransportRoute",
    "add_webtransport_route",
]


class WebTransport:
    """A client's request for a session, as an endpoint receives it."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.receive = receive
        """ASGI's function, an alternative to :meth:`accept`: see :mod:`uringcore.webtransport._asgi`."""
        self.send = send
        self.request: SessionRequest = scope["extensions"]["uringcore.webtransport"]["request"]
        """The client's request, with the methods that answer it."""

    @property
    def app(self) -> Any:
        """The application."""
        return self.scope["app"]

    @property
    def state(self) -> Any:
        """The state of the application's lifespan, as a mapping."""
        return self.scope.get("state", {})

    @property
    def path_params(self) -> Mapping[str, Any]:
        """The parameters of the path."""
        params: Mapping[str, Any] = self.scope.get("path_params", {})
        return params

    @property
    def headers(self) -> Headers:
        """The request's header fields."""
        return Headers(scope=self.scope)

    @property
    def query_params(self) -> QueryParams:
        """The path's query."""
        return QueryParams(self.scope["query_string"])

    async def accept(self, *, protocol: str | None = None, headers: HeadersLike = ()) -> Session:
        """Opens the session: see :meth:`SessionRequest.accept`."""
        return await self.request.accept(protocol=protocol, headers=headers)

    def refuse(self, status: int = 403, headers: HeadersLike = ()) -> None:
        """Answers with a status instead of a session."""
        self.request.refuse(status, headers)


_Endpoint = Callable[[WebTransport], Awaitable[object]]


class WebTransportRoute(BaseRoute):
    """A path at which ``endpoint(webtransport)`` is called for each requested session."""

    def __init__(self, path: str, endpoint: _Endpoint, *, name: str | None = None) -> None:
        if not path.startswith("/"):
            raise ValueError(f"path: must begin with a slash, not {path!r}")
        self.path = path
        self.endpoint = endpoint
        self.name: str = get_name(endpoint) if name is None else name
        found = compile_path(path)
        self.path_regex: re.Pattern[str] = found[0]
        self.path_format: str = found[1]
        self.param_convertors: dict[str, Convertor[Any]] = found[2]

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Matches the path of a scope. Returns the child scope with the parameters of the path."""
        if scope["type"] != "webtransport":
            return Match.NONE, {}
        path, root = scope["path"], scope.get("root_path", "")
        if root and path.startswith(root + "/"):
            path = path[len(root) :]
        found = self.path_regex.match(path)
        if found is None:
            return Match.NONE, {}
        params = dict(scope.get("path_params", {}))
        for name, value in found.groupdict().items():
            params[name] = self.param_convertors[name].convert(value)
        return Match.FULL, {"endpoint": self.endpoint, "path_params": params}

    def url_path_for(self, name: str, /, **path_params: Any) -> Any:
        """Raises ``NoMatchFound``: no URLs are generated for sessions."""
        raise NoMatchFound(name, path_params)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Calls the endpoint."""
        await self.endpoint(WebTransport(scope, receive, send))


class WebTransportMiddleware:
    """Routes sessions to the application's :class:`WebTransportRoute`; one without a route gets a 404."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one scope."""
        if scope["type"] != "webtransport":
            await self._app(scope, receive, send)
            return
        for route in scope["app"].router.routes:
            match, found = route.matches(scope) if isinstance(route, WebTransportRoute) else _NONE
            if match is Match.FULL:
                scope.update(found)
                await route.handle(scope, receive, send)
                return
        await send({"type": "webtransport.close", "status": 404})


_NONE: tuple[Match, Scope] = (Match.NONE, {})


def add_webtransport_route(
    app: Any, path: str, endpoint: _Endpoint, *, name: str | None = None
) -> None:
    """Adds a route to a Starlette or FastAPI application, and with the first route the middleware, behind all
    middleware added so far.

    Raises ``RuntimeError`` for the first route if the application has already been called.
    """
    if all(item.cls is not WebTransportMiddleware for item in app.user_middleware):
        if app.middleware_stack is not None:
            raise RuntimeError("the application has started: no middleware can be added")
        app.user_middleware.append(Middleware(WebTransportMiddleware))
    app.router.routes.append(WebTransportRoute(path, endpoint, name=name))
