"""A server of HTTP/1.1 and HTTP/2 over TCP, for the tests of a module."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.server.harness import ForkedServer, Server

__all__ = ["running_server"]


@contextlib.contextmanager
def running_server(
    transport: str,
    folder: Path,
    certificate: tuple[str, str],
    *options: str,
    kind: type[Server] = ForkedServer,
    http: str = "native",
    **more: Any,
) -> Iterator[Server]:
    """Runs a server without HTTP/3, over ``"tcp"`` or ``"tls"``: its ``is_secure`` tells which. Then ends it,
    and checks its log.
    """
    secure = transport == "tls"
    running = kind(
        folder,
        certificate if secure else (None, None),
        *("--http", http, "--no-http3", *options),
        http3=False,
        **more,
    )
    running.is_secure = secure
    yield running
    running.kill()
    running.check_log()
