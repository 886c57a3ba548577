"""Several processes on one UDP port: ``PortGroup``.

The kernel gives each of them its own socket (SO_REUSEPORT), and a small filter program in the kernel
chooses the socket by the connection ID of a datagram. So a connection stays with its process when the
client's address changes, and a client's first packets all come to the same one. A group also has the
keys that the processes must share::

    def work(worker):
        async def main():
            server = await serve("", 0, configuration=..., create_protocol=..., workers=worker)
            await server.wait_closed()
        uringcore.run(main())

    if __name__ == "__main__":
        with PortGroup("::", 4433, workers=4) as group:
            group.run(work)

The parent holds all sockets open, so the place of each in the port's order never changes. When a
process dies the others stand in for it at once: they answer the packets of its lost connections with
stateless resets, so that clients connect anew, and take its share of new ones, until another process
serves with the same worker. One that closes its server, to end when its connections have, sends new
clients on to the next by a Retry. Two processes must not use one worker at the same time: each would get
half of the packets. A program that starts processes by itself says what has become of them with
:meth:`PortGroup.mark`.

Session tickets are not in here: for resumption and 0-RTT data across processes give their
configurations one :class:`~uringcore.quic.sessions.SharedSessionStore`.

Packets with connection IDs of another worker, which may arrive while a port is set up, are dropped before
they are read.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import secrets
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.context import BaseContext
from typing import Any

from uringcore._uringcore import steer_by_connection_id
from uringcore.quic._place_states import ABSENT, ACCEPTING, ENDING, PlaceStates
from uringcore.quic._process_group import ProcessGroup
from uringcore.quic._sockets import bind_udp

__all__ = ["PortGroup", "PortWorker"]

_WORKERS_MAX = 255

_Socket = socket.socket


@dataclass(frozen=True)
class PortWorker:
    """One process's part of a :class:`PortGroup`.

    Goes to a child process as an argument of ``multiprocessing.Process``, by fork, forkserver or
    spawn; the socket goes along.
    """

    index: int
    count: int
    socket: socket.socket
    stateless_reset_key: bytes = field(repr=False)
    token_key: bytes = field(repr=False)
    _states: PlaceStates = field(repr=False)
    _parent: _Socket = field(repr=False)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """In a spawned process, which has its sockets inheritable: its children would keep the port."""
        self.__dict__.update(state)
        for sock in (self.socket, self._parent):
            sock.set_inheritable(False)

    @property
    def place(self) -> tuple[int, int, int]:
        """The place, how many there are, and the descriptor of the file with the state of each."""
        return self.index, self.count, self._states.fileno()

    def tell_serving(self) -> None:
        """Tells :meth:`PortGroup.run` that packets are received; ``serve(workers=...)`` does it."""
        # Nobody listens if the program does not use `run`, or when the parent is dead.
        with contextlib.suppress(BlockingIOError, ConnectionError):
            self._parent.send(bytes([self.index]))


class PortGroup:
    """A UDP port for ``workers`` processes.

    ``host`` and ``port`` are as for ``serve``; with port 0 the system chooses, and :attr:`sockname`
    tells. The keys are made at random unless given: to keep them over a restart of the whole group,
    give 32 bytes each and keep them secret. Groups on several addresses may have one
    ``stateless_reset_key``, groups on several machines may not, as
    :attr:`QuicConfiguration.stateless_reset_key <uringcore.quic._fields.ConfigurationFields>` explains.

    ``only_v6``: ``"::"`` leaves IPv4 to others.

    Raises ``OSError`` when the port cannot be bound, ``ValueError`` for a number of workers that is
    not from 1 to 255.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        workers: int,
        stateless_reset_key: bytes | None = None,
        token_key: bytes | None = None,
        only_v6: bool = False,
    ) -> None:
        if not 1 <= workers <= _WORKERS_MAX:
            raise ValueError(f"workers: must be from 1 to {_WORKERS_MAX}, not {workers}")
        self._sockets: list[socket.socket] = []
        family, _, _, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE
        )[0]
        self._news, told = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
        )
        self._ends = [self._news, told]
        self._states = PlaceStates(workers)
        try:
            for _ in range(workers):
                # The first has the port for itself: with another program's sockets among its own, the
                # port would be steered to the wrong ones.
                is_further = bool(self._sockets)
                sock = bind_udp(family, address, reuse_port=is_further, only_v6=only_v6)
                self._sockets.append(sock)
                if not is_further:
                    address = sock.getsockname()
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            self._steer()
            for sock in self._sockets:
                _drop_received(sock)
        except BaseException:
            self.close()
            raise
        reset_key = secrets.token_bytes(32) if stateless_reset_key is None else stateless_reset_key
        token_key = secrets.token_bytes(64) if token_key is None else token_key
        self._workers = [
            PortWorker(index, workers, sock, reset_key, token_key, self._states, told)
            for index, sock in enumerate(self._sockets)
        ]

    @property
    def sockname(self) -> Any:
        """The address that all workers are bound to."""
        return self._sockets[0].getsockname()

    def __len__(self) -> int:
        return len(self._workers)

    def __iter__(self) -> Iterator[PortWorker]:
        return iter(self._workers)

    def __getitem__(self, index: int) -> PortWorker:
        return self._workers[index]

    def __enter__(self) -> PortGroup:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the parent's sockets. The port is free when the workers have closed theirs."""
        for sock in [*self._sockets, *self._ends]:
            sock.close()
        self._states.close()

    def mark(self, index: int, *, serving: bool, accepting: bool = True) -> None:
        """Says whether there is a process for a worker; :meth:`run` does it by itself.

        While there is none the others get its packets. Do not say so of a process that lets its last
        connections end after ``server.close()``: it needs them, and sends new clients on by itself,
        to the worker with the next index. With ``accepting=False`` it stands in for nobody any more,
        so new clients find their way if that worker's place is empty, or takes new ones.
        Call it in the process that made the group, or in one that it has forked.
        """
        state = (ACCEPTING if accepting else ENDING) if serving else ABSENT
        if self._states[index] != state:
            self._states[index] = state
            self._steer()

    def clear(self, index: int) -> None:
        """Forgets what has come for a worker while there was nobody. Call it before a process begins."""
        _drop_received(self._sockets[index])

    def _steer(self) -> None:
        if len(self._sockets) == 1:
            # It gets everything, and the kernel steers only among several.
            return
        # Another process may do the same: whoever is last has seen what all have written.
        states = None
        while states != (states := self._states.all()):
            steer_by_connection_id(self._sockets[0].fileno(), _stand_ins(states))

    def run(
        self, target: Callable[..., object], *args: Any, context: BaseContext | None = None
    ) -> None:
        """Runs ``target(worker, *args)`` in a process for each worker, until all have returned.

        A process that fails is replaced, after a wait that doubles each time it fails within ten
        seconds, up to 30 seconds; meanwhile the others stand in for it. One that returns is not
        replaced.

        SIGTERM and SIGINT go to every process as SIGTERM, and then none is replaced. SIGHUP replaces
        them one after the other: a process gets SIGTERM, and when it has ended and its successor
        serves, it is the next one's turn; a successor that fails ends the round. So a ``target`` that
        closes its server on SIGTERM and awaits ``wait_closed()`` loses no connection. It begins with
        SIGTERM as the system has it, and SIGINT and SIGHUP ignored.

        ``context`` is one of ``multiprocessing.get_context``. Call it in the main thread.
        """
        chosen = multiprocessing.get_context() if context is None else context
        ProcessGroup(self._workers, target, args, chosen, self.mark, self._news).run()


def _stand_ins(states: bytes) -> bytes:
    """For each place the one whose socket gets its packets."""
    sockets = bytearray(range(len(states)))
    # Where nobody takes new clients, those that are about to end refuse them: better than silence.
    for state in (ACCEPTING, ENDING):
        if there := [index for index in sockets if states[index] == state]:
            absent = [index for index in sockets if states[index] == ABSENT]
            for turn, index in enumerate(absent):
                sockets[index] = there[turn % len(there)]
            break
    return bytes(sockets)


def _drop_received(sock: socket.socket) -> None:
    """What came before the port was steered, and may be another worker's.

    No more than a socket's queue is, so that one that fills up meanwhile keeps nobody here.
    """
    for _ in range(_QUEUE_MAX):
        try:
            # Whether it blocks is the socket's own, which a worker's loop has had.
            sock.recv(1, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return


_QUEUE_MAX = 4096
"Datagrams that a socket's receive buffer may hold, of the least size that the kernel counts."
