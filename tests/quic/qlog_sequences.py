"""Reads qlog traces that are JSON text sequences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def records_of(path: Path) -> list[dict[str, Any]]:
    """Every record of a file (RFC 7464 section 2.1)."""
    nothing, *records = path.read_bytes().split(b"\x1e")
    assert nothing == b""
    assert all(record.endswith(b"\n") for record in records)
    return [json.loads(record) for record in records]


def events_of(path: Path) -> list[dict[str, Any]]:
    """Returns all records but the first, which describes the trace."""
    return records_of(path)[1:]


def document_of(path: Path) -> dict[str, Any]:
    """Returns the file as one object with its traces and their events, as qvis reads it."""
    header, *events = records_of(path)
    return {**header, "traces": [{**header["trace"], "events": events}]}
