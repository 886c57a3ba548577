"""A shield against the cancel scopes of anyio, for the end of a server.

``Task.cancel`` interrupts one ``await``. A cancelled scope of anyio cancels its tasks again at each
``await`` until they have left it, so no ``await`` would succeed there. A shielded scope prevents that;
``Task.cancel`` still interrupts its tasks. _server.py bounds the time that the end of a server takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["shielded", "wait_despite_cancel"]


def shielded() -> contextlib.AbstractContextManager[object]:
    """A context in which the anyio scopes around the running task do not cancel it."""
    # If anyio was not imported, no task is in one of its scopes.
    make_scope = getattr(sys.modules.get("anyio"), "CancelScope", None)
    scope: contextlib.AbstractContextManager[object]
    scope = contextlib.nullcontext() if make_scope is None else make_scope(shield=True)
    return scope


def is_scope_cancelled() -> bool:
    """True if the running task is in a cancelled anyio scope and not shielded from it."""
    effective_deadline = getattr(sys.modules.get("anyio"), "current_effective_deadline", None)
    return effective_deadline is not None and effective_deadline() == -math.inf


async def wait_despite_cancel(
    task: asyncio.Task[Any],
    on_cancel: Callable[[asyncio.CancelledError], object],
    on_scope: Callable[[], object] | None = None,
) -> None:
    """Waits until another task has ended, even if this one is cancelled meanwhile.

    ``on_cancel`` is called at each ``Task.cancel``, and ``on_scope`` once when a scope is cancelled.
    """
    if on_scope is not None:
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as exc:
            if is_scope_cancelled():
                # After this the scope would cancel each await.
                on_scope()
            else:
                on_cancel(exc)
    with shielded():
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as exc:
                on_cancel(exc)
