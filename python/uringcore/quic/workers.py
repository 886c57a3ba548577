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
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import secrets
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any

from uringcore._uringcore import steer_by_connection_id
from uringcore.quic.sockets import bind_udp

__all__ = ["PortGroup", "PortWorker"]

WORKERS_MAX = 255

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
    _parent: _Socket = field(repr=False)

    def tell_serving(self) -> None:
        """Tells :meth:`PortGroup.run` that packets are received; ``serve(workers=...)`` does it."""
        # Nobody listens if the program does not use `run`, or when the parent is dead.
        with contextlib.suppress(BlockingIOError, ConnectionError):
            self._parent.send(bytes([self.index]))


class PortGroup:
    """A UDP port for ``workers`` processes.

    ``host`` and ``port`` are as for ``serve``; with port 0 the system chooses, and :attr:`sockname`
    tells. The keys are made at random unless given: to keep them over a restart of the whole group,
    give 32 bytes each and keep them secret.

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
    ) -> None:
        if not 1 <= workers <= WORKERS_MAX:
            raise ValueError(f"workers: must be from 1 to {WORKERS_MAX}, not {workers}")
        self._sockets: list[socket.socket] = []
        self._serving = [True] * workers
        family, _, _, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE
        )[0]
        self._news, told = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
        )
        self._ends = [self._news, told]
        try:
            for _ in range(workers):
                self._sockets.append(bind_udp(family, address, reuse_port=True))
                address = self._sockets[0].getsockname()
            self._steer()
            for sock in self._sockets:
                _drop_received(sock)
        except BaseException:
            self.close()
            raise
        reset_key = secrets.token_bytes(32) if stateless_reset_key is None else stateless_reset_key
        token_key = secrets.token_bytes(64) if token_key is None else token_key
        self._workers = [
            PortWorker(index, workers, sock, reset_key, token_key, told)
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

    def mark(self, index: int, *, serving: bool) -> None:
        """Says whether there is a process for a worker; :meth:`run` does it by itself.

        While there is none the others get its packets. Do not say so of a process that lets its last
        connections end after ``server.close()``: it needs them, and sends new clients on by itself.
        Call it in the process that made the group.
        """
        if self._serving[index] != serving:
            self._serving[index] = serving
            self._steer()

    def _steer(self) -> None:
        sockets = bytearray(range(len(self._serving)))
        there = [index for index in sockets if self._serving[index]]
        for index in range(len(sockets)):
            if there and not self._serving[index]:
                sockets[index] = there[index % len(there)]
        steer_by_connection_id(self._sockets[0].fileno(), bytes(sockets))

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
        crew = [_Place(self, chosen, target, worker, args) for worker in self._workers]
        turns: deque[_Place] = deque()
        stopping = False

        def stop(signum: int, frame: FrameType | None) -> None:
            nonlocal stopping
            stopping = True
            for place in crew:
                place.terminate()

        def replace(signum: int, frame: FrameType | None) -> None:
            turns.clear()
            turns.extend(crew)

        with _handling({signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGHUP: replace}):
            try:
                for place in crew:
                    place.start()
                while waiting := [place for place in crew if not place.is_done]:
                    if stopping:
                        # Whatever was started while the signal came.
                        stop(signal.SIGTERM, None)
                    elif turns:
                        # What a process told before the signal came counts.
                        self._hear(crew)
                        if any(place.is_failing for place in waiting):
                            turns.clear()
                        elif all(place.is_settled for place in waiting):
                            turns.popleft().replace()
                    _wait_for_one(waiting, self._news)
                    # Who has ended now has told all that it will tell, before its successor begins.
                    for place in waiting:
                        place.notice()
                    self._hear(crew)
                    for place in waiting:
                        place.look(may_start=not stopping)
            finally:
                stop(signal.SIGTERM, None)

    def _hear(self, crew: list[_Place]) -> None:
        for index in _received(self._news):
            crew[index].serves()


class _Place:
    """One worker's process, and the one that replaces it."""

    def __init__(
        self,
        group: PortGroup,
        context: BaseContext,
        target: Callable[..., object],
        worker: PortWorker,
        args: tuple[Any, ...],
    ) -> None:
        self._group = group
        self._index = worker.index
        self._context = context
        self._args = (target, worker, *args)
        self.process: BaseProcess | None = None
        self.is_done = False
        self.begin_at = 0.0
        self._began_at = 0.0
        self._delay = 0.0
        self._tells = False
        self._is_serving = False
        self._is_replaced = False
        self._has_ended = False

    @property
    def is_settled(self) -> bool:
        """Whether it is another place's turn to be replaced."""
        return not self._is_replaced and (self._is_serving or not self._tells)

    @property
    def is_failing(self) -> bool:
        """Whether the last process failed soon, and no other has served since."""
        return self._delay > 0 and not self._is_serving

    def start(self) -> None:
        self._began_at = time.monotonic()
        if not self._tells:
            # Its target may have another way to serve than those that tell.
            self._group.mark(self._index, serving=True)
        process: BaseProcess = self._context.Process(  # type: ignore[attr-defined]
            target=_begin, args=self._args
        )
        process.start()
        self.process = process

    def serves(self) -> None:
        """The process has said so."""
        self._tells = True
        if self.process is not None and not self._is_replaced:
            self._is_serving = True
            self._group.mark(self._index, serving=True)

    def terminate(self) -> None:
        process = self.process
        if process is None:
            self.is_done = True
        elif process.is_alive():
            process.terminate()

    def replace(self) -> None:
        """Has the process end, and another one begin, whatever it returns."""
        if self.process is not None:
            self._is_replaced = True
            self.process.terminate()

    def notice(self) -> None:
        """Sees whether the process has ended."""
        self._has_ended = self.process is not None and not self.process.is_alive()

    def look(self, may_start: bool) -> None:
        """Settles the end that was noticed, and begins the next process when it is time."""
        if self.process is not None and self._has_ended:
            self._has_ended = False
            self.process.join()
            if may_start:
                self._group.mark(self._index, serving=False)
            self._end(failed=self.process.exitcode != 0, may_start=may_start)
        if self.process is None and not self.is_done and time.monotonic() >= self.begin_at:
            self.start()

    def _end(self, failed: bool, may_start: bool) -> None:
        replaced, self._is_replaced = self._is_replaced, False
        self.process = None
        self._is_serving = False
        self.is_done = not ((failed or replaced) and may_start)
        lasted = time.monotonic() - self._began_at
        is_hasty = lasted < 10 and not replaced
        self._delay = min(30.0, max(0.25, self._delay * 2)) if is_hasty else 0.0
        self.begin_at = time.monotonic() + self._delay


def _begin(target: Callable[..., object], worker: PortWorker, *args: Any) -> None:
    """In the child: a forked one has the parent's handlers, which are about the parent's children."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # A terminal sends them to all; what they mean here is the parent's to say.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    target(worker, *args)


def _wait_for_one(places: list[_Place], news: socket.socket) -> None:
    """Until a process ends, has something to tell or is to be begun; at most a second, so that no
    signal is missed."""
    sentinels = [place.process.sentinel for place in places if place.process is not None]
    waits = [place.begin_at - time.monotonic() for place in places if place.process is None]
    multiprocessing.connection.wait([news, *sentinels], timeout=max(0.0, min([1.0, *waits])))


def _received(news: socket.socket) -> Iterator[int]:
    while True:
        try:
            yield news.recv(1)[0]
        except BlockingIOError:
            return


def _drop_received(sock: socket.socket) -> None:
    """What came before the port was steered, and may be another worker's.

    No more than a socket's queue is, so that one that fills up meanwhile keeps nobody here.
    """
    for _ in range(_QUEUE_MAX):
        try:
            sock.recv(1)
        except BlockingIOError:
            return


@contextlib.contextmanager
def _handling(
    handlers: Mapping[signal.Signals, Callable[[int, FrameType | None], None]],
) -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in handlers}
    try:
        for number, handler in handlers.items():
            # Who has the hang-up ignored (nohup) wants it so.
            if number != signal.SIGHUP or before[number] != signal.SIG_IGN:
                signal.signal(number, handler)
        yield
    finally:
        for number, old in before.items():
            # None is a handler that Python has not set and cannot set again.
            if old is not None:
                signal.signal(number, old)


_QUEUE_MAX = 4096
"Datagrams that a socket's receive buffer may hold, of the least size that the kernel counts."
