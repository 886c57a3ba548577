"""Conditional requests for GET and HEAD (RFC 9110 section 13), and the validators of a file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timezone
from email.utils import formatdate, parsedate_to_datetime
from enum import Enum
from typing import NamedTuple

__all__ = ["Outcome", "Validators", "evaluate", "range_applies"]

ENTITY_TAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"')
"""The syntax of an entity tag (RFC 9110 section 8.8.3)."""

STRONG_AFTER_NS = 2_000_000_000
"""The age from which on a file's time of change is a strong validator. A file that changed within the
granularity of its file system's clock may change again without another time (RFC 9110 section 8.8.2.2)."""

DATE_CHARS_MAX = 64


class Outcome(Enum):
    """The result of a request's conditions."""

    PROCEED = 200
    NOT_MODIFIED = 304
    FAILED = 412


class Validators(NamedTuple):
    """The validators of a representation."""

    etag: str
    modified: int
    """Seconds since 1970."""
    is_strong: bool

    @classmethod
    def of_file(cls, size: int, modified_ns: int, now_ns: int, coding: str | None) -> Validators:
        """Returns the validators of a file. ``coding`` is the one of a compressed sibling."""
        tag = f'"{modified_ns:x}-{size:x}{"" if coding is None else "-" + coding}"'
        is_strong = now_ns - modified_ns >= STRONG_AFTER_NS
        # A date in the future must not be sent (RFC 9110 section 8.8.2.1).
        modified = max(min(modified_ns, now_ns) // 1_000_000_000, 0)
        return cls(tag if is_strong else "W/" + tag, modified, is_strong)

    @property
    def last_modified(self) -> str:
        return formatdate(self.modified, usegmt=True)


def evaluate(fields: Mapping[bytes, str], validators: Validators) -> Outcome:
    """Evaluates the conditions of a GET or HEAD in the order of RFC 9110 section 13.2.2."""
    if (value := fields.get(b"if-match")) is not None:
        if not lists(value, validators.etag, is_weak=False):
            return Outcome.FAILED
    elif (value := fields.get(b"if-unmodified-since")) is not None:
        since = timestamp(value)
        if since is not None and validators.modified > since:
            return Outcome.FAILED
    if (value := fields.get(b"if-none-match")) is not None:
        is_known = lists(value, validators.etag, is_weak=True)
        return Outcome.NOT_MODIFIED if is_known else Outcome.PROCEED
    if (value := fields.get(b"if-modified-since")) is not None:
        since = timestamp(value)
        if since is not None and validators.modified <= since:
            return Outcome.NOT_MODIFIED
    return Outcome.PROCEED


def range_applies(fields: Mapping[bytes, str], validators: Validators) -> bool:
    """True if ``Range`` is to be evaluated: there is no ``If-Range``, or its validator is strong and
    matches."""
    value = fields.get(b"if-range")
    if value is None:
        return True
    value = value.strip(" \t")
    if not validators.is_strong:
        return False
    if ENTITY_TAG.fullmatch(value):
        return value == validators.etag
    # A date must match exactly (RFC 9110 section 13.1.5).
    return timestamp(value) == validators.modified


def lists(value: str, etag: str, *, is_weak: bool) -> bool:
    """True if a list of entity tags contains ``etag``, by the weak or the strong comparison (section
    8.8.3.2)."""
    if value.strip(" \t") == "*":
        return True
    if is_weak:
        etag = etag.removeprefix("W/")
        return any(tag.removeprefix("W/") == etag for tag in ENTITY_TAG.findall(value))
    return not etag.startswith("W/") and etag in ENTITY_TAG.findall(value)


def timestamp(value: str) -> int | None:
    """Returns the seconds since 1970 of an HTTP date; ``None`` for any other text, which is ignored."""
    if len(value) > DATE_CHARS_MAX:
        return None
    try:
        date = parsedate_to_datetime(value)
        # The obsolete form of asctime() has no time zone, and means UTC (RFC 9110 section 5.6.7).
        return int((date if date.tzinfo else date.replace(tzinfo=timezone.utc)).timestamp())
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
