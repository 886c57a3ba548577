"""What stands where asyncio keeps its selector: a view of what the loop watches.

The ring (or epoll) behind a loop belongs to the core, so nothing can be registered here; but asyncio's
own code, tests and leak detectors look up what is being watched, and find it.

Not here: the watchers themselves (``src/py/watchers.rs``), and the polls of the loop's own transports,
which are no watchers.
"""

from __future__ import annotations

import selectors
from collections.abc import Mapping
from typing import Any, NoReturn

from . import _uringcore

__all__ = ["WatchersView"]


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

    def select(self, timeout: float | None = None) -> NoReturn:
        """Refuse: the loop waits by itself."""
        self._refuse()

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
