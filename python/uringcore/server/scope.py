"""The part of ASGI's scope that all requests of one server have in common."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

__all__ = ["EXTENSIONS", "common_scope", "encode_path", "tls_extension"]

EXTENSIONS: dict[str, dict[str, Any]] = {
    "http.response.trailers": {},
    "http.response.early_hint": {},
}

TLS_1_3 = 0x0304  # QUIC knows no other (RFC 9001 section 4.2).


def common_scope(*, asgi_version: str, root_path: str) -> dict[str, Any]:
    """What is the same for each request over HTTP/3; the rest is added to a copy."""
    return {
        "type": "http",
        "asgi": {"version": asgi_version, "spec_version": "2.3"},
        "http_version": "3",
        "scheme": "https",
        "root_path": root_path,
    }


def encode_path(path: str) -> bytes:
    """The path as it would have been in the request: ASCII as it is, the rest escaped."""
    return path.encode("ascii") if path.isascii() else quote(path).encode("ascii")


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
