"""TCP connections of a stopping server that are closed and whose clients do not say so.

TLS waits half a minute for a client's close_notify, which nobody has to wait for (RFC 8446 section 6.1), and
a client that has no request under way may read nothing for as long: httpx's pools do not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Iterator

__all__ = ["close_lingering"]

LOOK_SECONDS = 0.1

SILENCE_SECONDS = 1.0
"""What a client has for its last word, when all of its response has gone to the kernel."""

logger = logging.getLogger("uvicorn.error")


@contextlib.contextmanager
def close_lingering(connections: Iterable[object]) -> Iterator[None]:
    """Meanwhile those of ``connections``, uvicorn's protocols, that are closed but for that are ended."""
    task = asyncio.ensure_future(close_when_idle(connections))
    task.add_done_callback(tell)
    try:
        yield
    finally:
        task.cancel()


def tell(parted: asyncio.Task[None]) -> None:
    if not parted.cancelled() and (error := parted.exception()) is not None:
        logger.error(
            "Closed TCP connections are waited for until their clients say so", exc_info=error
        )


async def close_when_idle(connections: Iterable[object]) -> None:
    """Until cancelled."""
    loop = asyncio.get_running_loop()
    closed_at: dict[asyncio.Transport, float] = {}
    while True:
        for connection in list(connections):
            transport = getattr(connection, "transport", None)
            if not isinstance(transport, asyncio.Transport) or not transport.is_closing():
                continue
            if transport.get_write_buffer_size():
                # Its client takes its time for the response.
                closed_at.pop(transport, None)
            elif loop.time() - closed_at.setdefault(transport, loop.time()) >= SILENCE_SECONDS:
                transport.abort()
        await asyncio.sleep(LOOK_SECONDS)
