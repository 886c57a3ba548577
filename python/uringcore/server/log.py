"""What a server says of its HTTP/3 requests: the access log, and what goes wrong; and in which form.

One client cannot fill the log: what it causes is said so many times, then once a minute.
"""

from __future__ import annotations

import copy
import ipaddress
import logging
import time
from collections import OrderedDict
from typing import Any
from urllib.parse import quote

from uvicorn.config import LOGGING_CONFIG

from uringcore.server.startup import StartupError

__all__ = ["RequestLog", "log_config"]

# What the access log shows as it is: printable, and neither a quote nor a space, which delimit it.
LOGGABLE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"\\')

SECONDS_A_LINE = 60.0
"""After which one more is said."""

CLIENTS_KEPT = 1024
"""Clients whose lines are counted, those of the latest lines."""

logger = logging.getLogger("uvicorn.error")
access_logger = logging.getLogger("uvicorn.access")


class RequestLog:
    """The log of one server. ``lines`` are said at once about one client's doings."""

    def __init__(self, lines: int) -> None:
        self._lines = float(lines)
        # Client address: lines that it may still cause, and when that was counted.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def report(self, kind: str, message: str, what: Any) -> None:
        """Something went wrong, as ``AsgiService`` tells it: whose doing it is, and of what."""
        if kind == "application":
            logger.error(message, exc_info=what)
            return
        if kind == "debug":
            logger.debug("%s: %r", message, what)
            return
        left = self._take(kind if what is None else network(what[0]))
        if left >= 1:
            last = "" if left >= 2 else " (more of this is left out for a minute)"
            logger.warning("%s%s", message, last)

    def _take(self, address: str) -> float:
        now = time.monotonic()
        left, since = self._left.pop(address, (self._lines, now))
        left = min(left + (now - since) / SECONDS_A_LINE, self._lines)
        self._left[address] = (max(left - 1, 0.0) if left >= 1 else left, now)
        if len(self._left) > CLIENTS_KEPT:
            self._left.popitem(last=False)
        return left

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


def network(address: str) -> str:
    """An IPv4 address, or the /64 of an IPv6 address: what one client has."""
    parsed = ipaddress.ip_address(address)
    if parsed.version == 4:
        return address
    return str(ipaddress.ip_network((parsed, 64), strict=False))


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
