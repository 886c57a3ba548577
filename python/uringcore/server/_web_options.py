"""Options of features for which servers often have a reverse proxy in front, or because they have one: files,
compression, the PROXY protocol.

They are arguments of :class:`~uringcore.server.Config` and options of the command.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from uvicorn.importer import ImportFromStringError, import_from_string
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from uringcore._uringcore import ResponseCompression
from uringcore.server._request_hook import HookedRequests
from uringcore.server._request_ids import RequestIds, identify_records
from uringcore.server._startup_errors import StartupError
from uringcore.server._static_routes import parse_static, static_routes
from uringcore.server._wsgi import use_wsgi

__all__ = ["CODINGS", "WebOptions", "web_options"]

CODINGS = ("zstd", "br", "gzip")
"""The content codings of responses."""


@dataclass(frozen=True)
class WebOptions:
    """The options. Raises :class:`~uringcore.server.StartupError` for a mistake."""

    static: Sequence[str] = ()
    """Folders to publish, as ``"/prefix=folder"``; see :class:`~uringcore.server.StaticFiles`. The longest
    prefix that fits is used. Below the prefix ``/`` the application gets the requests for which there is no
    file."""

    static_cache_control: str | None = None
    """The value of Cache-Control of these files."""

    compress: bool = False
    """Compress responses for clients that accept it (Accept-Encoding), except with uvicorn's classes."""

    compress_codings: Sequence[str] | str = CODINGS
    """The codings, in the order of preference; also as one text with commas."""

    compress_min_size: int = 1024
    """Content of fewer bytes is not compressed, if its size is known when the response begins."""

    compress_level: int | None = None
    """1 (fast) to 9 (small). The default is 3 for zstd, 4 for br and 6 for gzip."""

    compress_streams: int = 256
    """Responses of a process that are compressed at the same time, without those of up to 128
    KiB in one message. Further ones are sent as they are."""

    proxy_protocol: bool = False
    """Expect the header of the PROXY protocol, version 1 or 2, at the beginning of each TCP connection,
    before TLS. Only the peers of ``forwarded_allow_ips`` may connect. Needs uringcore's loop."""

    proxy_protocol_timeout: float = 5.0
    """Seconds within which the header must be complete. Otherwise the connection is closed."""

    redirect_http: int | None = None
    """A TCP port without TLS on the server's host, whose requests are redirected to HTTPS (308), if the
    certificate is for their host."""

    redirect_https_port: int | None = None
    """The port of HTTPS in these redirects; ``None`` for the server's own."""

    request_ids: bool = False
    """Give each request an identifier and a trace context: see :mod:`uringcore.server._request_ids`."""

    request_hook: Any = None
    """An object that observes requests, or its import string: see :mod:`uringcore.server._request_hook`."""

    wsgi_threads: int = 32
    """Threads of a process for the requests of a WSGI application. Further requests wait."""

    redirect_sockets: list[socket.socket] = field(default_factory=list, init=False, compare=False)
    """The bound sockets of ``redirect_http``, which worker processes inherit from their parent."""

    def __post_init__(self) -> None:
        parse_static(self.static)
        check_text("static_cache_control", self.static_cache_control)
        if self.compress_level is not None and not 1 <= self.compress_level <= 9:
            raise refusal("compress_level", f"must be 1 to 9, not {self.compress_level}")
        for name in ("compress_min_size", "compress_streams"):
            if getattr(self, name) < 0:
                raise refusal(name, f"must be 0 or more, not {getattr(self, name)}")
        for name in ("redirect_http", "redirect_https_port"):
            if not 0 <= (getattr(self, name) or 0) <= 65535:
                raise refusal(name, f"must be 0 to 65535, not {getattr(self, name)}")
        if self.wsgi_threads < 1:
            raise refusal("wsgi_threads", f"must be 1 or more, not {self.wsgi_threads}")
        if self.proxy_protocol_timeout <= 0:
            raise refusal("proxy_protocol_timeout", "must be more than 0 seconds")
        for coding in self.codings:
            if coding not in CODINGS:
                raise refusal("compress_codings", f"{coding!r} is not one of {', '.join(CODINGS)}")
        if not self.codings or len(set(self.codings)) < len(self.codings):
            raise refusal("compress_codings", "must name each coding once")

    @property
    def codings(self) -> list[str]:
        given = self.compress_codings
        return [one.strip() for one in (given.split(",") if isinstance(given, str) else given)]

    def wrap(self, config: Any) -> Any:
        """Returns the application with the folders, the hook and the identifiers in front of it.

        Folders and hook are inside of uvicorn's middleware for X-Forwarded fields, which the extension skips
        for requests without them, and the identifiers outside. ``config`` is uvicorn's, after the import of
        the application.
        """
        use_wsgi(config, max_threads=self.wsgi_threads)
        application = config.loaded_app
        proxies = application if type(application) is ProxyHeadersMiddleware else None
        inner: Any = application if proxies is None else proxies.app
        if self.static:
            inner = static_routes(inner, self.static, self.static_cache_control)
        if self.request_hook is not None:
            inner = HookedRequests(inner, imported_hook(self.request_hook))
        if proxies is None:
            application = inner
        else:
            proxies.app = inner
        if self.request_ids:
            identify_records()
            return RequestIds(application, config.forwarded_allow_ips)
        return application

    def compression(self) -> ResponseCompression | None:
        """Makes the compression of a process."""
        if not self.compress:
            return None
        return ResponseCompression(
            self.codings,
            min_size=self.compress_min_size,
            level=self.compress_level,
            max_streams=self.compress_streams,
        )


def web_options(options: dict[str, Any]) -> WebOptions:
    """Takes these options out of a server's options."""
    names = {one.name for one in fields(WebOptions) if one.init}
    given = {name: options.pop(name) for name in names.intersection(options)}
    return WebOptions(**given)


def imported_hook(hook: Any) -> Any:
    """Returns the object of ``request_hook``."""
    if not isinstance(hook, str):
        return hook
    try:
        return import_from_string(hook)
    except (ImportError, ImportFromStringError) as exc:
        raise refusal("request_hook", str(exc)) from None


def refusal(option: str, why: str) -> StartupError:
    return StartupError(f"{option}: {why}", option=option)


def check_text(option: str, value: str | None) -> None:
    """Checks a text that becomes the value of a header field."""
    if value is None:
        return
    if not value.isprintable() or not value.isascii() or value != value.strip() or not value:
        raise refusal(option, f"{value!r} is not the value of a header field")
