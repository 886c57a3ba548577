"""The thread that calls a session store which may block: on a disk, a lock, another machine.

No step of a handshake may block the loop, so the calls go through a queue, in order, and their results are
delivered later. This module has the queue and the thread. The core decides which connection waits, and for
how long; the stores are in ``sessions``.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import ClassVar, Protocol

__all__ = ["StoreThread"]

Sessions = list[tuple[bytes, bytes]]
Answer = Callable[[bool, Sessions, list[BaseException]], object]
"""``(is_new, found, errors)``: True if the token was not used before; the sessions, by their tickets;
exceptions of the store."""


class _Store(Protocol):
    def put(self, ticket: bytes, session: bytes) -> object: ...
    def take(self, ticket: bytes) -> bytes | None: ...
    def spend(self, token: bytes) -> bool: ...


class StoreThread:
    """Calls one store, one call after the other.

    Up to 1,024 calls wait. Beyond that a session is not stored, which costs its client a full handshake
    later, and a lookup is not made: the handshake continues without the session, or, if there was a token to
    check, its client gets a Retry.

    The thread ends when it was idle for a while. It does not keep the process from ending, nor a
    subinterpreter; calls that are queued then get a moment, and no more are accepted.
    """

    _all: ClassVar[weakref.WeakSet[StoreThread]] = weakref.WeakSet()
    _by_store: ClassVar[weakref.WeakValueDictionary[int, StoreThread]] = (
        weakref.WeakValueDictionary()
    )

    def __init__(self, store: _Store) -> None:
        self.store = store
        self._begin()
        self._all.add(self)

    @classmethod
    def of(cls, store: _Store) -> StoreThread:
        """Returns the thread of ``store``: one for all servers of the process, so that calls keep their
        order.
        """
        # An ID of a store is not reused, because the thread object in the table keeps the store alive.
        known = cls._by_store.get(id(store))
        return cls._by_store.setdefault(id(store), cls(store)) if known is None else known

    def ask(
        self, tickets: list[bytes], token: bytes | None, deadline: float, answer: Answer
    ) -> bool:
        """Calls ``answer`` with the result, in the thread. Returns False when the queue is full.

        After ``deadline``, a time of ``time.monotonic()``, it neither calls the store nor ``answer``.
        """

        def look() -> None:
            if time.monotonic() < deadline:
                answer(*self._take_sessions(tickets, token))
            else:
                answer(token is None, [], [])

        return self._submit(look)

    def keep(self, ticket: bytes, session: bytes, answer: Answer) -> bool:
        """Stores a session; ``answer`` is called if the store raises. Returns False as :meth:`ask` does."""

        def keep() -> None:
            try:
                self.store.put(ticket, session)
            except BaseException as exc:  # noqa: BLE001 - the loop reports it
                answer(True, [], [exc])

        return self._submit(keep)

    def _take_sessions(
        self, tickets: list[bytes], token: bytes | None
    ) -> tuple[bool, Sessions, list[BaseException]]:
        found: Sessions = []
        errors: list[BaseException] = []
        if token is not None:
            try:
                if not self.store.spend(token):
                    return False, found, errors
            except BaseException as exc:  # noqa: BLE001 - the loop reports it
                # A token that the store could not check is not valid.
                return False, found, [exc]
        for ticket in tickets:
            try:
                session = self.store.take(ticket)
                if session is not None:
                    found.append((ticket, bytes(memoryview(session))))
            except BaseException as exc:  # noqa: BLE001 - the loop reports it
                errors.append(exc)
        return True, found, errors

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._queue: deque[Callable[[], None]] = deque()
        # The thread that was started last. It may be about to end, because it has been idle.
        self._thread: threading.Thread | None = None
        self._is_running = False
        self._is_over = False

    def _submit(self, job: Callable[[], None]) -> bool:
        with self._changed:
            if self._is_over or len(self._queue) >= _QUEUE_MAX:
                return False
            if not self._is_running:
                # The thread is a daemon, because a store may wait for another process's lock, which must not
                # delay the end of this process.
                thread = threading.Thread(
                    target=self._run, name="uringcore-session-store", daemon=True
                )
                thread.start()
                self._thread = thread
                self._is_running = True
            self._queue.append(job)
            self._changed.notify_all()
        return True

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._is_over, _IDLE)
                if not self._queue:
                    self._is_running = False
                    return
                job = self._queue[0]
            # A job never raises: an exception of the store is a part of the job's answer.
            job()
            del job
            with self._changed:
                # The job is removed only after it has run, because `_drain` waits until the queue is empty.
                self._queue.popleft()
                self._changed.notify_all()

    def _drain(self, timeout: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._queue, timeout)

    def _end(self, at: float) -> None:
        """Accepts no more calls, and waits for the thread until the monotonic clock shows ``at``."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(max(0.0, at - time.monotonic()))


def _forget_in_child() -> None:
    """Removes all threads and their queued calls in a forked child, in which the threads do not run."""
    for thread in list(StoreThread._all):
        thread._begin()


def _finish() -> None:
    # Idle threads must have ended when the interpreter ends.
    at = time.monotonic() + _LAST_MOMENT
    for thread in list(StoreThread._all):
        thread._end(at)


os.register_at_fork(after_in_child=_forget_in_child)
atexit.register(_finish)

_QUEUE_MAX = 1024
_IDLE = 10.0
_LAST_MOMENT = 0.5
