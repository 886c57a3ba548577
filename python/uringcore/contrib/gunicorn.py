"""``gunicorn -k uringcore.contrib.gunicorn.Worker``: gunicorn starts processes that run uringcore's server.

gunicorn owns the TCP sockets. With a certificate, HTTP/3 is served on the UDP ports of the same numbers. The
arbiter binds them before its first worker, which is the only moment at which it calls a worker class.

gunicorn's arbiter runs our code only in the constructor of a worker object, before the fork. The constructor
takes the places on the UDP port; the workers record their state in shared memory.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import signal
import socket
import sys
from typing import Any, ClassVar

from gunicorn.arbiter import Arbiter
from gunicorn.errors import HaltServer
from gunicorn.workers.base import Worker as BaseWorker

from uringcore.quic.workers import PortWorker
from uringcore.server._config import Config
from uringcore.server._listening_sockets import bind_addresses
from uringcore.server._server import Server
from uringcore.server._shared_udp_ports import WORKERS_MAX, Ports
from uringcore.server._startup_errors import StartupError

__all__ = ["Worker"]

# A logging configuration that changes nothing, because gunicorn has set logging up.
_NO_LOG_CONFIG = {"version": 1, "incremental": True}


class Worker(BaseWorker):  # type: ignore[misc]  # gunicorn has no types
    """A gunicorn worker that serves HTTP/1.1, WebSocket and HTTP/3.

    Options of the server are set by a subclass with :attr:`CONFIG_KWARGS`.
    """

    CONFIG_KWARGS: ClassVar[dict[str, Any]] = {}
    """Keyword arguments of :class:`~uringcore.server.Config`, e.g. ``{"http3": False}``."""

    # The UDP ports that all workers share. The arbiter's copy also knows which worker has which place.
    _ports: ClassVar[Ports]
    _keeper: ClassVar[Config]
    """The configuration of the first worker. Its session store serves all workers."""
    _taken: ClassVar[dict[Worker, list[PortWorker]]] = {}

    def __init__(self, *args: Any, **options: Any) -> None:
        """Called in the arbiter, before it forks the worker."""
        super().__init__(*args, **options)
        for name, log in (("error", self.log.error_log), ("access", self.log.access_log)):
            target = logging.getLogger(f"uvicorn.{name}")
            target.handlers = log.handlers
            target.setLevel(log.level)
            target.propagate = False
        try:
            self._config = Config(**self._options())
            # A worker that SIGTTIN adds later gets a share of the same size.
            self._config.share_memory(self.cfg.workers)
        except StartupError as exc:
            raise HaltServer(str(exc), Arbiter.WORKER_BOOT_ERROR) from None
        if self._config.metrics_port is not None:
            text = "metrics_port: gunicorn's workers do not share one, use metrics_path"
            raise HaltServer(text, Arbiter.WORKER_BOOT_ERROR)
        self.places: list[PortWorker] = []
        self._is_orphan = False
        if self._config.http3:
            self._take_places()

    def _options(self) -> dict[str, Any]:
        cfg = self.cfg
        options: dict[str, Any] = {
            "app": None,
            "log_config": _NO_LOG_CONFIG,
            "backlog": cfg.backlog,
            "callback_notify": self._callback_notify,
            "forwarded_allow_ips": cfg.forwarded_allow_ips,
            "limit_max_requests": self.max_requests if cfg.max_requests else None,
            "timeout_graceful_shutdown": cfg.graceful_timeout,
            "timeout_keep_alive": cfg.keepalive,
            "timeout_notify": self.timeout,
            # gunicorn starts the processes. If this were not set, uvicorn would use WEB_CONCURRENCY.
            "workers": 1,
        }
        if cfg.is_ssl:
            given = cfg.ssl_options
            for ours, theirs in (
                ("ssl_keyfile", "keyfile"),
                ("ssl_certfile", "certfile"),
                ("ssl_keyfile_password", "password"),
                ("ssl_cert_reqs", "cert_reqs"),
                ("ssl_ca_certs", "ca_certs"),
                ("ssl_ciphers", "ciphers"),
            ):
                if given.get(theirs) is not None:
                    options[ours] = given[theirs]
        return {**options, **self.CONFIG_KWARGS}

    def _take_places(self) -> None:
        kind = type(self)
        if not hasattr(kind, "_ports"):
            kind._ports = self._make_ports()
        self._config.session_store = kind._keeper.session_store
        for worker in [one for one in kind._taken if one.has_ended()]:
            kind._ports.give_back(kind._taken.pop(worker))
        if kind._ports.have_room:
            self.places = kind._ports.take(is_first=not kind._taken)
            kind._taken[self] = self.places
        else:
            self.log.warning("HTTP/3 is off in a worker: too many of them are about to end.")
        self._config.http3 = bool(self.places)

    def _make_ports(self) -> Ports:
        sockets: list[socket.socket] = []
        try:
            if self.cfg.workers > WORKERS_MAX:
                raise OSError(f"it supports at most {WORKERS_MAX} workers")
            for given in self._tcp_sockets():
                if given.family in (socket.AF_INET, socket.AF_INET6):
                    host, port = given.getsockname()[:2]
                    sockets += bind_addresses(host, None, port).udp
            if not sockets:
                raise OSError("gunicorn has bound no IP address")
        except OSError as exc:
            self.log.error("HTTP/3 is off: %s", exc.strerror or exc)
            for sock in sockets:
                sock.close()
            sockets = []
        self._config.keys.share()
        self._config.share_sessions()
        type(self)._keeper = self._config
        atexit.register(self._clean_up, os.getpid())
        return Ports(sockets, self._config, workers=self.cfg.workers)

    def _clean_up(self, arbiter: int) -> None:
        # Workers inherit the arbiter's exit handlers, so the process ID is checked.
        if os.getpid() == arbiter:
            self._config.cleanup()

    def _tcp_sockets(self) -> list[socket.socket]:
        return [given.sock for given in self.sockets]

    def has_ended(self) -> bool:
        """True in the arbiter after it has reaped the worker."""
        # `pid` is a string until the worker is started. Compared by identity, because a later worker may have
        # the process ID of an ended one.
        return isinstance(self.pid, int) and Arbiter.WORKERS.get(self.pid) is not self

    def init_signals(self) -> None:
        """Does what uvicorn's worker does: signals get their default handlers, and the server sets those that
        it needs."""
        for number in self.SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGUSR1, self.handle_usr1)
        signal.siginterrupt(signal.SIGUSR1, False)

    def run(self) -> None:
        """Runs in the worker once the application is loaded."""
        self._config.app = self.wsgi
        self._server = Server(self._config, slot=self)
        signal.signal(signal.SIGQUIT, self._server.handle_exit)
        try:
            self._server.run([sock.dup() for sock in self._tcp_sockets()])
        except StartupError as exc:
            self.log.error(str(exc))
        except KeyboardInterrupt:
            # The exception is not passed on: the frames below are copies of the arbiter's, which must not run
            # in a worker.
            self.log.info("Interrupted before start-up was complete")
        finally:
            if self.places:
                type(self)._ports.give_back(self.places)
                if self._is_orphan:
                    self._keeper.remove_shared_folders()
        if not self._server.started:
            sys.exit(Arbiter.WORKER_BOOT_ERROR)

    # The methods of a worker slot, which the server calls

    def serving(self, server: Server) -> None:
        """Marks the worker's places on its ports as accepting new clients."""
        if self.places:
            type(self)._ports.mark(self.places, accepting=True)
        if self.cfg.reload:
            # gunicorn's reloader thread ends a worker by writing a byte to this pipe.
            asyncio.get_running_loop().add_reader(self.PIPE[0], self._reload)

    def _reload(self) -> None:
        asyncio.get_running_loop().remove_reader(self.PIPE[0])
        self._server.handle_exit(signal.SIGTERM, None)

    def ending(self) -> None:
        """Marks the worker's places on its ports as accepting no new clients."""
        if self.places:
            type(self)._ports.mark(self.places, accepting=False)

    def used_up(self) -> bool:
        """Always False, because the arbiter starts another worker when this one has ended."""
        return False

    async def _callback_notify(self) -> None:
        self.notify()
        if os.getppid() != self.ppid:
            self.log.info("The arbiter is gone, exiting.")
            self._is_orphan = True
            self._server.handle_exit(signal.SIGTERM, None)
