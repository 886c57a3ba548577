"""The line `READY <port>` of a server that is a command of another project."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import time
from collections.abc import Callable

START_SECONDS = 20.0


def secured(plain: socket.socket) -> ssl.SSLSocket:
    """The connection with TLS. The certificate is not verified."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(plain)


def say_ready_of(port: int, is_ready: Callable[[socket.socket], bool]) -> None:
    """Start a process that prints READY as soon as `is_ready` is true of a connection to `port`.

    It is no child of this process, so that all of its descendants are the server's. A bound port is not
    enough: a supervisor binds before it has a worker.
    """
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    if not os.fork():
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", port), timeout=1) as plain,
            ):
                if is_ready(plain):
                    print("READY", port, flush=True)
                    break
            time.sleep(0.05)
    os._exit(0)
