"""The UDP ports that several processes share, and which of them has which place.

Where the kernel sends a packet is :mod:`uringcore.quic.workers`'; when processes begin and end is their
supervisor's.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable

from uringcore.quic.workers import PortGroup, PortWorker
from uringcore.server._config import Config

__all__ = ["WORKERS_MAX", "Ports"]

# Of one UDP port; a connection ID's first byte tells them apart.
PLACES_MAX = 252
WORKERS_MAX = PLACES_MAX // 4


class Ports:
    """The UDP port of all workers on each of its addresses, and who has which place on it.

    A place is taken only if its neighbour is empty: a worker that is about to end sends new clients on
    to the next place, and whoever stands in there has to take them. So there are twice as many as
    processes may be at a time, while one generation takes over from another.

    ``sockets`` say which addresses; they are closed, for each process gets its own. Which process has a
    place is known where this was made; :meth:`mark` works in forked children as well.
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
                token_key=config.http3_token_key,
                stateless_reset_key=config.http3_reset_key,
                only_v6=True,
            )
            self._groups.append(group)
            for index in range(places):
                group.mark(index, serving=False)

    @property
    def have_room(self) -> bool:
        """True if there is a place for one more worker."""
        return bool(self._free) or not self._groups

    def take(self, is_first: bool) -> list[PortWorker]:
        """Places for a worker; ``is_first``: what comes from now on waits for it."""
        if not self._groups:
            return []
        index = self._free.pop(0)
        for group in self._groups:
            group.clear(index)
            group.mark(index, serving=is_first)
        return [group[index] for group in self._groups]

    def mark(self, places: Iterable[PortWorker], *, accepting: bool) -> None:
        """True if their worker, which is there, takes new clients."""
        for group, place in zip(self._groups, places, strict=True):
            group.mark(place.index, serving=True, accepting=accepting)

    def give_back(self, places: Iterable[PortWorker]) -> None:
        """Their worker has ended."""
        for group, place in zip(self._groups, places, strict=True):
            group.mark(place.index, serving=False)
        self._free += {place.index for place in places}

    def close(self) -> None:
        """Closes this process's sockets."""
        for group in self._groups:
            group.close()
