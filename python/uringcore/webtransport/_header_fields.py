"""Conversion of header fields between the forms that programs pass and bytes."""

from __future__ import annotations

from collections.abc import Iterable

from uringcore.webtransport._errors import Headers

__all__ = ["HeadersLike", "as_headers", "first"]

HeadersLike = Iterable[tuple[str | bytes, str | bytes]]
"""Converts header fields to pairs of a name and a value, both bytes."""


def as_headers(headers: HeadersLike) -> list[tuple[bytes, bytes]]:
    """Converts header fields to pairs of bytes, with names in lower case (RFC 9114 section 4.2)."""
    return [(_bytes(name).lower(), _bytes(value)) for name, value in headers]


def first(headers: Headers, name: bytes) -> str | None:
    """Returns the value of the first header field with the name ``name``."""
    for known, value in headers:
        if known == name:
            return value.decode("latin-1")
    return None


def _bytes(text: str | bytes) -> bytes:
    return text.encode("latin-1") if isinstance(text, str) else bytes(text)
