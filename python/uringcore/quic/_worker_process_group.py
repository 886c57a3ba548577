"""``ProcessGroup``: starts, replaces and ends the processes that serve with a group's workers.

:mod:`uringcore.quic.workers` has the shared state and the steering of packets.
"""

from __future__ import annotations

import contextlib
import multiprocessing.connection
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any, Protocol

__all__ = ["ProcessGroup"]


class Worker(Protocol):
    """A worker with which a process serves."""

    @property
    def index(self) -> int:
        """The worker's index in the group."""


class Mark(Protocol):
    """Records that a worker has, or does not have, a process."""

    def __call__(self, index: int, *, serving: bool) -> None: ...


class ProcessGroup:
    """A process for each of ``workers``, as ``PortGroup.run`` describes.

    The group calls ``mark`` when a process begins or ends. Each process that begins to serve sends a byte
    with its index to ``news``.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        target: Callable[..., object],
        args: tuple[Any, ...],
        context: BaseContext,
        mark: Mark,
        news: socket.socket,
    ) -> None:
        self._places = [_Place(worker, target, args, context, mark) for worker in workers]
        self._news = news

    def run(self) -> None:
        """Runs the processes until all have returned."""
        to_replace: deque[_Place] = deque()
        stopping = False

        def stop(signum: int, frame: FrameType | None) -> None:
            nonlocal stopping
            stopping = True
            for place in self._places:
                place.terminate()

        def replace(signum: int, frame: FrameType | None) -> None:
            to_replace.clear()
            to_replace.extend(self._places)

        with _handling({signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGHUP: replace}):
            try:
                for place in self._places:
                    place.start()
                while waiting := [place for place in self._places if not place.is_done]:
                    if stopping:
                        # A process may have started after the signal was passed to the others.
                        stop(signal.SIGTERM, None)
                    elif to_replace:
                        # Processes may have sent messages before the signal arrived.
                        self._read_messages()
                        if any(place.is_failing for place in waiting):
                            to_replace.clear()
                        elif all(place.is_settled for place in waiting):
                            to_replace.popleft().replace()
                    _wait_for_one(waiting, self._news)
                    # The messages of processes that have ended are read before their successors start.
                    for place in waiting:
                        place.notice()
                    self._read_messages()
                    for place in waiting:
                        place.look(may_start=not stopping)
            finally:
                stop(signal.SIGTERM, None)

    def _read_messages(self) -> None:
        for index in _received(self._news):
            self._places[index].serves()


class _Place:
    """The process of one worker, and the processes that replace it."""

    def __init__(
        self,
        worker: Worker,
        target: Callable[..., object],
        args: tuple[Any, ...],
        context: BaseContext,
        mark: Mark,
    ) -> None:
        self._index = worker.index
        self._args = (target, worker, *args)
        self._context = context
        self._mark = mark
        self.process: BaseProcess | None = None
        self.is_done = False
        self.begin_at = 0.0
        self._began_at = 0.0
        self._delay = 0.0
        self._tells = False
        self._is_serving = False
        self._is_replaced = False
        self._has_ended = False

    @property
    def is_settled(self) -> bool:
        """True if this worker is not being replaced, so that the next worker may be."""
        return not self._is_replaced and (self._is_serving or not self._tells)

    @property
    def is_failing(self) -> bool:
        """True if the last process has failed soon after its start, and no process has served since."""
        return self._delay > 0 and not self._is_serving

    def start(self) -> None:
        self._began_at = time.monotonic()
        if not self._tells:
            # The target need not report that it serves, so a process that runs counts as serving.
            self._mark(self._index, serving=True)
        process: BaseProcess = self._context.Process(  # type: ignore[attr-defined]
            target=_begin, args=self._args
        )
        process.start()
        self.process = process

    def serves(self) -> None:
        """The process has reported that it serves."""
        self._tells = True
        if self.process is not None and not self._is_replaced:
            self._is_serving = True
            self._mark(self._index, serving=True)

    def terminate(self) -> None:
        process = self.process
        if process is None:
            self.is_done = True
        elif process.is_alive():
            process.terminate()

    def replace(self) -> None:
        """Ends the process and starts another one in its place, whatever status the first one returns."""
        if self.process is not None:
            self._is_replaced = True
            self.process.terminate()

    def notice(self) -> None:
        """Checks if the process has ended."""
        self._has_ended = self.process is not None and not self.process.is_alive()

    def look(self, may_start: bool) -> None:
        """Handles the end of the process, and starts the next process when it is time."""
        if self.process is not None and self._has_ended:
            self._has_ended = False
            self.process.join()
            if may_start:
                self._mark(self._index, serving=False)
            self._end(failed=self.process.exitcode != 0, may_start=may_start)
        if self.process is None and not self.is_done and time.monotonic() >= self.begin_at:
            self.start()

    def _end(self, failed: bool, may_start: bool) -> None:
        replaced, self._is_replaced = self._is_replaced, False
        self.process = None
        self._is_serving = False
        self.is_done = not ((failed or replaced) and may_start)
        lasted = time.monotonic() - self._began_at
        is_hasty = lasted < 10 and not replaced
        self._delay = min(30.0, max(0.25, self._delay * 2)) if is_hasty else 0.0
        self.begin_at = time.monotonic() + self._delay


def _begin(target: Callable[..., object], worker: Worker, *args: Any) -> None:
    """Runs ``target`` in the child, without the signal handlers that a forked child inherits."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # A terminal sends SIGINT to all processes of the group. The parent handles it and ends the others, so
    # they ignore it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    target(worker, *args)


def _wait_for_one(places: list[_Place], news: socket.socket) -> None:
    """Waits until a process ends, reports or is due to start; at most a second, so that no signal is
    missed.
    """
    sentinels = [place.process.sentinel for place in places if place.process is not None]
    waits = [place.begin_at - time.monotonic() for place in places if place.process is None]
    multiprocessing.connection.wait([news, *sentinels], timeout=max(0.0, min([1.0, *waits])))


def _received(news: socket.socket) -> Iterator[int]:
    while True:
        try:
            yield news.recv(1)[0]
        except BlockingIOError:
            return


def _in_this_process(
    handler: Callable[[int, FrameType | None], None],
) -> Callable[[int, FrameType | None], None]:
    """A signal handler that does in a child what :func:`_begin` sets.

    A forked child inherits the handlers, and also a signal of its parent that Python has not handled yet.
    """
    owner = os.getpid()

    def handle(signum: int, frame: FrameType | None) -> None:
        if os.getpid() == owner:
            handler(signum, frame)
        elif signum == signal.SIGTERM:
            signal.signal(signum, signal.SIG_DFL)
            signal.raise_signal(signum)

    return handle


@contextlib.contextmanager
def _handling(
    handlers: Mapping[signal.Signals, Callable[[int, FrameType | None], None]],
) -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in handlers}
    try:
        for number, handler in handlers.items():
            # A program that ignores SIGHUP (nohup) continues to ignore it.
            if number != signal.SIGHUP or before[number] != signal.SIG_IGN:
                signal.signal(number, _in_this_process(handler))
        yield
    finally:
        for number, old in before.items():
            # A handler that was not set from Python is None here, and cannot be restored.
            if old is not None:
                signal.signal(number, old)
