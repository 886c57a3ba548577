"""WebSocket's frames (RFC 6455 section 5) at a client: bytes in, frames and messages out, and back.

No I/O. What a server does wrong is a :class:`FrameFault` with the close code that it deserves. Extensions,
compression among them, are not negotiated.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from enum import IntEnum

__all__ = ["Assembler", "Frame", "FrameFault", "FrameReader", "Opcode", "closing", "encoded"]

NORMAL = 1000
PROTOCOL_ERROR = 1002
NO_CODE = 1005
ABNORMAL = 1006
INVALID_DATA = 1007
TOO_BIG = 1009

CONTROL_MAX = 125


class Opcode(IntEnum):
    """What a frame is."""

    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class FrameFault(Exception):
    """The server sent what no WebSocket may; ``code`` is the close code for that."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


@dataclass(frozen=True)
class Frame:
    """One frame, whole."""

    opcode: Opcode
    data: bytes
    final: bool = True


class FrameReader:
    """Cuts what arrives into frames; at most ``max_size`` bytes of one are kept."""

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are complete now. Raises :class:`FrameFault`."""
        self._buffer += data
        frames = []
        while (frame := self._next()) is not None:
            frames.append(frame)
        return frames

    def _next(self) -> Frame | None:
        head = self._head()
        if head is None or len(self._buffer) < sum(head):
            return None
        begin, size = head
        first = self._buffer[0]
        data = bytes(self._buffer[begin : begin + size])
        del self._buffer[: begin + size]
        return Frame(Opcode(first & 0x0F), data, bool(first & 0x80))

    def _head(self) -> tuple[int, int] | None:
        """Bytes of the next frame's head and of its payload, if all of the head is here."""
        if len(self._buffer) < 2:
            return None
        first, second = self._buffer[:2]
        if first & 0x70:
            raise FrameFault(PROTOCOL_ERROR, "a reserved bit is set")
        if first & 0x0F not in Opcode.__members__.values():
            raise FrameFault(PROTOCOL_ERROR, "unknown opcode")
        if second & 0x80:
            # RFC 6455 section 5.1: only a client masks.
            raise FrameFault(PROTOCOL_ERROR, "a server's frame is masked")
        begin, size = 2, second & 0x7F
        if first & 0x08 and (size > CONTROL_MAX or not first & 0x80):
            raise FrameFault(PROTOCOL_ERROR, "a control frame is long or fragmented")
        if size > CONTROL_MAX:
            begin += 2 if size == 126 else 8
            if len(self._buffer) < begin:
                return None
            size = int.from_bytes(self._buffer[2:begin], "big")
        if size > self._max_size:
            raise FrameFault(TOO_BIG, f"a message of more than {self._max_size} bytes")
        return begin, size


class Assembler:
    """Puts the frames of messages together, up to ``max_size`` bytes of one."""

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._kind: Opcode | None = None
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, frame: Frame) -> str | bytes | None:
        """The message that a data frame completes. Raises :class:`FrameFault`."""
        if (frame.opcode is Opcode.CONTINUATION) == (self._kind is None):
            raise FrameFault(PROTOCOL_ERROR, "a fragment where none belongs")
        if self._kind is None:
            self._kind = frame.opcode
        self._parts.append(frame.data)
        self._size += len(frame.data)
        if self._size > self._max_size:
            raise FrameFault(TOO_BIG, f"a message of more than {self._max_size} bytes")
        if not frame.final:
            return None
        kind, data = self._kind, b"".join(self._parts)
        self._kind, self._parts, self._size = None, [], 0
        return _text(data) if kind is Opcode.TEXT else data


def encoded(opcode: Opcode, data: bytes) -> bytes:
    """A client's frame, masked (RFC 6455 section 5.3)."""
    size = len(data)
    if size <= CONTROL_MAX:
        head = struct.pack("!BB", 0x80 | opcode, 0x80 | size)
    elif size < 1 << 16:
        head = struct.pack("!BBH", 0x80 | opcode, 0x80 | 126, size)
    else:
        head = struct.pack("!BBQ", 0x80 | opcode, 0x80 | 127, size)
    mask = os.urandom(4)
    # As one number: the interpreter has no faster way over bytes.
    pattern = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    masked = (int.from_bytes(data, "big") ^ pattern).to_bytes(size, "big")
    return head + mask + masked


def close_payload(code: int, reason: str) -> bytes:
    """What a Close frame says. The reason is cut where it does not fit."""
    text = reason.encode()[: CONTROL_MAX - 2].decode(errors="ignore")
    return struct.pack("!H", code) + text.encode()


def closing(data: bytes) -> tuple[int, str]:
    """What a Close frame says: a code and a reason (RFC 6455 section 7.4)."""
    if not data:
        return NO_CODE, ""
    if len(data) == 1:
        raise FrameFault(PROTOCOL_ERROR, "half a close code")
    (code,) = struct.unpack("!H", data[:2])
    if not (1000 <= code <= 1003 or 1007 <= code <= 1014 or 3000 <= code <= 4999):
        raise FrameFault(PROTOCOL_ERROR, f"close code {code}")
    return code, _text(data[2:])


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise FrameFault(INVALID_DATA, "text that is not UTF-8") from None
