"""The parent process of several workers: it owns the sockets and keeps the configured number of workers.

_worker_process.py implements a worker and its channel, and _shared_udp_ports.py assigns places on UDP ports.
Signals and log lines are those of uvicorn's supervisor.

uvicorn's supervisor has no notion of a worker that serves, or of the worker that a packet belongs to, so
this one replaces it. Generations overlap: a new worker has a separate place on the UDP port and serves
before an old one retires, so no client is refused. A place is taken only between two empty ones: a retiring
worker sends new clients to the next place by a Retry, and a serving worker answers for it there. A
retiring worker answers requests on TCP connections with ``connection: close`` for as long as keep-alive
lasts, because a request may arrive on an idle connection at any moment; only then idle connections are
closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Coroutine
from typing import Any

from uringcore.server._config import Config
from uringcore.server._credential_reload import reload_keys
from uringcore.server._listening_sockets import ServerSockets, close_metrics
from uringcore.server._shared_udp_ports import WORKERS_MAX, Ports
from uringcore.server._startup_errors import STARTUP_FAILURE
from uringcore.server._terminal_detection import has_terminal
from uringcore.server._worker_process import ENDING, SERVING, USED_UP, Target, Worker

__all__ = ["Supervisor"]

logger = logging.getLogger("uvicorn.error")

# If a worker ends within this number of seconds after its start, the start of the next worker is delayed.
SHORT_LIFE_SECONDS = 10.0
DELAY_SECONDS_MIN, DELAY_SECONDS_MAX = 0.25, 30.0

# Seconds between two health checks.
ASK_SECONDS = 1.0
ANSWER_SECONDS_MAX = 5


class Supervisor:
    """Runs ``target`` in ``config.workers`` processes on ``sockets``, until a signal ends it.

    A worker that ends is replaced, at once if it has served for a while; the others answer for it until then.
    SIGHUP reads the files of the keys again and replaces all workers, one after the other: the new one
    serves before the old one retires. If a new
    one fails to start, the round ends. SIGTTIN and SIGTTOU change the number of workers by one. SIGTERM and
    SIGINT stop all of them gracefully, a second SIGINT at once, and a third kills them.
    """

    def __init__(self, config: Config, sockets: ServerSockets, target: Target) -> None:
        self._config = config
        self._sockets = sockets.tcp
        self._target = target
        self._ports = Ports(self._shared(sockets), config, workers=config.workers)
        self._count = config.workers
        # Workers that start or serve, oldest first. Workers that were told to end are in another list.
        self._workers_now: list[Worker] = []
        self._leaving: list[Worker] = []
        self._status = 0
        self._is_stopping = False
        self._is_hurried = False
        self._delay = 0.0
        self._fates: dict[Worker, asyncio.Future[bool]] = {}
        self._has_ended = asyncio.Event()
        self._later: asyncio.TimerHandle | None = None
        self._replacements: set[asyncio.Task[object]] = set()
        self._round: asyncio.Task[object] | None = None
        self._had_terminal = has_terminal()

    def run(self) -> None:
        """Runs until all workers have ended. Raises ``SystemExit`` with status 3 if none can start."""
        # asyncio's loop is used, because nothing here is performance-critical, and the process stays smaller.
        loop = asyncio.SelectorEventLoop()
        try:
            loop.run_until_complete(self._run())
        finally:
            loop.close()
        if self._status:
            sys.exit(self._status)

    def _shared(self, sockets: ServerSockets) -> list[socket.socket]:
        """Returns the UDP sockets whose ports all workers share, and makes the keys that they share."""
        config = self._config
        is_given = config.http3_fd is not None or (sockets.are_given and config.http3_port is None)
        if config.http3 and is_given:
            logger.warning(
                "HTTP/3 is off: several workers cannot share a UDP socket that is given; "
                "--http3-port makes one for each."
            )
            config.http3 = False
        if config.http3 and config.workers > WORKERS_MAX:
            logger.warning("HTTP/3 is off: it takes at most --workers %d.", WORKERS_MAX)
            config.http3 = False
        if not config.http3:
            return []
        config.keys.share()
        config.share_sessions()
        return sockets.udp

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        handlers = {
            signal.SIGCHLD: self._children_ended,
            signal.SIGHUP: self._hang_up,
            signal.SIGINT: self._interrupt,
            signal.SIGTERM: self._terminate,
            signal.SIGTTIN: self._more,
            signal.SIGTTOU: self._fewer,
        }
        if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
            # SIGHUP is ignored under nohup, and stays ignored.
            del handlers[signal.SIGHUP]
        logger.info("Started parent process [%d]", os.getpid())
        try:
            for number, handler in handlers.items():
                loop.add_signal_handler(number, handler)
            self._fill()
            self._tick()
            while self._all_workers or not self._is_stopping:
                self._has_ended.clear()
                await self._has_ended.wait()
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)
            for worker in self._all_workers:
                worker.kill()
                worker.ended()
            self._ports.close()
        logger.info("Stopping parent process [%d]", os.getpid())

    @property
    def _all_workers(self) -> list[Worker]:
        return [*self._workers_now, *self._leaving]

    # Workers begin ---------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Starts the missing workers."""
        self._later = None
        while (
            not self._is_stopping and len(self._workers_now) < self._count and self._ports.have_room
        ):
            if self._begin() is None:
                self._fill_later(DELAY_SECONDS_MAX)
                return

    def _fill_later(self, delay: float) -> None:
        if self._later is None:
            self._later = asyncio.get_running_loop().call_later(delay, self._fill)

    def _begin(self) -> Worker | None:
        """Starts a worker. Logs an error and returns ``None`` if the system cannot create a process."""
        places = self._ports.take(is_first=not self._workers_now)
        try:
            worker = Worker(self._target, self._config, self._sockets, places)
        except BaseException as exc:
            self._ports.give_back(places)
            if not isinstance(exc, OSError):
                raise
            logger.error("A worker process cannot be started: %s", exc.strerror or exc)
            return None
        loop = asyncio.get_running_loop()
        loop.add_reader(worker.channel, self._read_messages, worker)
        self._fates[worker] = loop.create_future()
        self._workers_now.append(worker)
        return worker

    def _read_messages(self, worker: Worker) -> None:
        messages = worker.read_messages()
        if not messages:
            # The process has ended, which SIGCHLD reports.
            asyncio.get_running_loop().remove_reader(worker.channel)
        if SERVING in messages:
            worker.is_serving = True
            self._ports.mark(worker.places, accepting=not worker.is_leaving)
            self._settle(worker, True)
        if USED_UP in messages:
            self._replace_soon(self._replace_used_up(worker))
        if ENDING in messages and worker in self._workers_now:
            # The worker has reported that it stops, because another process has sent it a signal.
            self._mark_leaving(worker)
            self._fill()

    def _settle(self, worker: Worker, has_served: bool) -> None:
        fate = self._fates.pop(worker, None)
        if fate is not None and not fate.done():
            fate.set_result(has_served)

    # and end ---------------------------------------------------------------------------------------

    def _mark_leaving(self, worker: Worker) -> None:
        """Moves a worker to the list of workers that accept no new clients."""
        worker.is_leaving = True
        self._workers_now.remove(worker)
        self._leaving.append(worker)
        if worker.is_serving:
            self._ports.mark(worker.places, accepting=False)
        else:
            # uvicorn handles a signal only after start-up, which may never complete, so the worker has a time
            # limit.
            limit = self._config.timeout_graceful_shutdown or 0
            asyncio.get_running_loop().call_later(limit, self._give_up, worker)

    def _give_up(self, worker: Worker) -> None:
        if worker in self._leaving and not worker.is_serving:
            logger.error("Child process [%d] is still starting and is killed", worker.pid)
            worker.kill()

    def _children_ended(self) -> None:
        """Handles SIGCHLD."""
        for worker in self._all_workers:
            if worker.exitcode is not None:
                self._end(worker)
        if os.getpid() == 1:
            reap_orphans({worker.pid for worker in self._all_workers})

    def _end(self, worker: Worker) -> None:
        asyncio.get_running_loop().remove_reader(worker.channel)
        worker.ended()
        self._ports.give_back(worker.places)
        self._has_ended.set()
        if worker in self._leaving:
            self._leaving.remove(worker)
            self._settle(worker, False)
            return
        self._workers_now.remove(worker)
        self._settle(worker, False)
        if worker.is_serving:
            logger.error("Child process [%d] died (%s)", worker.pid, how_it_ended(worker))
        elif not any(one.is_serving for one in self._workers_now):
            # Another worker would fail for the same reason, for example because the application cannot be
            # imported.
            logger.error(
                "Child process [%d] failed to start, stopping the parent process.", worker.pid
            )
            self._status = STARTUP_FAILURE
            self._stop()
            return
        else:
            logger.error(
                "Child process [%d] failed to start (%s)", worker.pid, how_it_ended(worker)
            )
        was_short = time.monotonic() - worker.began_at < SHORT_LIFE_SECONDS
        doubled = min(DELAY_SECONDS_MAX, max(DELAY_SECONDS_MIN, self._delay * 2))
        self._delay = doubled if was_short else 0.0
        self._fill_later(self._delay)

    def _tick(self) -> None:
        asyncio.get_running_loop().call_later(ASK_SECONDS, self._tick)
        # Older versions of uvicorn have no such option.
        limit = getattr(self._config, "timeout_worker_healthcheck", ANSWER_SECONDS_MAX)
        for worker in self._all_workers:
            if worker.is_serving and worker.ask() * ASK_SECONDS > limit:
                logger.error("Child process [%d] does not answer and is killed", worker.pid)
                worker.kill()

    # Signals -----------------------------------------------------------------------------------------

    def _interrupt(self) -> None:
        logger.info("Received SIGINT, exiting.")
        if self._is_stopping:
            for worker in self._all_workers:
                if self._is_hurried or not worker.is_serving:
                    worker.kill()
                else:
                    worker.stop(signal.SIGINT)
            self._is_hurried = True
        self._stop()

    def _terminate(self) -> None:
        logger.info("Received SIGTERM, exiting.")
        self._stop()

    def _stop(self) -> None:
        self._is_stopping = True
        self._has_ended.set()
        for replacement in self._replacements:
            replacement.cancel()
        for worker in list(self._workers_now):
            self._mark_leaving(worker)
            worker.stop()
        # The parent closes its copies of the sockets. Otherwise the kernel would accept clients until the
        # last worker has ended, and they would get no answer.
        for sock in self._sockets:
            sock.close()
        close_metrics(self._config)

    def _hang_up(self) -> None:
        if self._had_terminal and not has_terminal():
            logger.info("The terminal is gone, exiting.")
            self._stop()
        elif not self._is_stopping:
            logger.info("Received SIGHUP, restarting processes.")
            reload_keys(self._config, None)
            if self._round is not None:
                self._round.cancel()
            self._round = self._replace_soon(self._replace_all())

    def _replace_soon(self, what: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
        task = asyncio.get_running_loop().create_task(what)
        self._replacements.add(task)
        task.add_done_callback(self._replacements.discard)
        return task

    async def _replace_all(self) -> None:
        for old in list(self._workers_now):
            if old in self._workers_now and not await self._replace(old):
                logger.error("The restart has ended; the running processes continue.")
                return

    async def _replace_used_up(self, worker: Worker) -> None:
        """Replaces a worker that has reached its number of requests; it serves until a new one does."""
        delay = DELAY_SECONDS_MIN
        while worker in self._workers_now and not await self._replace(worker):
            await asyncio.sleep(delay)
            delay = min(DELAY_SECONDS_MAX, delay * 2)

    async def _replace(self, old: Worker) -> bool:
        """Starts a worker in place of ``old``, which ends when the new one serves. Returns False if the new
        one fails to start."""
        while not self._ports.have_room:
            self._has_ended.clear()
            await self._has_ended.wait()
        new = self._begin()
        if new is None:
            return False
        try:
            return await self._fates[new]
        finally:
            # The cancellation may have come at the moment in which the new worker began to serve.
            if new in self._workers_now and (
                not new.is_serving or len(self._workers_now) > self._count
            ):
                unwanted = new if not new.is_serving else old
                self._retire(unwanted if unwanted in self._workers_now else self._workers_now[0])

    def _retire(self, worker: Worker) -> None:
        self._mark_leaving(worker)
        worker.retire()

    def _more(self) -> None:
        logger.info("Received SIGTTIN, increasing the number of processes.")
        self._count += 1
        self._fill()

    def _fewer(self) -> None:
        logger.info("Received SIGTTOU, decreasing number of processes.")
        if self._count <= 1:
            logger.info(
                "Already reached one process, cannot decrease the number of processes anymore."
            )
            return
        self._count -= 1
        if len(self._workers_now) > self._count:
            self._retire(self._workers_now[-1])


def how_it_ended(worker: Worker) -> str:
    code = worker.exitcode or 0
    return f"signal {-code}" if code < 0 else f"status {code}"


def reap_orphans(children: set[int]) -> None:
    """Waits for orphaned processes, which become children of process 1.

    Only the first ended process can be inspected; one of ``children`` there stops the loop until it is
    handled.
    """
    with contextlib.suppress(ChildProcessError):
        while True:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None or ended.si_pid in children:
                return
            os.waitpid(ended.si_pid, os.WNOHANG)
