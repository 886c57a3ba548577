"""The bytes of HTTP/3, built by hand: integers, frames, field sections, valid and invalid.

The module only builds bytes; raw_client.py sends them.
"""

from __future__ import annotations

from collections.abc import Iterable

Fields = Iterable[tuple[bytes, bytes]]

# RFC 9114 section 7.2, RFC 9218 section 7.
DATA, HEADERS, CANCEL_PUSH, SETTINGS, PUSH_PROMISE, GOAWAY, MAX_PUSH_ID = 0, 1, 3, 4, 5, 7, 0xD
PRIORITY_UPDATE, PRIORITY_UPDATE_PUSH = 0xF0700, 0xF0701
# RFC 9114 section 6.2, RFC 9204 section 4.2.
CONTROL, PUSH, QPACK_ENCODER, QPACK_DECODER = 0, 1, 2, 3
# The stream ID in the first GOAWAY of a graceful stop (RFC 9114 section 5.2).
HIGHEST_REQUEST = 2**62 - 4
# Reserved types: 0x1f * N + 0x21 (RFC 9114 sections 6.2.3 and 7.2.8).
GREASE = 0x1F * 7 + 0x21
# RFC 9114 section 7.2.4.1, RFC 9204 section 5.
QPACK_MAX_TABLE_CAPACITY, MAX_FIELD_SECTION_SIZE, QPACK_BLOCKED_STREAMS = 1, 6, 7
# RFC 9220 section 5, RFC 9297 section 5.1.
ENABLE_CONNECT_PROTOCOL, H3_DATAGRAM = 0x8, 0x33


def varint(value: int) -> bytes:
    """A variable-length integer (RFC 9000 section 16)."""
    for length, mark in ((1, 0), (2, 1), (4, 2), (8, 3)):
        if value < 1 << (8 * length - 2):
            return (value | mark << (8 * length - 2)).to_bytes(length, "big")
    raise ValueError(value)


def varints(*values: int | bytes) -> bytes:
    """Integers, and raw bytes."""
    return b"".join(value if isinstance(value, bytes) else varint(value) for value in values)


def frame(kind: int, payload: bytes = b"") -> bytes:
    """A frame (RFC 9114 section 7.1)."""
    return varint(kind) + varint(len(payload)) + payload


def settings(values: dict[int, int]) -> bytes:
    """A SETTINGS frame."""
    return frame(SETTINGS, b"".join(varints(*pair) for pair in values.items()))


def prefixed(value: int, bits: int, first: int = 0) -> bytes:
    """An integer with a prefix of this many bits (RFC 7541 section 5.1)."""
    full = (1 << bits) - 1
    if value < full:
        return bytes([first | value])
    rest, out = value - full, bytearray([first | full])
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def literal(name: bytes, value: bytes) -> bytes:
    """A field line with literal name and value (RFC 9204 section 4.5.6)."""
    return prefixed(len(name), 3, 0x20) + name + prefixed(len(value), 7) + value


def section(fields: Fields, *, insert_count: bytes = b"\0", base: bytes = b"\0") -> bytes:
    """An encoded field section of literals (RFC 9204 section 4.5)."""
    return insert_count + base + b"".join(literal(name, value) for name, value in fields)


def insert(name: bytes, value: bytes) -> bytes:
    """An instruction for the encoder stream (RFC 9204 section 4.3.3)."""
    return prefixed(len(name), 5, 0x40) + name + prefixed(len(value), 7) + value


def capacity(value: int) -> bytes:
    """Set Dynamic Table Capacity (RFC 9204 section 4.3.1)."""
    return prefixed(value, 5, 0x20)


def fields(
    path: str | None = "/", *more: tuple[bytes, bytes], **pseudo: str | None
) -> list[tuple[bytes, bytes]]:
    """A request's fields; a pseudo-header field of ``None`` is left out."""
    wanted = {"method": "GET", "scheme": "https", "authority": "localhost", "path": path, **pseudo}
    lines = [
        (b":" + name.encode(), value.encode())
        for name, value in wanted.items()
        if value is not None
    ]
    return [*lines, *more]


def request(path: str | None = "/", *more: tuple[bytes, bytes], **pseudo: str | None) -> bytes:
    """A HEADERS frame of a request."""
    return frame(HEADERS, section(fields(path, *more, **pseudo)))
