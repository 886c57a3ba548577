"""The log of a server's requests: access lines, errors, and their format. It serves HTTP/3 and the native
HTTP/1.1 and HTTP/2; uvicorn's protocol classes (``--http h11``) write their own lines.

Clients cannot fill the log, however many addresses they have: :mod:`uringcore._log_rate_limits`.

An exception of an application is logged in one of two ways. While the client is connected, the log gets the
traceback, without a limit, as in uvicorn. After the client has disconnected (Starlette's
``ClientDisconnect``), the log gets one line with the place where it was raised, and the line counts against
the client's limit: clients can cause such exceptions at will, and a traceback has thirty lines. Exceptions of
our own code in a connection are limited, too.
"""

from __future__ import annotations

import copy
import logging
import os
import sys
from typing import Any
from urllib.parse import quote

from uvicorn.config import LOGGING_CONFIG

from uringcore._log_rate_limits import ClientLog
from uringcore.server._request_ids import identity_of
from uringcore.server._startup_errors import StartupError

__all__ = ["LogHandler", "RequestLog", "log_config"]

# The characters that the access log shows unescaped: printable, and neither a quote nor a space.
LOGGABLE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"\\')

logger = logging.getLogger("uvicorn.error")
access_logger = logging.getLogger("uvicorn.access")


class RequestLog(ClientLog):
    """The log of one server's requests. One client may cause ``lines`` lines at once."""

    def __init__(self, lines: int) -> None:
        super().__init__(logger, lines)

    @staticmethod
    def access(scope: dict[str, Any], status: int) -> None:
        """Logs the start of a response."""
        client = scope["client"]
        address = f"{client[0]}:{client[1]}" if client else ""
        path = quote(scope["path"])
        if scope["query_string"]:
            path += "?" + quote(scope["query_string"], safe=LOGGABLE)
        if scope["type"] == "websocket":
            # The line has uvicorn's logger and wording.
            outcome = "[accepted]" if status == 200 else str(status)
            logger.info('%s - "WebSocket %s" %s', address, path, outcome)
            return
        access_logger.info(
            '%s - "%s %s HTTP/%s" %d',
            address,
            quote(scope["method"], safe=LOGGABLE),
            path,
            scope["http_version"],
            status,
            extra=identity_of(scope),
        )


class LogHandler(logging.StreamHandler):  # type: ignore[type-arg] # CPython 3.10 has no brackets there
    """Writes the log to a stream. If its reader closes a pipe, the null device replaces the stream for good.

    Otherwise each further line would print a traceback to standard error, and clients cause lines. The
    descriptor itself is replaced: the program's own output to it is dropped as well, and a reader that
    comes later gets nothing.
    """

    def handleError(self, record: logging.LogRecord) -> None:
        """Called by ``emit`` while an exception is being handled."""
        if not isinstance(sys.exc_info()[1], BrokenPipeError):
            super().handleError(record)
            return
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self.stream.fileno())
        os.close(null)
        name = getattr(self.stream, "name", "its stream")
        logger.warning("The reader of %s has closed it: logging to it ends", name)


def log_config(form: str) -> dict[str, Any]:
    """Returns uvicorn's configuration with our logger added: the loop logs its choice of a backend there.

    ``form`` is ``"text"`` or ``"json"``. Raises :class:`StartupError` for any other.
    """
    config: dict[str, Any] = copy.deepcopy(LOGGING_CONFIG)
    for handler in config["handlers"].values():
        handler["class"] = "uringcore.server._request_log.LogHandler"
    if sys.stdout is None:
        # The stream is set in uvicorn's formatters as well, because they call its isatty().
        for formatter in config["formatters"].values():
            formatter["use_colors"] = False
    config["loggers"]["uringcore"] = {"handlers": ["default"], "level": "INFO", "propagate": False}
    if form == "json":
        formatter = {"()": "uringcore.server._json_log.JSONFormatter"}
        config["formatters"] = {"default": {**formatter}, "access": {**formatter}}
    elif form == "text":
        access = "uringcore.server._request_ids.IdentifyingAccessFormatter"
        config["formatters"]["access"]["()"] = access
    else:
        raise StartupError(f"--log-format: must be text or json, not {form!r}")
    return config
