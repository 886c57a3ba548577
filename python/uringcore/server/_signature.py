"""What changes when a file does.

Who looks at it, and when, is _certificate.py's.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

__all__ = ["Signature", "signature"]

Signature = tuple[tuple[int, ...] | None, ...]


def signature(files: Iterable[str]) -> Signature:
    """What changes when a file does, or what its name stands for."""
    return tuple(_of_one(path) for path in files)


def _of_one(path: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
