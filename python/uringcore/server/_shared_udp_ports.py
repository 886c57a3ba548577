"""The UDP ports that several processes share, and the place of each process on them.

:mod:`uringcore.quic.workers` steers packets to processes, and the supervisor starts and stops them.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable

from uringcore.quic.workers import PortGroup, PortWorker
from uringcore.server._config import Config

__all__ = ["WORKERS_MAX", "Ports"]

# The maximum number of places on a UDP port. The first byte of a connection ID selects the place.
PLACES_MAX = 252
WORKERS_MAX = PLACES_MAX // 4


class Ports:
    """The UDP port of all workers on each of its addresses, and the place of each worker on it.

    A place is taken only if the next one is empty: a worker that is about to end sends new clients to the
    next place, and the worker that answers for an empty place has to accept them. So there are twice as many
    places as concurrent processes, while one generation takes over from another.

    ``sockets`` give the addresses; they are closed, because each process gets its own. This object records
    which process has a place; :meth:`mark` works in forked children as well.
    """

    def __init__(self, sockets: list[socket.socket], config: Config, *, workers: int) -> None:
        self._groups: list[PortGroup] = []
        places = min(max(4 * workers, 16), PLACES_MAX)
        self._free = list(range(0, places - 1, 2))
        for sock in sockets:
            name = sock.getsockname()
            sock.close()
            group = PortGroup(
                name[0],
                name[1],
                workers=places,
                token_key=config.keys.token[0],
                stateless_reset_key=config.keys.reset[0],
                only_v6=True,
            )
            self._groups.append(group)
            for index in range(places):
                group.mark(index, serving=False)

    @property
    def have_room(self) -> bool:
        """True if one more worker can get a place."""
        return bool(self._free) or not self._groups

    def take(self, is_first: bool) -> list[PortWorker]:
        """Returns places for a worker; with ``is_first`` new clients wait for this worker."""
        if not self._groups:
            return []
        index = self._free.pop(0)
        for group in self._groups:
            group.clear(index)
            group.mark(index, serving=is_first)
        return [group[index] for group in self._groups]

    def mark(self, places: Iterable[PortWorker], *, accepting: bool) -> None:
        """Marks the places of a worker as having a process. ``accepting`` says that the worker accepts new
        clients."""
        for group, place in zip(self._groups, places, strict=True):
            group.mark(place.index, serving=True, accepting=accepting)

    def give_back(self, places: Iterable[PortWorker]) -> None:
        """Frees the places of a worker, because it has ended."""
        for group, place in zip(self._groups, places, strict=True):
            group.mark(place.index, serving=False)
        self._free += {place.index for place in places}

    def close(self) -> None:
        """Closes this process's sockets."""
        for group in self._groups:
            group.close()
