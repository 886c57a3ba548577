"""W3C Trace Context: the field ``traceparent`` of a request (https://www.w3.org/TR/trace-context/)."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["TraceContext", "trace_context"]

TRACEPARENT = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<parent>[0-9a-f]{16})"
    r"-(?P<flags>[0-9a-f]{2})(?P<rest>-.*)?",
    re.ASCII,
)

CHARS_MAX = 512
"""A longer value of a later version is not read."""


class TraceContext(NamedTuple):
    """The place of a request in a trace. All identifiers are in hexadecimal digits."""

    trace_id: str
    span_id: str
    """A new identifier, of the server's work on the request."""
    parent_span_id: str | None
    """The caller's span; ``None`` if the trace begins here."""


def trace_context(values: Iterable[bytes]) -> TraceContext:
    """Returns the context of a request with these values of ``traceparent``. Without one valid value a
    trace begins.

    Trace identifiers from clients are only labels: they are hexadecimal digits, and nothing trusts them.
    """
    parent = parse(list(values))
    if parent is None:
        return TraceContext(secrets.token_hex(16), secrets.token_hex(8), None)
    return TraceContext(parent[0], secrets.token_hex(8), parent[1])


def parse(values: list[bytes]) -> tuple[str, str] | None:
    """Returns the identifiers of the trace and of the caller's span; ``None`` if they are invalid
    (section 3.2)."""
    # The field must not be repeated.
    if len(values) != 1 or len(values[0]) > CHARS_MAX:
        return None
    matched = TRACEPARENT.fullmatch(values[0].decode("latin-1").strip(" \t"))
    if matched is None or matched["version"] == "ff":
        return None
    # Later versions may add parts.
    if matched["version"] == "00" and matched["rest"] is not None:
        return None
    trace, parent = matched["trace"], matched["parent"]
    return None if not trace.strip("0") or not parent.strip("0") else (trace, parent)
