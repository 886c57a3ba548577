"""What a server says of its HTTP/3 requests: the access log, and what goes wrong; and in which form.

Clients cannot fill the log, however many addresses they have: :mod:`uringcore._client_log`.

An exchange ends in the extension before its client is counted or its connection closed, so a ``send``
after that does nothing, as ASGI requires. An exception that an application raises after its client has
gone (Starlette's ``ClientDisconnect``) is one line of the client's budget, with the place where it was
raised: clients can cause it at will, and a traceback has thirty lines. An exception while the client is
connected has its traceback and no bound, as in uvicorn. Exceptions of our own code in a connection have a
budget, too.
"""

from __future__ import annotations

import copy
import logging
import os
import sys
from typing import Any
from urllib.parse import quote

from uvicorn.config import LOGGING_CONFIG

from uringcore._client_log import ClientLog
from uringcore.server._startup import StartupError

__all__ = ["LogHandler", "RequestLog", "log_config"]

# What the access log shows as it is: printable, and neither a quote nor a space, which delimit it.
LOGGABLE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"\\')

logger = logging.getLogger("uvicorn.error")
access_logger = logging.getLogger("uvicorn.access")


class RequestLog(ClientLog):
    """The log of one server's requests. ``lines`` are said at once about one client's doings."""

    def __init__(self, lines: int) -> None:
        super().__init__(logger, lines)

    @staticmethod
    def access(scope: dict[str, Any], status: int) -> None:
        """A response begins."""
        client = scope["client"]
        address = f"{client[0]}:{client[1]}" if client else ""
        path = quote(scope["path"])
        if scope["query_string"]:
            path += "?" + quote(scope["query_string"], safe=LOGGABLE)
        if scope["type"] == "websocket":
            # Where uvicorn says it, and in its words.
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
        )


class LogHandler(logging.StreamHandler):  # type: ignore[type-arg] # CPython 3.10 has no brackets there
    """Writes the log to a stream. When nobody reads that any more it is the null device for good.

    The descriptor itself is replaced: what the program prints there is dropped as well, and a reader that
    comes later gets nothing.

    Otherwise every line would be a traceback on standard error, and clients cause lines.
    """

    def handleError(self, record: logging.LogRecord) -> None:
        """Called by ``emit`` while it handles an exception."""
        if not isinstance(sys.exc_info()[1], BrokenPipeError):
            super().handleError(record)
            return
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self.stream.fileno())
        os.close(null)
        name = getattr(self.stream, "name", "its stream")
        logger.warning("Nobody reads %s any more: nothing is logged there from now on", name)


def log_config(form: str) -> dict[str, Any]:
    """uvicorn's, with our own logger beside it: the loop says there why it chose a backend.

    ``form`` is ``"text"`` or ``"json"``. Raises :class:`StartupError` for any other.
    """
    config: dict[str, Any] = copy.deepcopy(LOGGING_CONFIG)
    for handler in config["handlers"].values():
        handler["class"] = "uringcore.server._log.LogHandler"
    if sys.stdout is None:
        # uvicorn's formatters ask it for a terminal.
        for formatter in config["formatters"].values():
            formatter["use_colors"] = False
    config["loggers"]["uringcore"] = {"handlers": ["default"], "level": "INFO", "propagate": False}
    if form == "json":
        formatter = {"()": "uringcore.server._json_log.JSONFormatter"}
        config["formatters"] = {"default": {**formatter}, "access": {**formatter}}
    elif form != "text":
        raise StartupError(f"--log-format: must be text or json, not {form!r}")
    return config
