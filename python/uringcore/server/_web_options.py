"""Options of features for which servers often have a reverse proxy in front, or because they have one: files,
compression, the PROXY protocol.

They are arguments of :class:`~uringcore.server.Config` and options of the command.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from uringcore._uringcore import ResponseCompression
from uringcore.server._startup_errors import StartupError
from uringcore.server._static_routes import parse_static, static_routes

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
    """Compress responses for clients that accept it (Accept-Encoding), over HTTP/3 and with
    ``http="native"``."""

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

    def __post_init__(self) -> None:
        parse_static(self.static)
        check_text("static_cache_control", self.static_cache_control)
        if self.compress_level is not None and not 1 <= self.compress_level <= 9:
            raise refusal("compress_level", f"must be 1 to 9, not {self.compress_level}")
        for name in ("compress_min_size", "compress_streams"):
            if getattr(self, name) < 0:
                raise refusal(name, f"must be 0 or more, not {getattr(self, name)}")
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

    def wrap(self, application: Any) -> Any:
        """Returns the application with the folders in front of it."""
        if not self.static:
            return application
        return static_routes(self.static, self.static_cache_control)(application)

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
    names = {field.name for field in fields(WebOptions)}
    given = {name: options.pop(name) for name in names.intersection(options)}
    return WebOptions(**given)


def refusal(option: str, why: str) -> StartupError:
    return StartupError(f"{option}: {why}", option=option)


def check_text(option: str, value: str | None) -> None:
    """Checks a text that becomes the value of a header field."""
    if value is None:
        return
    if not value.isprintable() or not value.isascii() or value != value.strip() or not value:
        raise refusal(option, f"{value!r} is not the value of a header field")
