"""The field ``Range`` (RFC 9110 section 14), and the multipart content of several ranges."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["ByteRange", "Multipart", "Unsatisfiable", "byte_ranges"]

RANGES_MAX = 16
"""Ranges of one request. A request for more gets the whole content (RFC 9110 section 17.15)."""

GAP_BYTES = 80
"""Ranges with a smaller gap between them become one: the head of a part is about as large (section
15.3.7.2)."""

SPEC = re.compile(r"(\d*)-(\d*)", re.ASCII)

DIGITS_MAX = 19
"""More digits than any file's size has. Longer numbers would take long to convert."""


class ByteRange(NamedTuple):
    """A part of a file."""

    offset: int
    length: int

    def content_range(self, size: int) -> bytes:
        """Returns the value of Content-Range."""
        return b"bytes %d-%d/%d" % (self.offset, self.offset + self.length - 1, size)


class Unsatisfiable(Exception):
    """No range of the request overlaps the content."""


def byte_ranges(value: str, size: int) -> list[ByteRange] | None:
    """Returns the requested parts of a content of ``size`` bytes, in the order of the request.

    ``None`` if the field is to be ignored, so that the whole content is sent. Raises :class:`Unsatisfiable`.
    """
    unit, separator, specs = value.partition("=")
    # An empty content has no range that a 206 could name.
    if not separator or unit.strip().lower() != "bytes" or size == 0:
        return None
    members = [spec.strip(" \t") for spec in specs.split(",", RANGES_MAX)]
    if len(members) > RANGES_MAX:
        return None
    found: list[ByteRange] = []
    for member in members:
        matched = SPEC.fullmatch(member)
        if matched is None or max(map(len, matched.groups())) > DIGITS_MAX:
            return None
        first, last = matched.groups()
        if not first and not last:
            return None
        if first and last and int(last) < int(first):
            return None
        one = resolved(first, last, size)
        if one is not None:
            found.append(one)
    if not found:
        raise Unsatisfiable
    return merged(found)


def resolved(first: str, last: str, size: int) -> ByteRange | None:
    """Returns one range; ``None`` if it lies behind the end."""
    if not first:
        count = min(int(last), size)
        return ByteRange(size - count, count) if count else None
    offset = int(first)
    if offset >= size:
        return None
    end = min(int(last) + 1, size) if last else size
    return ByteRange(offset, end - offset)


def merged(ranges: Sequence[ByteRange]) -> list[ByteRange]:
    """Merges ranges that overlap or nearly touch. If any do, the result is in ascending order."""
    found: list[ByteRange] = []
    for one in sorted(ranges):
        if found and one.offset <= found[-1].offset + found[-1].length + GAP_BYTES:
            before = found.pop()
            end = max(before.offset + before.length, one.offset + one.length)
            one = ByteRange(before.offset, end - before.offset)
        found.append(one)
    return found if len(found) < len(ranges) else list(ranges)


class Multipart:
    """The content ``multipart/byteranges`` (RFC 9110 section 14.6) of a response with several ranges."""

    def __init__(self, ranges: Sequence[ByteRange], size: int, content_type: bytes) -> None:
        # Random, so that no content can contain the boundary on purpose.
        boundary = secrets.token_hex(16).encode()
        self.content_type: bytes = b"multipart/byteranges; boundary=" + boundary
        self.parts: list[tuple[bytes, ByteRange]] = [
            (
                b"\r\n--%b\r\ncontent-type: %b\r\ncontent-range: %b\r\n\r\n"
                % (boundary, content_type, one.content_range(size)),
                one,
            )
            for one in ranges
        ]
        self.end: bytes = b"\r\n--%b--\r\n" % boundary
        parts = sum(len(head) + one.length for head, one in self.parts)
        self.length: int = parts + len(self.end)
