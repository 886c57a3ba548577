"""Signals wake the loop: who holds Python's wakeup descriptor, and when it is given back.

``add_signal_handler`` and its errors are asyncio's own. What is added is that a loop which runs in the
main thread is woken by *every* signal, handlers or not: a system call is interrupted only while it
sleeps, so without the descriptor a Ctrl-C that comes just before would wait for the next event.

Not here: the look at pending signals after every wait (the core's turn).
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
    # This is a forked child, and the pair by which signals wake the loop is the parent's as well.
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

        As :meth:`asyncio.loop.add_signal_handler`; a storm of signals does not print warnings.

        Raises:
            ValueError: ``sig`` is no signal's number.
            RuntimeError: the signal cannot be caught, or this is not the main thread.
        """
        self._leave_self_pipe_to_parent()
        super().add_signal_handler(sig, callback, *args)  # type: ignore[misc]
        self._hold_wakeup_fd()

    def remove_signal_handler(self, sig: int) -> bool:
        """Give the signal its default action back. True if there was a handler."""
        removed: bool = super().remove_signal_handler(sig)  # type: ignore[misc]
        if removed and not self._signal_handlers and self.is_running():
            self._hold_wakeup_fd()  # asyncio has just let go of it
            self._wakeup_is_ours = True
        return removed

    def _close_self_pipe(self) -> None:
        # The collector may have finalised the pair before a loop that nobody has closed.
        if self._ssock.fileno() != -1:
            super()._close_self_pipe()  # type: ignore[misc]

    def _leave_self_pipe_to_parent(self) -> None:
        """In a forked child that uses the loop: from now on its signals wake it, by a pair of its own."""
        if not self._self_pipe_is_parents:
            return
        self._self_pipe_is_parents = False
        self._close_self_pipe()
        self._make_self_pipe()
        if self._signal_handlers and threading.current_thread() is threading.main_thread():
            self._hold_wakeup_fd()

    def _hold_wakeup_fd(self) -> int:
        """Let signals wake this loop. Returns whom they woke before, -1 for nobody."""
        return signal.set_wakeup_fd(self._csock.fileno(), warn_on_full_buffer=False)

    def _prepare_to_sleep(self) -> None:
        """Before the first sleep of a run; only the main thread has the descriptor."""
        if threading.current_thread() is not threading.main_thread():
            return
        # First, for a signal's handler may raise anywhere here, and the run gives back what it has.
        self._wakeup_is_ours = True
        try:
            previous = self._hold_wakeup_fd()
        except ValueError:
            # The main thread of a subinterpreter: signals are the main interpreter's.
            self._wakeup_is_ours = False
            return
        # The program's own, or another loop's that has handlers: on asyncio it keeps it, too.
        if previous not in (_NOBODY, self._csock.fileno()) and _give_wakeup_fd(previous):
            self._wakeup_is_ours = False

    def _let_go_of_wakeup_fd(self) -> None:
        """At the end of a run."""
        if not self._signal_handlers:
            current = signal.set_wakeup_fd(_NOBODY)
            if current != self._csock.fileno():  # somebody took it during the run, to keep
                _give_wakeup_fd(current)
        # Last: what a signal's handler interrupts here, close() has to do.
        self._wakeup_is_ours = False

    def _let_go_of_wakeup_fd_if_held(self) -> None:
        """Before the loop closes the socket: signals would write to whoever gets its number."""
        is_held = self._wakeup_is_ours and not self.is_running()
        if is_held and threading.current_thread() is threading.main_thread():
            self._let_go_of_wakeup_fd()

    @staticmethod
    def _forget_wakeup_in_child(loops: Iterable[SignalMixin]) -> None:
        """In a forked child: its signals must not be told to the parent's loops.

        The wakeup descriptor is a socket pair that both processes share. CPython lets go of it since 3.12.
        """
        loops = [loop for loop in loops if not loop.is_closed()]
        own = set()
        for loop in loops:
            own.add(loop._csock.fileno())
            loop._self_pipe_is_parents = True
            loop._wakeup_is_ours = False
        try:
            current = signal.set_wakeup_fd(_NOBODY)
        except ValueError:  # a subinterpreter has none
            return
        if current not in own:
            _give_wakeup_fd(current)
        for loop in loops:
            if loop.is_running():
                # The run that was forked in may go on, and begins no more.
                loop._leave_self_pipe_to_parent()
                loop._prepare_to_sleep()


def _give_wakeup_fd(fd: int) -> bool:
    """Let signals be told to `fd`; False if it is closed by now."""
    try:
        signal.set_wakeup_fd(fd)
    except (OSError, ValueError):
        return False
    return True
