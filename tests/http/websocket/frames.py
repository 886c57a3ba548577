"""WebSocket frames as bytes: a client's, valid or invalid, and those that a server has sent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
KEY = b"\x37\xfa\x21\x3d"
"""The masking key of RFC 6455 section 5.7, for all frames of a client."""
RSV1 = 4


@dataclass(frozen=True)
class Frame:
    """A frame as it was received."""

    opcode: int
    payload: bytes = b""
    fin: bool = True
    rsv: int = 0


def encode(opcode: int, payload: bytes = b"", *, fin: bool = True, rsv: int = 0) -> bytes:
    """Returns a client's frame (RFC 6455 section 5.2)."""
    first = bytes([0x80 * fin | rsv << 4 | opcode])
    size = len(payload)
    if size < 126:
        length = bytes([0x80 | size])
    elif size < 1 << 16:
        length = b"\xfe" + size.to_bytes(2, "big")
    else:
        length = b"\xff" + size.to_bytes(8, "big")
    return first + length + KEY + masked(payload)


def masked(payload: bytes) -> bytes:
    """Applies the masking key (RFC 6455 section 5.3)."""
    size = len(payload)
    key = (KEY * (size // 4 + 1))[:size]
    value = int.from_bytes(payload, "big") ^ int.from_bytes(key, "big")
    return value.to_bytes(size, "big")


def close(code: int, reason: bytes = b"") -> bytes:
    """Returns a Close frame (RFC 6455 section 5.5.1)."""
    return encode(CLOSE, code.to_bytes(2, "big") + reason)


def fragments(opcode: int, parts: list[bytes], *, rsv: int = 0) -> list[bytes]:
    """Returns the frames of one message, a frame for each part."""
    last = len(parts) - 1
    return [
        encode(CONTINUATION if at else opcode, part, fin=at == last, rsv=0 if at else rsv)
        for at, part in enumerate(parts)
    ]


def pieces(data: bytes, size: int) -> list[bytes]:
    """Cuts bytes into pieces of this size."""
    return [data[at : at + size] for at in range(0, len(data), size)] or [b""]


class Reader:
    """Reads the frames of a server."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def read(self, data: bytes) -> Iterator[Frame]:
        """Returns the frames that these bytes complete."""
        self._rest += data
        while (found := self._next()) is not None:
            yield found

    def _next(self) -> Frame | None:
        rest = self._rest
        if len(rest) < 2:
            return None
        first, size, begin = rest[0], rest[1], 2
        # The frames of a server are not masked (RFC 6455 section 5.1).
        assert not size & 0x80, bytes(rest[:2])
        if size > 125:
            begin = 4 if size == 126 else 10
            if len(rest) < begin:
                return None
            size = int.from_bytes(rest[2:begin], "big")
        if len(rest) < begin + size:
            return None
        payload = bytes(rest[begin : begin + size])
        del rest[: begin + size]
        return Frame(first & 0x0F, payload, bool(first & 0x80), first >> 4 & 7)
