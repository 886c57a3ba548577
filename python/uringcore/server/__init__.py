"""An ASGI server for HTTP/1.1, WebSocket and HTTP/3 on one port number.

uvicorn is the TCP side and the frame: options, lifespan, logging, HTTP/1.1 and WebSocket. This
package is the UDP side: HTTP/3 requests to ASGI. :func:`uringcore.server.run` serves an application
from a program; the command ``uringcore app:app`` does it from a shell.

| file | noun |
| --- | --- |
| ``command`` | the command's options |
| ``startup`` | what keeps a server from starting |
| ``config`` | what the server is set up with, checked before anything starts |
| ``server`` | uvicorn's server with the HTTP/3 side beside it |
| ``listener`` | UDP sockets and the QUIC endpoints on them |
| ``service`` | what all HTTP/3 connections of a server share |
| ``connection`` | one HTTP/3 connection |
| ``crowd`` | the bound of what a connection's streams have queued together |
| ``watch`` | whether a stopping connection's client is there |
| ``request`` | one request: ASGI's receive and send, with flow control |
| ``scope`` | a field section as an ASGI scope |

What one HTTP/3 client can make the server keep is bounded:

| what | bound | when full |
| --- | --- | --- |
| requests of a connection | ``http3_max_requests`` (128) | the client waits for a stream |
| a request's header section | ``http3_max_header_bytes`` (64 KiB) | 431, or the connection is closed |
| a request's body, not yet received | 256 KiB, and a window of 1 MiB | the client waits for credit |
| bodies of a connection together | a window of 8 MiB | as above |
| a response's body, not yet sent | 128 KiB, queued in parts | ``send`` waits until 32 KiB are left |
| responses of a connection together | 4 MiB, and a part a stream | as above |
| a client's silence | ``http3_idle_timeout`` (30 s) | the connection is closed |
| the same in a graceful stop | 1 s, with open requests 3 s | as above |
| a graceful stop | ``timeout_graceful_shutdown`` (30 s) | applications are cancelled |
| its wait for the last acknowledgements | 10 s | the connection is closed |

Needs the extra ``uringcore[server]``; importing this package itself does not.
"""

from __future__ import annotations

from typing import Any

from uringcore.server.startup import StartupError, require_uvicorn

__all__ = ["StartupError", "run"]


def run(app: Any, **options: Any) -> None:
    """Serves ``app`` until SIGINT or SIGTERM.

    ``app`` is an ASGI application or an import string ``"module:attribute"``. ``options`` are
    uvicorn's keyword arguments and those of
    :class:`~uringcore.server.config.ServerConfig`: ``http3``, ``dev_cert``, ``backend`` and the
    ``http3_`` limits. Raises :class:`StartupError` when the options cannot work, and ``SystemExit``
    when start-up fails later, as uvicorn does.
    """
    require_uvicorn()
    from uringcore.server.config import ServerConfig
    from uringcore.server.server import serve

    serve(ServerConfig(app, **options))
