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

The parent holds all sockets open, so the place of each in the port's order never changes: a process
that dies is replaced by one with the same worker, and answers the packets of the lost connections
with stateless resets, so that clients connect anew at once. Two processes must not use one worker at
the same time: each would get half of the packets.

Session tickets are not in here: for resumption across processes give their configurations a shared
ticket key or store.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import secrets
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any

from uringcore._uringcore import steer_by_connection_id

__all__ = ["PortGroup", "PortWorker", "bind_udp"]

WORKERS_MAX = 255


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
        family, _, _, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE
        )[0]
        try:
            for _ in range(workers):
                self._sockets.append(bind_udp(family, address, True))
                address = self._sockets[0].getsockname()
            steer_by_connection_id(self._sockets[0].fileno(), workers)
        except BaseException:
            self.close()
            raise
        reset_key = secrets.token_bytes(32) if stateless_reset_key is None else stateless_reset_key
        token_key = secrets.token_bytes(64) if token_key is None else token_key
        self._workers = [
            PortWorker(index, workers, sock, reset_key, token_key)
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
        for sock in self._sockets:
            sock.close()

    def run(
        self, target: Callable[..., object], *args: Any, context: BaseContext | None = None
    ) -> None:
        """Runs ``target(worker, *args)`` in a process for each worker, until all have returned.

        A process that fails is replaced, after a wait that doubles each time it fails within ten
        seconds, up to 30 seconds. One that returns is not. SIGTERM and SIGINT go to every process as
        SIGTERM, and then none is replaced. ``context`` is one of ``multiprocessing.get_context``.
        Call it in the main thread.
        """
        chosen = multiprocessing.get_context() if context is None else context
        crew = [_Place(chosen, target, worker, args) for worker in self._workers]
        stopping = False

        def stop(signum: int, frame: FrameType | None) -> None:
            nonlocal stopping
            stopping = True
            for place in crew:
                place.terminate()

        with _handling((signal.SIGTERM, signal.SIGINT), stop):
            try:
                for place in crew:
                    place.start()
                while waiting := [place for place in crew if not place.is_done]:
                    if stopping:
                        # Whatever was started while the signal came.
                        stop(signal.SIGTERM, None)
                    _wait_for_one(waiting)
                    for place in waiting:
                        place.look(may_start=not stopping)
            finally:
                stop(signal.SIGTERM, None)


class _Place:
    """One worker's process, and the one that replaces it."""

    def __init__(
        self,
        context: BaseContext,
        target: Callable[..., object],
        worker: PortWorker,
        args: tuple[Any, ...],
    ) -> None:
        self._context = context
        self._target = target
        self._args = (worker, *args)
        self.process: BaseProcess | None = None
        self.is_done = False
        self.begin_at = 0.0
        self._began_at = 0.0
        self._delay = 0.0

    def start(self) -> None:
        self._began_at = time.monotonic()
        process: BaseProcess = self._context.Process(  # type: ignore[attr-defined]
            target=self._target, args=self._args
        )
        process.start()
        self.process = process

    def terminate(self) -> None:
        process = self.process
        if process is None:
            self.is_done = True
        elif process.is_alive():
            process.terminate()

    def look(self, may_start: bool) -> None:
        """Notices the process's end, and begins the next one when it is time."""
        if self.process is not None and not self.process.is_alive():
            self.process.join()
            failed = self.process.exitcode != 0
            self.process = None
            self.is_done = not (failed and may_start)
            lasted = time.monotonic() - self._began_at
            self._delay = min(30.0, max(0.25, self._delay * 2)) if lasted < 10 else 0.0
            self.begin_at = time.monotonic() + self._delay
        if self.process is None and not self.is_done and time.monotonic() >= self.begin_at:
            self.start()


def _wait_for_one(places: list[_Place]) -> None:
    """Until a process ends or one is to be begun; at most a second, so that no signal is missed."""
    sentinels = [place.process.sentinel for place in places if place.process is not None]
    waits = [place.begin_at - time.monotonic() for place in places if place.process is None]
    multiprocessing.connection.wait(sentinels, timeout=max(0.0, min([1.0, *waits])))


@contextlib.contextmanager
def _handling(
    signals: tuple[signal.Signals, ...], handler: Callable[[int, FrameType | None], None]
) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def bind_udp(family: int, address: tuple[Any, ...], reuse_port: bool) -> socket.socket:
    """A non-blocking UDP socket bound to ``address``; ``"::"`` takes IPv4 peers as well."""
    sock = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        if family == socket.AF_INET6:
            # As aioquic's sockets do; another address than "::" cannot.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(address[0] != "::"))
        if reuse_port:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(address)
    except OSError as exc:
        sock.close()
        raise OSError(exc.errno, f"error while binding to {address!r}: {exc.strerror}") from None
    return sock
