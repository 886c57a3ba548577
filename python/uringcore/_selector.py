"""What stands where asyncio keeps its selector and its deque of ready handles: views of the core's.

The ring (or epoll) behind a loop belongs to the core, so nothing can be registered here; but asyncio's
own code, tests and leak detectors look up what is being watched, and find it. And a program that has a
``_run_once`` of its own (nest_asyncio, to run a loop inside itself) waits by ``_selector.select()`` and
runs what it pops from ``_ready``. Timers that are due are among that; ``_scheduled`` stays empty.

Not here: the watchers themselves (``src/py/loop/watchers.rs``), and the polls of the loop's own transports,
which are no watchers.

``_selector.select()`` is the first half of a turn. ``run_forever`` calls ``_run_once`` for each turn only
if the program has replaced it.
"""

from __future__ import annotations

import selectors
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from . import _uringcore

__all__ = ["ReadyView", "WatchersView"]


class WatchersView(selectors.BaseSelector):
    """The loop's readers and writers in the shape of a selector's map. It refuses every change."""

    def __init__(self, loop: _uringcore.LoopCore) -> None:
        self._loop = loop

    def register(self, fileobj: Any, events: int, data: Any = None) -> NoReturn:
        """Refuse: use ``loop.add_reader()`` and ``loop.add_writer()``."""
        self._refuse()

    def unregister(self, fileobj: Any) -> NoReturn:
        """Refuse: use ``loop.remove_reader()`` and ``loop.remove_writer()``."""
        self._refuse()

    def select(self, timeout: float | None = None) -> list[Any]:
        """Wait as the loop does, for at most `timeout` seconds. What is ready then is in ``_ready``."""
        self._loop._wait_until_ready(timeout)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """By descriptor: what is watched, for which events, with ``(reader, writer)`` as data."""
        keys: dict[int, selectors.SelectorKey] = {}
        # The oldest first: a descriptor stays known by the object that was watched first.
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
        """The entry of a descriptor, or of an object with a ``fileno()``.

        Raises:
            KeyError: it is not watched.
        """
        keys = self.get_map()
        for key in keys.values():
            # An object that was closed while it is watched has no number any more.
            if key.fileobj is fileobj:
                return key
        try:
            return keys[selectors._fileobj_to_fd(fileobj)]  # type: ignore[attr-defined]
        except (KeyError, ValueError):
            raise KeyError(f"{fileobj!r} is not registered") from None

    def _refuse(self) -> NoReturn:
        raise RuntimeError("uringcore loops have no selector; use add_reader() and add_writer()")


class ReadyView(Sequence[Any]):
    """What the loop runs next, with what programs use of a deque: handles are added at both ends, taken
    from the left, removed and looked at. The rest (``pop``, ``insert``, ``rotate``, item assignment) is
    not there: what the loop has found ready keeps its order.
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
        """Have a handle run in the next turn."""
        _uringcore._ready_push(self._loop, handle, False)

    def appendleft(self, handle: Any) -> None:
        """Have a handle run before all others."""
        _uringcore._ready_push(self._loop, handle, True)

    def extend(self, handles: Iterable[Any]) -> None:
        """Have several run, in order."""
        for handle in handles:
            self.append(handle)

    def remove(self, handle: Any) -> None:
        """Take a handle out, wherever it is.

        Raises:
            ValueError: it is not there.
        """
        if not _uringcore._ready_remove(self._loop, handle):
            raise ValueError("the handle is not ready")

    def popleft(self) -> Any:
        """Take the next one, to be run by the caller.

        Raises:
            IndexError: nothing is ready.
        """
        handle = _uringcore._ready_pop(self._loop)
        if handle is None:
            raise IndexError("nothing is ready")
        return handle

    def clear(self) -> None:
        """Forget all of it."""
        while _uringcore._ready_pop(self._loop) is not None:
            pass
