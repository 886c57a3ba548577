"""aiofiles' module with the class of text files."""

from __future__ import annotations

from .._text import AsyncTextIOWrapper

__all__ = ["AsyncTextIOWrapper"]
