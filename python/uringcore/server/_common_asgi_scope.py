"""The part of ASGI's scope that is the same for all requests of a server over one version of HTTP."""

from __future__ import annotations

import ssl
from typing import Any, Protocol
from urllib.parse import quote

from uringcore.server._certificate_subject import subject

__all__ = ["DEBUG_EXTENSIONS", "EXTENSIONS", "TLSExtension", "common_scope", "encode_path"]

EXTENSIONS: dict[str, dict[str, Any]] = {
    "http.response.trailers": {},
    "http.response.early_hint": {},
    # `path` may be a file of `StaticFolder`, with `offset`, `count` and `more_body`.
    "http.response.pathsend": {"uringcore.static_file": {}},
    "http.response.zerocopysend": {},
}

# Extensions that are offered only at the log level DEBUG, because applications then send more than a response
# needs.
DEBUG_EXTENSIONS: dict[str, dict[str, Any]] = {"http.response.debug": {}}

TLS_1_3 = 0x0304  # The only version that QUIC uses (RFC 9001 section 4.2).


def common_scope(
    *, asgi_version: str, root_path: str, http_version: str = "3", scheme: str = "https"
) -> dict[str, Any]:
    """Returns the part of the scope that is constant for a server. For each request, the rest is added to a
    copy."""
    return {
        "type": "http",
        "asgi": {"version": asgi_version, "spec_version": "2.3"},
        "http_version": http_version,
        "scheme": scheme,
        "root_path": root_path,
    }


def encode_path(path: str) -> bytes:
    """Returns the path as it would appear in a request: ASCII as it is, the rest escaped."""
    return path.encode("ascii") if path.isascii() else quote(path).encode("ascii")


class _Connection(Protocol):
    """The QUIC connection of a request."""

    def get_peer_certificates(self) -> list[bytes]: ...
    def stats(self) -> dict[str, Any]: ...


class TLSExtension:
    """Makes the value of ASGI's ``tls`` extension for connections of one server."""

    def __init__(self, server_certificate_pem: str | None) -> None:
        self.renew(server_certificate_pem)

    def renew(self, server_certificate_pem: str | None) -> None:
        """Sets the certificate of connections from now on."""
        self._server_certificate_pem = server_certificate_pem
        # The values for clients without a certificate, by TLS version and cipher suite. Such clients share
        # one value.
        self._anonymous: dict[tuple[int, int | None], dict[str, Any]] = {}

    def extension(self, connection: _Connection) -> dict[str, Any]:
        """Returns the value for a connection. Values that its handshake has not produced yet are missing."""
        suite = connection.stats()["cipher_suite"]
        return self.of(TLS_1_3, suite, connection.get_peer_certificates())

    def of(self, version: int, suite: int | None, chain: list[bytes]) -> dict[str, Any]:
        """Returns the value for a TLS version, a cipher suite and a client's certificates in DER."""
        if chain:
            return self._value(version, suite, chain)
        key = version, suite
        if key not in self._anonymous:
            self._anonymous[key] = self._value(version, suite, [])
        return self._anonymous[key]

    def _value(self, version: int, suite: int | None, chain: list[bytes]) -> dict[str, Any]:
        return {
            "server_cert": self._server_certificate_pem,
            "client_cert_chain": [ssl.DER_cert_to_PEM_cert(certificate) for certificate in chain],
            "client_cert_name": subject(chain[0]) if chain else None,
            # The value is always None, because a handshake whose client certificate is rejected fails.
            "client_cert_error": None,
            "tls_version": version,
            "cipher_suite": suite,
        }
