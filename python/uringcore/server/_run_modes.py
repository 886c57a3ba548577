"""Running a server until it ends: in this process, below ``--reload``, or in workers.

_server.py implements the server, and _supervisor.py manages several of them.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import socket
import sys
from multiprocessing.connection import Connection

from uringcore.server._config import Config
from uringcore.server._fd_limit_and_stdio import raise_limit
from uringcore.server._listening_sockets import listen_or_exit, log_addresses, remove_unix
from uringcore.server._reloader import Reloader, ReloaderLink
from uringcore.server._server import Server
from uringcore.server._startup_errors import STARTUP_FAILURE, StartupError, without_stop_signals
from uringcore.server._supervisor import Supervisor
from uringcore.server._worker_process import WorkerSlot

__all__ = ["serve"]

logger = logging.getLogger("uvicorn.error")


def serve(config: Config) -> None:
    """Runs a server until a signal ends it.

    Raises ``SystemExit`` with uvicorn's status 3 when start-up fails.
    """
    raise_limit()
    if config.dev_certificate is not None:
        for line in config.dev_certificate.describe().splitlines():
            logger.info(line)
    try:
        if not config.use_subprocess:
            serve_here(config)
        elif not isinstance(config.app, str):
            logger.error("--reload and --workers need the application as an import string.")
            sys.exit(STARTUP_FAILURE)
        else:
            serve_in_children(config)
    finally:
        with without_stop_signals():
            config.cleanup()
            if config.uds is not None:
                remove_unix(config.uds)


def serve_here(config: Config) -> None:
    """Serves in this process."""
    server = Server(config)
    try:
        server.run()
    except KeyboardInterrupt:
        logger.info("Interrupted before start-up was complete")
    if not server.started:
        sys.exit(STARTUP_FAILURE)


def serve_in_children(config: Config) -> None:
    """Serves in processes that are replaced, on sockets that stay."""
    sockets = listen_or_exit(config)
    log_addresses(config, sockets)
    with contextlib.closing(sockets):
        if config.should_reload:
            config.keys.share()
            target = functools.partial(serve_as_child, config)
            Reloader(config, target, list(sockets)).run()
            return
        try:
            supervisor = Supervisor(config, sockets, serve_as_child)
        except OSError as exc:
            logger.error("HTTP/3 cannot bind a port for all workers: %s", exc.strerror or exc)
            sys.exit(STARTUP_FAILURE)
        supervisor.run()


def serve_as_child(
    config: Config,
    sockets: list[socket.socket],
    slot: WorkerSlot | None = None,
    report: Connection | None = None,
) -> None:
    """Runs a child process; exits with uvicorn's status 3 when start-up fails.

    ``report`` is the pipe of a ``Reloader``.
    """
    link = None if report is None else ReloaderLink(config, report)
    server = Server(config, slot)
    if link is not None:
        server.on_serving = functools.partial(link.serving, server)
    try:
        server.run(sockets)
    except StartupError as exc:
        logger.error(exc)
    finally:
        above = slot or link
        if above is not None and above.is_orphan:
            config.remove_shared_folders()
    if not server.started and not server.should_exit:
        sys.exit(STARTUP_FAILURE)
