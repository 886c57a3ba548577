"""One worker process of a supervised server: the parent's handle of it, and the slot it serves from.

Between them is a socket: the parent asks whether the worker lives and tells it to retire, the worker
answers, and says when it serves, when it has served enough and when it is about to end. The socket's
end means that the other side is gone. When workers begin and end is _supervisor.py's.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from typing import Protocol

from uringcore.quic.workers import PortWorker
from uringcore.server._config import Config
from uringcore.server._startup import STARTUP_FAILURE

__all__ = [
    "ENDING",
    "SERVING",
    "USED_UP",
    "Stoppable",
    "Target",
    "Worker",
    "WorkerSlot",
    "stop_orphan",
]

SPAWN = multiprocessing.get_context("spawn")

# What goes over the socket, a byte each.
ASK, ANSWER, SERVING, USED_UP, ENDING, RETIRE = b"?", b"!", b"S", b"U", b"E", b"R"

# They are the supervisor's to understand, also when a terminal sends them to all its processes.
FOR_THE_PARENT = (signal.SIGINT, signal.SIGHUP)


class Stoppable(Protocol):
    """A server that can be asked to stop."""

    def handle_exit(self, sig: int, frame: None) -> None: ...


class _Server(Stoppable, Protocol):
    """The methods of a server that its slot calls."""

    def retire(self) -> None: ...


class Target(Protocol):
    """Serves in a child process, until it is told to stop."""

    def __call__(
        self, config: Config, sockets: list[socket.socket], slot: WorkerSlot
    ) -> object: ...


@dataclass
class WorkerSlot:
    """What a worker process has from its supervisor besides TCP sockets."""

    places: Sequence[PortWorker]
    """Its part of each UDP port."""

    _channel: socket.socket = field(repr=False)
    _is_orphan: bool = False
    _server: _Server | None = None

    def take(self, config: Config) -> None:
        """From now on the supervisor's end is noticed, and what it says heard."""
        threading.Thread(
            target=self._listen, args=(config,), name="uringcore-slot", daemon=True
        ).start()

    def keep_from_children(self, sockets: Iterable[socket.socket]) -> None:
        """What this process was spawned with goes no further: a program started here would keep the port."""
        for sock in (self._channel, *sockets):
            sock.set_inheritable(False)

    def serving(self, server: _Server) -> None:
        """``server`` takes clients from now on; and does what the supervisor says."""
        self._server = server
        self._send(SERVING)

    def ending(self) -> None:
        """No new clients are taken any more."""
        self._send(ENDING)

    def used_up(self) -> bool:
        """The supervisor tells it to retire when its successor serves."""
        self._send(USED_UP)
        return True

    @property
    def is_orphan(self) -> bool:
        """True if the supervisor has gone, without a chance to clean up."""
        return self._is_orphan

    def _listen(self, config: Config) -> None:
        while True:
            try:
                word = self._channel.recv(1)
            except OSError:
                word = b""
            if word == ASK:
                self._send(ANSWER)
            elif word == RETIRE and self._server is not None:
                self._server.retire()
            else:
                self._is_orphan = True
                stop_orphan(config, self._server)
                return

    def _send(self, word: bytes) -> None:
        # Nobody is there to hear: the listening thread finds out.
        with contextlib.suppress(OSError):
            self._channel.send(word)


def stop_orphan(config: Config, server: Stoppable | None) -> None:
    """Stops this child process, whose parent is gone, as by SIGTERM: nobody else would stop it."""
    if server is None:
        # Start-up may never end, and nobody is served by it.
        config.remove_shared_folders()
        os._exit(STARTUP_FAILURE)
    server.handle_exit(signal.SIGTERM, None)


class Worker:
    """A worker process, as its supervisor sees it.

    ``target`` runs there with ``config``, ``sockets`` and a :class:`WorkerSeat` with ``places``. Raises
    ``OSError`` when there can be no such process.
    """

    def __init__(
        self,
        target: Target,
        config: Config,
        sockets: list[socket.socket],
        places: Sequence[PortWorker],
    ) -> None:
        self.places = places
        self.is_serving = False
        """True if it has said so."""
        self.is_leaving = False
        """True if it was told to end."""
        self.began_at = time.monotonic()
        self._unanswered = 0
        self.channel, theirs = socket.socketpair()
        self.channel.setblocking(False)
        with theirs:
            self._process = SPAWN.Process(
                target=begin,
                args=(target, config, sockets, WorkerSlot(places, theirs), stdin_fileno()),
            )
            # It would let signals through while it starts.
            resource_tracker.ensure_running()
            before = signal.pthread_sigmask(signal.SIG_BLOCK, FOR_THE_PARENT)
            try:
                self._process.start()
            except BaseException:
                self.channel.close()
                raise
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def exitcode(self) -> int | None:
        return self._process.exitcode

    def hear(self) -> bytes:
        """What the process has said, word by word; empty: it is gone."""
        self._unanswered = 0
        try:
            return self.channel.recv(64)
        except BlockingIOError:
            return ANSWER
        except OSError:
            return b""

    def ask(self) -> int:
        """Wants to hear from the process; how often it was asked in vain."""
        self._unanswered += 1
        self._send(ASK)
        return self._unanswered - 1

    def retire(self) -> None:
        """Has it end while others go on with its sockets."""
        self.is_leaving = True
        if self.is_serving:
            self._send(RETIRE)
        else:
            self._process.terminate()

    def stop(self, sig: signal.Signals = signal.SIGTERM) -> None:
        """Has it end."""
        self.is_leaving = True
        if self._process.is_alive():
            os.kill(self.pid, sig)

    def kill(self) -> None:
        """Ends it."""
        self._process.kill()

    def ended(self) -> None:
        """Lets go of a process that has ended."""
        self._process.join()
        self.channel.close()

    def _send(self, word: bytes) -> None:
        # One that is gone, or reads nothing, is found out by the supervisor.
        with contextlib.suppress(OSError):
            self.channel.send(word)


def begin(
    target: Target,
    config: Config,
    sockets: list[socket.socket],
    slot: WorkerSlot,
    stdin: int | None,
) -> None:
    """In the child."""
    for number in FOR_THE_PARENT:
        # Not SIG_IGN, which the programs that this one starts would inherit.
        signal.signal(number, lambda sig, frame: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FOR_THE_PARENT)
    if stdin is not None:
        # For debuggers, as uvicorn does it: multiprocessing gives children none.
        sys.stdin = os.fdopen(stdin)
    slot.keep_from_children([*sockets, *config.metrics_sockets])
    slot.take(config)
    config.configure_logging()
    target(config, sockets, slot)


def stdin_fileno() -> int | None:
    try:
        return sys.stdin.fileno()
    except (AttributeError, OSError, ValueError):
        return None
