"""How ``async with`` ends for what has streams, a connection or a session.

Leaving a connection's block waits until the peer has acknowledged what was finished on streams, because a
close drops queued data; with an exception the connection closes at once. After the peer has closed, data
that had arrived can still be read.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

__all__ = ["leave", "wait_delivered"]


class _Open(Protocol):
    @property
    def is_closed(self) -> bool: ...
    async def wait_delivered(self) -> None: ...
    def close(self) -> None: ...
    async def wait_closed(self) -> None: ...


async def wait_delivered(thing: _Open, timeout: float) -> None:
    """Waits until the peer has acknowledged what was finished on the streams, ``timeout`` seconds at most."""
    delivered = asyncio.ensure_future(thing.wait_delivered())
    try:
        await asyncio.wait([delivered], timeout=timeout)
    finally:
        delivered.cancel()


async def leave(thing: _Open, exc_type: type[BaseException] | None, close_timeout: float) -> None:
    """Closes ``thing``, without an exception when what was finished is delivered."""
    try:
        if exc_type is None and not thing.is_closed:
            await wait_delivered(thing, close_timeout)
    finally:
        thing.close()
    await thing.wait_closed()
