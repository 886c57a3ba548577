"""A bounded pool of threads for WSGI applications.

The threads are daemons: a process whose application never returns can still end. The executors of the
standard library wait for such a thread.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable

__all__ = ["WorkerThreads"]


class WorkerThreads:
    """At most ``max_threads`` threads, each made when all others are busy. They end with :meth:`close`, after
    which a pool is not used again.

    A caller acquires one of the ``permits`` before it submits a call, and releases it when the call has
    returned. They belong to the loop ``loop``, in which the pool is made.
    """

    def __init__(self, max_threads: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.permits = asyncio.Semaphore(max_threads)
        self._max = max_threads
        self._is_closed = False
        self._waiting: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._count = 0

    def submit(self, call: Callable[[], None]) -> None:
        """Runs ``call``, which must not raise, on a thread. Called in the loop.

        Raises ``RuntimeError`` without running it if the pool is closed, or if no thread can be started.
        """
        if self._is_closed:
            raise RuntimeError("the server has ended")
        if not self._idle.acquire(blocking=False) and self._count < self._max:
            name = f"uringcore-wsgi-{self._count}"
            threading.Thread(target=self._run, name=name, daemon=True).start()
            self._count += 1
        self._waiting.put(call)

    def close(self) -> None:
        """Ends the threads that are idle, and the others when their calls return."""
        self._is_closed = True
        for _ in range(self._count):
            self._waiting.put(None)

    def _run(self) -> None:
        while (call := self._waiting.get()) is not None:
            call()
            # The next call begins no earlier than this.
            del call
            self._idle.release()
