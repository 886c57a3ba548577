"""Bytes of WebTransport that a client writes, built by hand on top of those of HTTP/3
(tests/http/http3_bytes.py).
"""

from __future__ import annotations

from tests.http import http3_bytes

# A client's SETTINGS for each draft.
DRAFTS = {
    "02": {0x2B603742: 1, http3_bytes.H3_DATAGRAM: 1},
    "07": {0xC671706A: 1, http3_bytes.H3_DATAGRAM: 1},
    "15": {0x2C7CF000: 1, http3_bytes.H3_DATAGRAM: 1, 0x2B61: 1 << 20, 0x2B64: 100, 0x2B65: 100},
}
CLOSE_SESSION, DRAIN_SESSION = 0x2843, 0x78AE


def asked(path: str) -> bytes:
    """Returns the request for a session."""
    return http3_bytes.request(path, method="CONNECT", protocol="webtransport")


def bidi(session_id: int, data: bytes = b"") -> bytes:
    """Returns the start of a bidirectional stream."""
    return http3_bytes.varints(0x41, session_id, data)


def uni(session_id: int, data: bytes = b"") -> bytes:
    """Returns the start of a unidirectional stream."""
    return http3_bytes.varints(0x54, session_id, data)


def capsule(kind: int, value: bytes = b"") -> bytes:
    """Returns a capsule (RFC 9297 section 3.2) in a DATA frame."""
    return http3_bytes.frame(http3_bytes.DATA, http3_bytes.varints(kind, len(value), value))


def close(code: int, reason: bytes = b"") -> bytes:
    """Returns the capsule that closes a session with a code and a reason."""
    return capsule(CLOSE_SESSION, code.to_bytes(4, "big") + reason)
