"""The loop's ``_selector`` and ``_ready``: views of the core in place of asyncio's selector and deque.

The core owns the ring (or epoll set) of a loop, so nothing can be registered with this selector. asyncio's
own code, tests and leak detectors look up watched descriptors in it. The polls of the loop's own transports
are not visible. ``src/py/loop/fd_watchers.rs`` implements the watchers.

A program may replace ``_run_once``, as nest_asyncio does to run a loop inside itself. Then ``run_forever``
calls the replacement for each iteration. It waits by ``_selector.select()``, which is the first half of an
iteration, and runs the handles that it pops from ``_ready``. Due timers are among these; ``_scheduled`` stays
empty.
"""

from __future__ import annotations

import selectors
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from . import _uringcore

__all__ = ["ReadyView", "WatchersView"]


class WatchersView(selectors.BaseSelector):
    """The loop's readers and writers as a selector's map, which refuses every change."""

    def __init__(self, loop: _uringcore.LoopCore) -> None:
        self._loop = loop

    def register(self, fileobj: Any, events: int, data: Any = None) -> NoReturn:
        """Refuse: use ``loop.add_reader()`` and ``loop.add_writer()``."""
        self._refuse()

    def unregister(self, fileobj: Any) -> NoReturn:
        """Refuse: use ``loop.remove_reader()`` and ``loop.remove_writer()``."""
        self._refuse()

    def select(self, timeout: float | None = None) -> list[Any]:
        """Wait as the loop does, for at most `timeout` seconds. Ready handles are in ``_ready`` then."""
        self._loop._wait_until_ready(timeout)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """Returns the watched descriptors, each with its events, and ``(reader, writer)`` as its data."""
        keys: dict[int, selectors.SelectorKey] = {}
        # Watchers come oldest first, so a descriptor's entry has the object that was watched first.
        for fd, write, file, handle in _uringcore._watched(self._loop):
            key = keys.get(fd) or selectors.SelectorKey(file, fd, 0, (None, None))
            reader, writer = key.data
            if write:
                key = key._replace(events=key.events | selectors.EVENT_WRITE, data=(reader, handle))
            else:
                key = key._replace(events=key.events | selectors.EVENT_READ, data=(handle, writer))
            keys[fd] = key
        return keys

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        """Returns the entry of a descriptor, or of an object with a ``fileno()``.

        Raises:
            KeyError: the descriptor is not watched.
        """
        keys = self.get_map()
        for key in keys.values():
            # Objects are compared by identity, because an object that was closed while it was watched has no
            # descriptor any more.
            if key.fileobj is fileobj:
                return key
        try:
            return keys[selectors._fileobj_to_fd(fileobj)]  # type: ignore[attr-defined]
        except (KeyError, ValueError):
            raise KeyError(f"{fileobj!r} is not registered") from None

    def _refuse(self) -> NoReturn:
        raise RuntimeError("uringcore loops have no selector; use add_reader() and add_writer()")


class ReadyView(Sequence[Any]):
    """The handles that the loop runs next, with the methods of a deque that programs use: adding at both
    ends, taking from the left, removing and indexing. ``pop``, ``insert``, ``rotate`` and item assignment are
    missing, because they would change the order of handles.
    """

    def __init__(self, loop: _uringcore.LoopCore) -> None:
        self._loop = loop

    def __len__(self) -> int:
        return _uringcore._ready_count(self._loop)

    def __getitem__(self, index: Any) -> Any:
        length = len(self)
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(length))]
        at = index + length if index < 0 else index
        handle = _uringcore._ready_at(self._loop, at) if at >= 0 else None
        if handle is None:
            raise IndexError("the index is out of range")
        return handle

    def append(self, handle: Any) -> None:
        """Run a handle in the next iteration."""
        _uringcore._ready_push(self._loop, handle, False)

    def appendleft(self, handle: Any) -> None:
        """Insert a handle before all others, so that it runs first."""
        _uringcore._ready_push(self._loop, handle, True)

    def extend(self, handles: Iterable[Any]) -> None:
        """Run several handles, in order."""
        for handle in handles:
            self.append(handle)

    def remove(self, handle: Any) -> None:
        """Remove a handle, at any position.

        Raises:
            ValueError: the handle is not in the queue.
        """
        if not _uringcore._ready_remove(self._loop, handle):
            raise ValueError("the handle is not ready")

    def popleft(self) -> Any:
        """Remove the next handle and return it; the caller runs it.

        Raises:
            IndexError: nothing is ready.
        """
        handle = _uringcore._ready_pop(self._loop)
        if handle is None:
            raise IndexError("nothing is ready")
        return handle

    def clear(self) -> None:
        """Remove all handles."""
        while _uringcore._ready_pop(self._loop) is not None:
            pass
