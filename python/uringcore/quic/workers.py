"""Several processes on one UDP port: ``PortGroup``.

Each process has its own socket (SO_REUSEPORT), and a small filter program in the kernel chooses the socket by
the connection ID of a datagram. So a connection stays with its process when the client's address changes, and
all first packets of a client reach one process. A group also has the keys that the processes share::

    def work(worker):
        async def main():
            server = await serve("", 0, configuration=..., create_protocol=..., workers=worker)
            await server.wait_closed()
        uringcore.run(main())

    if __name__ == "__main__":
        with PortGroup("::", 4433, workers=4) as group:
            group.run(work)

The parent keeps all sockets open, so the index of each socket in the kernel's array never changes. When a
process dies, the others answer the packets of its connections with stateless resets, so that clients
reconnect, and accept its share of new clients, until another process serves with this worker. A process that
closes its server, to end after its connections, sends new clients to the next worker by a Retry. Two
processes must not use one worker at once: each would get half of the packets. A program that starts processes
itself reports their states with :meth:`PortGroup.mark`.

A group does not share session tickets: for resumption and 0-RTT data across processes their configurations
need one :class:`~uringcore.quic.sessions.SharedSessionStore`.

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
from uringcore.quic._udp_sockets import bind_udp
from uringcore.quic._worker_process_group import ProcessGroup
from uringcore.quic._worker_states import ABSENT, ACCEPTING, ENDING, WorkerStates

__all__ = ["PortGroup", "PortWorker"]

_WORKERS_MAX = 255

_Socket = socket.socket


@dataclass(frozen=True)
class PortWorker:
    """One process's part of a :class:`PortGroup`.

    It is an argument for the target of ``multiprocessing.Process`` (fork, forkserver or spawn), with its
    socket. ``index`` counts from 0, ``count`` is the number of workers.
    """

    index: int
    count: int
    socket: socket.socket
    _stateless_reset_key: bytes = field(repr=False)
    _token_key: bytes = field(repr=False)
    _states: WorkerStates = field(repr=False)
    _parent: _Socket = field(repr=False)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Makes the sockets of a spawned process not inheritable, because its children would keep the port
        open."""
        self.__dict__.update(state)
        for sock in (self.socket, self._parent):
            sock.set_inheritable(False)

    @property
    def _place(self) -> tuple[int, int, int]:
        """The worker's index, the number of workers, and the descriptor of the file with their states."""
        return self.index, self.count, self._states.fileno()

    def _notify_serving(self) -> None:
        """Reports to :meth:`PortGroup.run` that this worker serves. ``serve(workers=...)`` calls it."""
        # The message has no reader if the program does not use `run`, or if the parent has died.
        with contextlib.suppress(BlockingIOError, ConnectionError):
            self._parent.send(bytes([self.index]))


class PortGroup:
    """A UDP port for ``workers`` processes.

    ``host`` and ``port`` are as for ``serve``; for port 0 the system chooses one, which :attr:`sockname` has.
    The keys are random by default. To keep them over a restart of the whole group, pass secrets of at least
    32 bytes. Groups on several addresses may share a ``stateless_reset_key``, groups on several machines may
    not; see :attr:`QuicConfiguration.stateless_reset_key
    <uringcore.quic._configuration_fields.ConfigurationFields>`.

    ``only_v6=True`` does not bind IPv4 for ``"::"``.

    Raises ``OSError`` when the port cannot be bound, and ``ValueError`` for a number of workers that is not
    from 1 to 255.
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
        self._news, sending = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
        )
        self._ends = [self._news, sending]
        self._states = WorkerStates(workers)
        try:
            for _ in range(workers):
                # The first socket binds the port exclusively. If another program had sockets on the port too,
                # datagrams would be steered to the wrong sockets.
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
            PortWorker(index, workers, sock, reset_key, token_key, self._states, sending)
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
        """Reports the state of a worker's process. :meth:`run` calls it.

        ``serving=False``: there is no process, and the others get its packets. ``accepting=False``: the
        process ends after its last connections, as after ``server.close()``. It keeps their packets, sends
        new clients to the next worker by a Retry, and gets no packets of workers without a process.

        Call it in the process that made the group, or in a process forked from that one.
        """
        state = (ACCEPTING if accepting else ENDING) if serving else ABSENT
        if self._states[index] != state:
            self._states[index] = state
            self._steer()

    def clear(self, index: int) -> None:
        """Drops datagrams that arrived for a worker without a process. Call it before a process begins."""
        _drop_received(self._sockets[index])

    def _steer(self) -> None:
        if len(self._sockets) == 1:
            # A single socket receives all datagrams without steering.
            return
        # Another process may change a state and steer in the meantime. So the states are read again until
        # they have not changed: the process that steers last has then used the newest states.
        states = None
        while states != (states := self._states.all()):
            steer_by_connection_id(self._sockets[0].fileno(), _socket_indexes(states))

    def run(
        self, target: Callable[..., object], *args: Any, context: BaseContext | None = None
    ) -> None:
        """Runs ``target(worker, *args)`` in a process for each worker, until all have returned.

        A process that fails is replaced, after a wait that doubles with each failure within ten seconds, up
        to 30 seconds; meanwhile the others answer for it. A process that returns is not replaced.

        SIGTERM and SIGINT send SIGTERM to every process, and end replacements. SIGHUP replaces the processes
        one after the other: a process gets SIGTERM; when it has ended and its successor serves, the next one
        follows. A successor that fails ends the round. A ``target`` that closes its server on SIGTERM and
        awaits ``wait_closed()`` loses no connection. It begins with the default action for SIGTERM, and
        ignores SIGINT and SIGHUP.

        ``context`` comes from ``multiprocessing.get_context``. Call it in the main thread.
        """
        chosen = multiprocessing.get_context() if context is None else context
        ProcessGroup(self._workers, target, args, chosen, self.mark, self._news).run()


def _socket_indexes(states: bytes) -> bytes:
    """Returns, for each place, the index of the socket that receives the packets of that place."""
    sockets = bytearray(range(len(states)))
    # If no process accepts new clients, they are steered to processes that are about to end and refuse them.
    # So a client fails at once instead of timing out.
    for state in (ACCEPTING, ENDING):
        if there := [index for index in sockets if states[index] == state]:
            absent = [index for index in sockets if states[index] == ABSENT]
            for number, index in enumerate(absent):
                sockets[index] = there[number % len(there)]
            break
    return bytes(sockets)


def _drop_received(sock: socket.socket) -> None:
    """Drops datagrams that arrived before the port was steered, because they may be for another worker.

    Drops at most as many as a full queue has, so that the loop ends although datagrams arrive.
    """
    for _ in range(_QUEUE_MAX):
        try:
            # MSG_DONTWAIT, because a worker's loop may have changed the socket's blocking mode.
            sock.recv(1, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return


_QUEUE_MAX = 4096
"The maximum number of datagrams that a socket's receive buffer may hold, if all have the smallest size."
