"""The standard streams as in aiofiles: each call uses the stream that ``sys`` has at that time.

The whole program shares them, and they have buffers of their own, so every call is made on the object itself,
in a thread. Reading a terminal occupies that thread until a line arrives. A program that owns its input can
open it: ``aio.open(0, closefd=False)``.
"""

from __future__ import annotations

import sys
from typing import Any

from ._file_backends import files_of
from ._pending_operation import finish

__all__ = [
    "StandardStream",
    "stderr",
    "stderr_bytes",
    "stdin",
    "stdin_bytes",
    "stdout",
    "stdout_bytes",
]

_METHODS = {
    *("close", "flush", "isatty", "peek", "read", "read1", "readinto", "readline", "readlines"),
    *("seek", "seekable", "tell", "truncate", "writable", "write", "writelines"),
}


class StandardStream:
    """A stream whose methods are coroutines; ``fileno`` and attributes are the stream's own."""

    def __init__(self, name: str, is_binary: bool = False) -> None:
        self._name = name
        self._is_binary = is_binary

    def _stream(self) -> Any:
        stream = getattr(sys, self._name)
        return stream.buffer if self._is_binary else stream

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        attribute = getattr(self._stream(), name)
        if name not in _METHODS:
            return attribute

        async def call(*args: Any) -> Any:
            return await finish(files_of().call(getattr(self._stream(), name), *args))

        return call

    def __aiter__(self) -> StandardStream:
        return self

    async def __anext__(self) -> Any:
        if line := await self.readline():
            return line
        raise StopAsyncIteration

    def __repr__(self) -> str:
        return f"<sys.{self._name} as a coroutine's file>"


stdin: StandardStream = StandardStream("stdin")
stdout: StandardStream = StandardStream("stdout")
stderr: StandardStream = StandardStream("stderr")
stdin_bytes: StandardStream = StandardStream("stdin", is_binary=True)
stdout_bytes: StandardStream = StandardStream("stdout", is_binary=True)
stderr_bytes: StandardStream = StandardStream("stderr", is_binary=True)
