"""Signal handlers of a loop, and Python's wakeup descriptor, by which every signal wakes a running loop.

``add_signal_handler`` and its errors are asyncio's own. In addition every signal wakes a loop that runs in
the main thread, with or without a handler. A signal interrupts a system call only while that sleeps. Without
the descriptor the effect of a Ctrl-C just before the sleep would be delayed until the next event.

The core checks for pending signals after every wait.
"""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

__all__ = ["SignalMixin"]

_NOBODY = -1


class SignalMixin:
    """Signal handlers, and the wakeup descriptor during a run."""

    _wakeup_is_ours = False
    # True in a forked child that still uses the wake-up sockets of its parent.
    _self_pipe_is_parents = False

    if TYPE_CHECKING:
        _csock: socket.socket
        _ssock: socket.socket
        _signal_handlers: dict[int, Any]
        is_running: Callable[[], bool]
        is_closed: Callable[[], bool]
        _make_self_pipe: Callable[[], None]

    def add_signal_handler(self, sig: int, callback: Callable[..., Any], *args: Any) -> None:
        """Call ``callback(*args)`` on the loop when the signal arrives.

        Works as :meth:`asyncio.loop.add_signal_handler`; a storm of signals prints no warnings.

        Raises:
            ValueError: ``sig`` is not a signal number.
            RuntimeError: the signal cannot be caught, or this is not the main thread.
        """
        self._leave_self_pipe_to_parent()
        super().add_signal_handler(sig, callback, *args)  # type: ignore[misc]
        self._hold_wakeup_fd()

    def remove_signal_handler(self, sig: int) -> bool:
        """Restore the signal's default action. Returns True if there was a handler."""
        removed: bool = super().remove_signal_handler(sig)  # type: ignore[misc]
        if removed and not self._signal_handlers and self.is_running():
            self._hold_wakeup_fd()  # asyncio's method has given the wake-up descriptor up, so it is set again
            self._wakeup_is_ours = True
        return removed

    def _close_self_pipe(self) -> None:
        is_held = self._wakeup_is_ours or self._signal_handlers
        if is_held and threading.current_thread() is threading.main_thread():
            # asyncio removes the handlers later. Until then, signals would be written to a closed socket, or
            # to another file that gets the socket's number.
            self._take_wakeup_fd_back()
            self._wakeup_is_ours = False
        # If the program has not closed the loop, the garbage collector may have closed the sockets already.
        if self._ssock.fileno() != -1:
            super()._close_self_pipe()  # type: ignore[misc]

    def _leave_self_pipe_to_parent(self) -> None:
        """Makes new wake-up sockets in a forked child, because the old ones are its parent's, too."""
        if not self._self_pipe_is_parents:
            return
        self._self_pipe_is_parents = False
        self._close_self_pipe()
        self._make_self_pipe()
        if self._signal_handlers and threading.current_thread() is threading.main_thread():
            self._hold_wakeup_fd()

    def _hold_wakeup_fd(self) -> int:
        """Let signals wake this loop. Returns the previous descriptor, -1 for none."""
        return signal.set_wakeup_fd(self._csock.fileno(), warn_on_full_buffer=False)

    def _prepare_to_sleep(self) -> None:
        """Called before the first sleep of a run. Makes signals wake the loop, in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return
        # The flag is set first. A signal handler may raise an exception anywhere below, and the end of the
        # run must then release the descriptor.
        self._wakeup_is_ours = True
        try:
            previous = self._hold_wakeup_fd()
        except ValueError:
            # Only the main interpreter handles signals, and this is the main thread of a subinterpreter.
            self._wakeup_is_ours = False
            return
        # A wakeup descriptor that the program or another loop has set stays, as on asyncio.
        if previous not in (_NOBODY, self._csock.fileno()) and _give_wakeup_fd(previous):
            self._wakeup_is_ours = False

    def _release_wakeup_fd(self) -> None:
        """Called when a run of the loop ends."""
        if not self._signal_handlers:
            self._take_wakeup_fd_back()
        # Cleared last: if a signal handler interrupts this method, close() releases the descriptor.
        self._wakeup_is_ours = False

    def _take_wakeup_fd_back(self) -> None:
        """Stops signals from waking this loop. A descriptor that the program has set since stays."""
        try:
            current = signal.set_wakeup_fd(_NOBODY)
        except ValueError:  # not available in a subinterpreter
            return
        if current != self._csock.fileno():
            _give_wakeup_fd(current)

    @staticmethod
    def _forget_wakeup_in_child(loops: Iterable[SignalMixin]) -> None:
        """Removes the wakeup descriptor in a forked child, whose signals must not wake the parent's loops.

        Both processes share the socket behind it. CPython itself resets the descriptor from 3.12 on.
        """
        loops = [loop for loop in loops if not loop.is_closed()]
        own = set()
        for loop in loops:
            own.add(loop._csock.fileno())
            loop._self_pipe_is_parents = True
            loop._wakeup_is_ours = False
        try:
            current = signal.set_wakeup_fd(_NOBODY)
        except ValueError:  # not available in a subinterpreter
            return
        if current not in own:
            _give_wakeup_fd(current)
        for loop in loops:
            if loop.is_running():
                # The child may continue the run in which it was forked, so the loop is prepared again at
                # once.
                loop._leave_self_pipe_to_parent()
                loop._prepare_to_sleep()


def _give_wakeup_fd(fd: int) -> bool:
    """Make `fd` the wakeup descriptor. Returns False if it is closed."""
    try:
        signal.set_wakeup_fd(fd)
    except (OSError, ValueError):
        return False
    return True
