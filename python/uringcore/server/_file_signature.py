"""The signature of a set of files, which changes when a file changes.

_certificate_reload.py compares signatures to detect a renewed certificate.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

__all__ = ["Signature", "signature"]

Signature = tuple[tuple[int, ...] | None, ...]


def signature(files: Iterable[str]) -> Signature:
    """Returns a value that changes when a file does, or when its name refers to another file."""
    return tuple(_file_signature(path) for path in files)


def _file_signature(path: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
