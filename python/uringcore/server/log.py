"""What a server says of its HTTP/3 requests: the access log, and what goes wrong; and in which form.

Clients cannot fill the log, however many addresses they have: :mod:`uringcore._client_log`.
"""

from __future__ import annotations

import copy
import logging
from typing import Any
from urllib.parse import quote

from uvicorn.config import LOGGING_CONFIG

from uringcore._client_log import ClientLog
from uringcore.server.startup import StartupError

__all__ = ["RequestLog", "log_config"]

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


def log_config(form: str) -> dict[str, Any]:
    """uvicorn's, with our own logger beside it: the loop says there why it chose a backend.

    ``form`` is ``"text"`` or ``"json"``. Raises :class:`StartupError` for any other.
    """
    config: dict[str, Any] = copy.deepcopy(LOGGING_CONFIG)
    config["loggers"]["uringcore"] = {"handlers": ["default"], "level": "INFO", "propagate": False}
    if form == "json":
        formatter = {"()": "uringcore.server.json_log.JSONFormatter"}
        config["formatters"] = {"default": {**formatter}, "access": {**formatter}}
    elif form != "text":
        raise StartupError(f"--log-format: must be text or json, not {form!r}")
    return config
