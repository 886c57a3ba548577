"""What a library is to `scenario`: sessions and streams of one shape, and errors with their codes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

__all__ = ["Ended", "Handler", "Lacking", "Library", "Refused", "Reset", "Session", "Stream"]


class Lacking(Exception):
    """The library cannot do it; the message says what it lacks."""


class Refused(Exception):
    """The server takes no session there. `status` is None where the library does not tell it."""

    def __init__(self, status: int | None) -> None:
        super().__init__(f"refused with {status}")
        self.status = status


class Reset(Exception):
    """The other side has reset the stream."""

    def __init__(self, code: int) -> None:
        super().__init__(f"reset with {code}")
        self.code = code


class Ended(Exception):
    """The session is over."""


class Stream(Protocol):
    """A stream of either kind."""

    async def send(self, data: bytes, end: bool = False) -> None: ...
    async def read(self) -> bytes:
        """What has come, nothing at the end. Raises `Reset`."""
        ...

    async def reset(self, code: int) -> None: ...
    async def stop(self, code: int) -> None: ...
    async def stopped(self) -> int:
        """The code with which the other side has asked to stop."""
        ...


class Session(Protocol):
    """An open session."""

    protocol: str | None

    async def open(self, bidirectional: bool) -> Stream: ...
    async def accept(self, bidirectional: bool) -> Stream:
        """The next of the other side's. Raises `Ended`."""
        ...

    async def send_datagram(self, data: bytes) -> None: ...
    async def datagram(self) -> bytes:
        """The next one. Raises `Ended`."""
        ...

    async def close(self, code: int, reason: str) -> None: ...
    async def closed(self) -> tuple[int, str]:
        """The code and the reason with which the other side has closed the session."""
        ...


Handler = Callable[[Any], Awaitable[None]]


class Library(Protocol):
    """A module of `libraries`."""

    LACKING: dict[str, str]
    """What it lacks, by case."""

    def run(self, main: Any) -> None:
        """Runs the coroutine to its end."""
        ...

    def connect(
        self, host: str, port: int, path: str, authority: Path, protocols: list[str]
    ) -> AbstractAsyncContextManager[Any]:
        """A session with a server. Raises `Refused`."""
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
        """Takes sessions at the path, each with a call of the handler; gives back what stops it."""
        ...
