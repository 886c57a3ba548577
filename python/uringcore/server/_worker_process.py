"""One worker process of a supervised server: the parent's handle of it, and the slot it serves from.

A socket connects the two. The parent sends health checks and the command to retire; the worker answers,
and reports when it serves, when it has reached its number of requests and when it is about to end. The end
of the stream means that the other process is gone. _supervisor.py starts and stops workers.
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
from uringcore.server._startup_errors import STARTUP_FAILURE

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

# The messages on the socket between the supervisor and a worker. Each is one byte.
ASK, ANSWER, SERVING, USED_UP, ENDING, RETIRE = b"?", b"!", b"S", b"U", b"E", b"R"

# A terminal sends these signals to all processes. Only the supervisor handles them; workers ignore them.
FOR_THE_PARENT = (signal.SIGINT, signal.SIGHUP)


class Stoppable(Protocol):
    """The interface of a server that can be asked to stop."""

    def handle_exit(self, sig: int, frame: None) -> None: ...


class _Server(Stoppable, Protocol):
    """The interface of a server, as the worker's slot uses it."""

    def retire(self) -> None: ...


class Target(Protocol):
    """The interface of a server that runs in a child process until it is asked to stop."""

    def __call__(
        self, config: Config, sockets: list[socket.socket], slot: WorkerSlot
    ) -> object: ...


@dataclass
class WorkerSlot:
    """A worker process's connection to its supervisor, besides its TCP sockets."""

    places: Sequence[PortWorker]
    """The worker's place on each UDP port."""

    _channel: socket.socket = field(repr=False)
    _is_orphan: bool = False
    _server: _Server | None = None

    def take(self, config: Config) -> None:
        """From now on, messages of the supervisor are read and its end is detected."""
        threading.Thread(
            target=self._listen, args=(config,), name="uringcore-slot", daemon=True
        ).start()

    def keep_from_children(self, sockets: Iterable[socket.socket]) -> None:
        """Makes inherited sockets non-inheritable: a child program would keep the port open."""
        for sock in (self._channel, *sockets):
            sock.set_inheritable(False)

    def serving(self, server: _Server) -> None:
        """Reports that ``server`` accepts clients, and passes the supervisor's commands on to it."""
        self._server = server
        self._send(SERVING)

    def ending(self) -> None:
        """Reports that no new clients are accepted."""
        self._send(ENDING)

    def used_up(self) -> bool:
        """Reports the last request; the supervisor sends a command to retire when a successor serves."""
        self._send(USED_UP)
        return True

    @property
    def is_orphan(self) -> bool:
        """True if the supervisor ended without cleaning up."""
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
        # The supervisor may have ended, which the listening thread detects.
        with contextlib.suppress(OSError):
            self._channel.send(word)


def stop_orphan(config: Config, server: Stoppable | None) -> None:
    """Stops this child process as SIGTERM would, because its parent has died and cannot stop it."""
    if server is None:
        # The start-up may never complete. The worker serves no client yet, so it ends at once.
        config.remove_shared_folders()
        os._exit(STARTUP_FAILURE)
    server.handle_exit(signal.SIGTERM, None)


class Worker:
    """The supervisor's handle of a worker process.

    ``target`` runs there with ``config``, ``sockets`` and a :class:`WorkerSlot` with ``places``. Raises
    ``OSError`` if the process cannot be created.
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
        """True if the worker has reported that it serves."""
        self.is_leaving = False
        """True if the worker was asked to end."""
        self.began_at = time.monotonic()
        self._unanswered = 0
        self.channel, theirs = socket.socketpair()
        self.channel.setblocking(False)
        with theirs:
            self._process = SPAWN.Process(
                target=begin,
                args=(target, config, sockets, WorkerSlot(places, theirs), stdin_fileno()),
            )
            # multiprocessing's resource tracker is started before the signals are blocked, because its start
            # would unblock them.
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

    def read_messages(self) -> bytes:
        """Returns the worker's messages, a byte each; empty if the process is gone."""
        self._unanswered = 0
        try:
            return self.channel.recv(64)
        except BlockingIOError:
            return ANSWER
        except OSError:
            return b""

    def ask(self) -> int:
        """Sends a health check. Returns the number of previous checks without an answer."""
        self._unanswered += 1
        self._send(ASK)
        return self._unanswered - 1

    def retire(self) -> None:
        """Asks the worker to end. Other workers continue on its sockets."""
        self.is_leaving = True
        if self.is_serving:
            self._send(RETIRE)
        else:
            self._process.terminate()

    def stop(self, sig: signal.Signals = signal.SIGTERM) -> None:
        """Makes the worker end, by a signal."""
        self.is_leaving = True
        if self._process.is_alive():
            os.kill(self.pid, sig)

    def kill(self) -> None:
        """Kills the worker."""
        self._process.kill()

    def ended(self) -> None:
        """Releases the resources of a worker that has ended."""
        self._process.join()
        self.channel.close()

    def _send(self, word: bytes) -> None:
        # If the process has ended or does not read, the message is lost. The supervisor detects that
        # elsewhere.
        with contextlib.suppress(OSError):
            self.channel.send(word)


def begin(
    target: Target,
    config: Config,
    sockets: list[socket.socket],
    slot: WorkerSlot,
    stdin: int | None,
) -> None:
    """Runs in the child process."""
    for number in FOR_THE_PARENT:
        # A handler that does nothing, because programs that this process starts would inherit SIG_IGN.
        signal.signal(number, lambda sig, frame: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FOR_THE_PARENT)
    if stdin is not None:
        # multiprocessing closes the standard input of child processes, and debuggers need it, as in uvicorn.
        sys.stdin = os.fdopen(stdin)
    slot.keep_from_children([*sockets, *config.metrics_sockets, *config.web.redirect_sockets])
    slot.take(config)
    config.configure_logging()
    target(config, sockets, slot)


def stdin_fileno() -> int | None:
    try:
        return sys.stdin.fileno()
    except (AttributeError, OSError, ValueError):
        return None
