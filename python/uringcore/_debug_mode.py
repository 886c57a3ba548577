"""Debug mode: asyncio's own handles, which record where they were created and how long they run.

Without debug mode the core makes and runs handles of its own type.
"""

from __future__ import annotations

import asyncio
import time
from asyncio import base_events, events
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import contextvars

__all__ = ["DebugHandles"]


class DebugHandles:
    """The methods that the core calls in debug mode."""

    if TYPE_CHECKING:
        slow_callback_duration: float
        _current_handle: Any
        _check_callback: Callable[[Any, str], None]
        _check_thread: Callable[[], None]

    def _debug_handle(
        self,
        method: str,
        callback: Callable[..., Any],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> events.Handle:
        if method == "call_soon":
            self._check_thread()
        self._check_callback(callback, method)
        kind: Any = events.Handle
        if method == "call_soon_threadsafe":
            kind = getattr(events, "_ThreadSafeHandle", kind)  # CPython 3.14
        handle: Any = kind(callback, args, self, context)
        if handle._source_traceback:
            # The traceback must not contain this frame, nor that of a subclass's constructor.
            del handle._source_traceback[-1 if kind is events.Handle else -2 :]
        return cast(events.Handle, handle)

    def _debug_timer(
        self,
        method: str,
        when: float,
        callback: Callable[..., Any],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> events.TimerHandle:
        self._check_thread()
        self._check_callback(callback, method)
        loop: Any = self
        timer: Any = events.TimerHandle(when, callback, args, loop, context)
        if timer._source_traceback:
            del timer._source_traceback[-1]
        timer._scheduled = True
        return cast(events.TimerHandle, timer)

    def _run_debug_handle(self, handle: Any) -> None:
        if hasattr(handle, "_scheduled"):  # asyncio's TimerHandle
            handle._scheduled = False
        self._current_handle = handle
        started = time.monotonic()
        try:
            handle._run()
        finally:
            self._current_handle = None
        seconds = time.monotonic() - started
        if seconds >= self.slow_callback_duration:
            # The logger is looked up for each warning, because programs and asyncio's own tests replace it.
            base_events.logger.warning(  # type: ignore[attr-defined]
                "Executing %s took %.3f seconds", _format_handle(handle), seconds
            )
        # A task keeps its exception, whose traceback includes this frame. A reference from here to the task
        # would make a cycle.
        del handle


def _format_handle(handle: Any) -> str:
    callback = handle._callback
    if isinstance(getattr(callback, "__self__", None), asyncio.Task):
        return repr(callback.__self__)
    return str(handle)
