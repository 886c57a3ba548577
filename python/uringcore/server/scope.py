"""From an HTTP/3 request's field section to an ASGI HTTP scope.

The scope is what uvicorn makes of the same request over HTTP/1.1, so that an application cannot
tell them apart except by ``http_version``. What happens with the request afterwards is request.py's.
Malformed field sections never get here: the HTTP/3 connection has validated them (RFC 9114 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, unquote

__all__ = ["BadRequest", "build_scope", "refused_scope", "tls_extension"]

Fields = list[tuple[bytes, bytes]]

EXTENSIONS: dict[str, dict[str, Any]] = {
    "http.response.trailers": {},
    "http.response.early_hint": {},
}

TLS_1_3 = 0x0304  # QUIC knows no other (RFC 9001 section 4.2).


class BadRequest(Exception):
    """A request that is answered without asking the application."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


def build_scope(
    fields: Iterable[tuple[bytes, bytes]],
    *,
    asgi_version: str,
    root_path: str,
    server: tuple[str, int | None] | None,
    client: tuple[str, int] | None,
    state: dict[str, Any],
    extensions: dict[str, Any],
) -> dict[str, Any]:
    """The scope of one request.

    Raises :class:`BadRequest` for a request that is well-formed HTTP/3 but not one that an ASGI
    application can be asked: a CONNECT (RFC 9110 section 9.3.6), plain or extended, or a request
    for another scheme than that of this connection.
    """
    method = path = authority = None
    headers: Fields = []
    cookies: list[bytes] = []
    has_host = False
    for name, value in fields:
        if name[:1] != b":":
            if name == b"cookie":
                cookies.append(value)
                continue
            if name == b"host":
                has_host = True
            headers.append((name, value))
        elif name == b":method":
            method = value
        elif name == b":path":
            path = value
        elif name == b":authority":
            authority = value
        elif name == b":scheme":
            # The client's word only. An application trusts it, for secure cookies and the like, so
            # it is told what the connection is. Some clients say "http" for what they were given.
            if value.lower() not in (b"https", b"http"):
                raise BadRequest(400, "the scheme is not https")
        elif name == b":protocol":
            raise BadRequest(501, "extended CONNECT is not supported")
    if method is None or method == b"CONNECT":
        raise BadRequest(501, "CONNECT is not supported")
    if path is None or not (path.startswith(b"/") or path == b"*"):
        raise BadRequest(400, "the path is not absolute")
    if authority is not None and not has_host:
        # RFC 9114 section 4.3.1: converting to HTTP/1.1 terms, the authority becomes Host.
        headers.insert(0, (b"host", authority))
    if cookies:
        # RFC 9114 section 4.2.1: one field again before anything but HTTP/2 or 3 sees it.
        headers.append((b"cookie", b"; ".join(cookies)))
    raw_path, _, query = path.partition(b"?")
    try:
        text_path = raw_path.decode("ascii")
        query.decode("ascii")
    except UnicodeDecodeError:
        raise BadRequest(400, "the path is not ASCII") from None
    if "%" in text_path:
        text_path = unquote(text_path)
    return {
        "type": "http",
        "asgi": {"version": asgi_version, "spec_version": "2.3"},
        "http_version": "3",
        "server": server,
        "client": client,
        "scheme": "https",
        "method": method.decode("ascii", "replace"),
        "root_path": root_path,
        "path": root_path + text_path,
        "raw_path": encode_path(root_path) + raw_path,
        "query_string": query,
        "headers": headers,
        "state": state,
        "extensions": extensions,
    }


def encode_path(path: str) -> bytes:
    """The path as it would have been in the request: ASCII as it is, the rest escaped."""
    return path.encode("ascii") if path.isascii() else quote(path).encode("ascii")


def refused_scope(fields: Iterable[tuple[bytes, bytes]], *, client: Any) -> dict[str, Any]:
    """What a response to a request without a proper scope needs: its method, and names to log."""
    given = {name: value.decode("latin-1") for name, value in fields if name[:1] == b":"}
    path, _, query = given.get(b":path", "").partition("?")
    return {
        "method": given.get(b":method", "-"),
        "path": path or given.get(b":authority", ""),
        "query_string": query.encode("latin-1"),
        "client": client,
        "http_version": "3",
        "headers": [],
    }


def tls_extension(server_certificate_pem: str | None) -> dict[str, Any]:
    """The ``tls`` extension's value for connections of this server, as its specification has it."""
    return {
        "server_cert": server_certificate_pem,
        "client_cert_chain": [],
        "client_cert_name": None,
        "client_cert_error": None,
        "tls_version": TLS_1_3,
        "cipher_suite": None,
    }
