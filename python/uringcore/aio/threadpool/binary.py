"""aiofiles' module with the classes of binary files."""

from __future__ import annotations

from .._buffered_file import AsyncBufferedIOBase, AsyncBufferedReader
from .._raw_file import AsyncFileIO

__all__ = ["AsyncBufferedIOBase", "AsyncBufferedReader", "AsyncFileIO"]
