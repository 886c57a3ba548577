"""The bytes of WebTransport, by hand, on top of HTTP/3's (tests/http/wire.py). Only what a client writes."""

from __future__ import annotations

from tests.http import wire

# What a client's SETTINGS announce, by draft.
DRAFTS = {
    "02": {0x2B603742: 1, wire.H3_DATAGRAM: 1},
    "07": {0xC671706A: 1, wire.H3_DATAGRAM: 1},
    "15": {0x2C7CF000: 1, wire.H3_DATAGRAM: 1, 0x2B61: 1 << 20, 0x2B64: 100, 0x2B65: 100},
}
CLOSE_SESSION, DRAIN_SESSION = 0x2843, 0x78AE


def asked(path: str) -> bytes:
    """The request for a session."""
    return wire.request(path, method="CONNECT", protocol="webtransport")


def bidi(session_id: int, data: bytes = b"") -> bytes:
    """The beginning of a stream in both directions."""
    return wire.varints(0x41, session_id, data)


def uni(session_id: int, data: bytes = b"") -> bytes:
    """The beginning of a one-way stream."""
    return wire.varints(0x54, session_id, data)


def capsule(kind: int, value: bytes = b"") -> bytes:
    """A capsule (RFC 9297 section 3.2) in a DATA frame."""
    return wire.frame(wire.DATA, wire.varints(kind, len(value), value))


def close(code: int, reason: bytes = b"") -> bytes:
    """What ends a session with a word."""
    return capsule(CLOSE_SESSION, code.to_bytes(4, "big") + reason)
