"""aiofiles' module with the classes of binary files."""

from __future__ import annotations

from .._buffered import AsyncBufferedIOBase, AsyncBufferedReader
from .._raw import AsyncFileIO

__all__ = ["AsyncBufferedIOBase", "AsyncBufferedReader", "AsyncFileIO"]
