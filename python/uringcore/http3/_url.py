"""The origin and the request target of a URL (RFC 3986, RFC 9110 section 4.2.2)."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from uringcore.http3._errors import URLError

__all__ = ["Origin", "authority", "parse_url", "target"]

# Characters that are not changed in a path or query. All others are percent-encoded as UTF-8.
SAFE = "/:?#[]@!$&'()*+,;=%-._~"


@dataclass(frozen=True)
class Origin:
    """A host without brackets, a port, and the authority as it is sent."""

    host: str
    port: int
    authority: str


def parse_url(url: str) -> tuple[Origin, str]:
    """The origin and the request target (path and query) of an ``https`` URL.

    Raises :class:`URLError`.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as exc:
        raise URLError(f"{url!r} is not a URL: {exc}") from None
    if parts.scheme != "https":
        raise URLError(f"{url!r}: HTTP/3 needs an https:// URL")
    if not parts.hostname:
        raise URLError(f"{url!r} names no host")
    if parts.username is not None or parts.password is not None:
        raise URLError(f"{url!r}: user names in URLs are not supported (RFC 9110 section 4.2.4)")
    if port == 0:
        raise URLError(f"{url!r}: the port must be from 1 to 65535")
    host = with_plain_zone(to_ascii(parts.hostname, url))
    port = port or 443
    return Origin(host, port, authority(host, port)), target(parts.path, parts.query)


def with_plain_zone(host: str) -> str:
    """A host with the zone of its IPv6 address as the system writes it: URLs encode the ``%`` as ``%25``
    (RFC 6874)."""
    address, separator, zone = host.partition("%")
    if ":" not in address or not separator:
        return host
    return f"{address}%{zone.removeprefix('25') or '25'}"


def authority(host: str, port: int) -> str:
    """The authority as it is sent: without the default port, and without the zone of an IPv6 address, which
    is local to this host (RFC 6874 section 4)."""
    if ":" in host:
        host = host.partition("%")[0]
    shown = f"[{host}]" if ":" in host else host
    return shown if port == 443 else f"{shown}:{port}"


def to_ascii(host: str, url: str) -> str:
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError as exc:
        raise URLError(f"{url!r}: the host name is not valid: {exc}") from None


def target(path: str, query: str = "") -> str:
    """A path and query for ``:path``; an empty path becomes ``/``."""
    text = quote(path or "/", safe=SAFE)
    return f"{text}?{quote(query, safe=SAFE)}" if query else text
