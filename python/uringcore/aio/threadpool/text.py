"""aiofiles' module with the class of text files."""

from __future__ import annotations

from .._text_file import AsyncTextIOWrapper

__all__ = ["AsyncTextIOWrapper"]
