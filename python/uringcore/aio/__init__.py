"""File I/O for asyncio that is asynchronous, with aiofiles' interface."""

from __future__ import annotations

from ._buffered import AsyncBufferedIOBase, AsyncBufferedReader
from ._open import open  # noqa: A004 - the name is the point
from ._raw import AsyncFileIO
from ._text import AsyncTextIOWrapper

__all__ = [
    "AsyncBufferedIOBase",
    "AsyncBufferedReader",
    "AsyncFileIO",
    "AsyncTextIOWrapper",
    "open",
]
