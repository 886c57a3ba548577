"""Standard streams as aiofiles has them: whatever ``sys.stdin`` and its kin are at the moment.

They belong to the whole program and have buffers of their own, so every call is made on the object
itself, in a thread; reading a terminal occupies that thread until a line comes. A program that owns
its input opens it: ``aio.open(0, closefd=False)``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ._files import files_of
from ._operation import finish

__all__ = [
    "StandardStream",
    "stderr",
    "stderr_bytes",
    "stdin",
    "stdin_bytes",
    "stdout",
    "stdout_bytes",
]

_METHODS = frozenset(
    (
        "close",
        "flush",
        "isatty",
        "peek",
        "read",
        "read1",
        "readinto",
        "readline",
        "readlines",
        "seek",
        "seekable",
        "tell",
        "truncate",
        "writable",
        "write",
        "writelines",
    )
)


class StandardStream:
    """A stream whose methods are coroutines; ``fileno`` and attributes are the stream's own."""

    def __init__(self, name: str, find: Callable[[], Any]) -> None:
        self._name = name
        self._find = find

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        attribute = getattr(self._find(), name)
        if name not in _METHODS:
            return attribute

        async def call(*args: Any) -> Any:
            return await finish(files_of().call(getattr(self._find(), name), *args))

        return call

    def __aiter__(self) -> StandardStream:
        return self

    async def __anext__(self) -> Any:
        if line := await self.readline():
            return line
        raise StopAsyncIteration

    def __repr__(self) -> str:
        return f"<{self._name} as a coroutine's file>"


stdin = StandardStream("sys.stdin", lambda: sys.stdin)
stdout = StandardStream("sys.stdout", lambda: sys.stdout)
stderr = StandardStream("sys.stderr", lambda: sys.stderr)
stdin_bytes = StandardStream("sys.stdin.buffer", lambda: sys.stdin.buffer)
stdout_bytes = StandardStream("sys.stdout.buffer", lambda: sys.stdout.buffer)
stderr_bytes = StandardStream("sys.stderr.buffer", lambda: sys.stderr.buffer)
