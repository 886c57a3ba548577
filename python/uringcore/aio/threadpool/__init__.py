"""aiofiles' module with ``open`` and its classes, for programs that import them from there.

It re-exports them. On the ring no thread pool is used.

| file | noun |
| --- | --- |
| ``binary`` | the classes of binary files |
| ``text`` | the class of text files |
"""

from __future__ import annotations

from .._open import open  # noqa: A004 - the name is aiofiles'
from .._standard_streams import stderr, stderr_bytes, stdin, stdin_bytes, stdout, stdout_bytes

__all__ = [
    "open",
    "stderr",
    "stderr_bytes",
    "stdin",
    "stdin_bytes",
    "stdout",
    "stdout_bytes",
]
