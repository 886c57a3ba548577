"""A relay to the server that sends a client's datagrams from ever new addresses.

The addresses are in the loopback network. A client that moves is reachable at each of them. Forged
datagrams come from addresses where no host responds, between datagrams from the client's own
address.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from collections import deque
from collections.abc import Iterator

ADDRESSES_KEPT = 16
"""The number of newest sockets that a relay keeps. Answers to older ones are lost."""

SERVER = "127.0.0.1"
# No address is used twice: 127.64.0.1 and so on.
_NUMBERS = itertools.count(1)


def _new_host() -> str:
    number = next(_NUMBERS) % (1 << 22)
    return f"127.{64 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"


def _bound(host: str) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setblocking(False)
    made.bind((host, 0))
    return made


class Relay:
    """Forwards the datagrams of one client to the server at ``port``, and the responses back."""

    def __init__(self, port: int, *, every: int, forged: bool) -> None:
        """Every ``every``-th datagram of the client leaves from a new address."""
        self._server = (SERVER, port)
        self._every = every
        self._forged = forged
        self._loop = asyncio.get_running_loop()
        self._inner = _bound("127.0.0.2")
        self._client: tuple[str, int] | None = None
        self._outer: deque[socket.socket] = deque()
        self._silent: deque[socket.socket] = deque()
        self._taken = 0
        self.addresses = 1
        """Source addresses that the server has seen."""
        self._loop.add_reader(self._inner, self._forward)
        self._add("127.0.0.2")

    @property
    def address(self) -> tuple[str, int]:
        """Returns the address to which the client sends."""
        host, port = self._inner.getsockname()
        return host, port

    def close(self) -> None:
        """Releases the sockets."""
        for reader in (self._inner, *self._outer):
            self._loop.remove_reader(reader)
        for each in (self._inner, *self._outer, *self._silent):
            each.close()

    def _add(self, host: str) -> None:
        made = _bound(host)
        self._outer.append(made)
        self._loop.add_reader(made, self._back, made)
        if len(self._outer) > ADDRESSES_KEPT:
            oldest = self._outer.popleft()
            self._loop.remove_reader(oldest)
            oldest.close()

    def _forward(self) -> None:
        for data, client in _received(self._inner):
            self._client = client
            self._taken += 1
            with contextlib.suppress(BlockingIOError):
                self._source().sendto(data, self._server)

    def _source(self) -> socket.socket:
        if self._taken % self._every:
            return self._outer[-1]
        self.addresses += 1
        if not self._forged:
            self._add(_new_host())
            return self._outer[-1]
        self._silent.append(_bound(_new_host()))
        if len(self._silent) > ADDRESSES_KEPT:
            self._silent.popleft().close()
        return self._silent[-1]

    def _back(self, outer: socket.socket) -> None:
        for data, _ in _received(outer):
            if self._client is not None:
                with contextlib.suppress(BlockingIOError):
                    self._inner.sendto(data, self._client)


def _received(sock: socket.socket) -> Iterator[tuple[bytes, tuple[str, int]]]:
    """Returns the datagrams that wait at a socket, at most one iteration's share."""
    with contextlib.suppress(BlockingIOError):
        for _ in range(64):
            yield sock.recvfrom(65536)
