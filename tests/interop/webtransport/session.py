"""The interface between `scenario` and a library: sessions and streams of one type, and errors with
their codes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

__all__ = ["Ended", "Handler", "Lacking", "Library", "Refused", "Reset", "Session", "Stream"]


class Lacking(Exception):
    """The library does not support it; the message names the missing feature."""


class Refused(Exception):
    """The server accepts no session there. `status` is None if the library does not report it."""

    def __init__(self, status: int | None) -> None:
        super().__init__(f"refused with {status}")
        self.status = status


class Reset(Exception):
    """The other side has reset the stream."""

    def __init__(self, code: int) -> None:
        super().__init__(f"reset with {code}")
        self.code = code


class Ended(Exception):
    """The session has ended."""


class Stream(Protocol):
    """A stream of either kind."""

    async def send(self, data: bytes, end: bool = False) -> None: ...
    async def read(self) -> bytes:
        """Returns received data, nothing at the end. Raises `Reset`."""
        ...

    async def reset(self, code: int) -> None: ...
    async def stop(self, code: int) -> None: ...
    async def stopped(self) -> int:
        """Returns the code of the other side's STOP_SENDING."""
        ...


class Session(Protocol):
    """An open session."""

    protocol: str | None

    async def open(self, bidirectional: bool) -> Stream: ...
    async def accept(self, bidirectional: bool) -> Stream:
        """Returns the next stream of the other side. Raises `Ended`."""
        ...

    async def send_datagram(self, data: bytes) -> None: ...
    async def datagram(self) -> bytes:
        """Returns the next datagram. Raises `Ended`."""
        ...

    async def close(self, code: int, reason: str) -> None: ...
    async def closed(self) -> tuple[int, str]:
        """Returns the code and the reason of the other side's close."""
        ...


Handler = Callable[[Any], Awaitable[None]]


class Library(Protocol):
    """A module of `libraries`."""

    LACKING: dict[str, str]
    """The reason for each case that it does not support."""

    def run(self, main: Any) -> None:
        """Runs the coroutine to its end."""
        ...

    def connect(
        self, host: str, port: int, path: str, authority: Path, protocols: list[str]
    ) -> AbstractAsyncContextManager[Any]:
        """Opens a session with a server. Raises `Refused`."""
        ...

    async def serve(
        self,
        host: str,
        port: int,
        path: str,
        certificates: Path,
        protocols: list[str],
        handler: Handler,
    ) -> Callable[[], Any]:
        """Accepts sessions at the path and calls the handler for each; returns a function that
        stops it.
        """
        ...
