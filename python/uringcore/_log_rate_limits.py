"""Rate limits for log lines that clients cause: for each client, and for all of them together.

The servers decide which lines they log, and when.
"""

from __future__ import annotations

import ipaddress
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

__all__ = ["ClientLog", "LogBudget", "in_one_line", "network"]

SECONDS_A_LINE = 60.0
"""Time after which a network may cause one more line."""

NETWORKS_KEPT = 1024
"""Networks with a separate count. All further ones share the budget of one."""

ALL_FACTOR = 20
"""The budget of all networks together, in budgets of one network: for the burst and for the rate."""

SUMMARY_SECONDS = 60.0
"""Interval of the line that counts the dropped lines."""

TEXT_MAX = 200
"""The maximum number of characters of an exception's text in a log line."""

UNKNOWN, EVERYBODY, OURS = "a client without an address", "all clients", "the server itself"
"""Names of budgets that do not belong to a network: of clients without an address, of overload, and of the
server's own faults."""

LEFT_OUT = {
    "client": "invalid or unanswerable requests",
    "departure": "exceptions in applications whose client had gone or takes too little",
    "load": "requests above the limit of concurrency",
    "fault": "faults of the server",
}
"""The name of dropped lines in a summary, by the kind of report."""


class _Lines:
    """A token bucket of log lines: ``most`` at first, then one every ``seconds``."""

    __slots__ = ("_counted", "_left", "_most", "_seconds")

    def __init__(self, most: float, seconds: float, now: float) -> None:
        self._most = self._left = most
        self._seconds = seconds
        self._counted = now

    def left(self, now: float) -> float:
        self._left = min(self._left + (now - self._counted) / self._seconds, self._most)
        self._counted = now
        return self._left

    def is_full(self, now: float) -> bool:
        return self.left(now) >= self._most

    def take(self) -> None:
        self._left -= 1


class LogBudget:
    """Limits the number of log lines that clients may cause.

    A network may cause ``lines`` lines at once and then one a minute; all networks together may cause
    :data:`ALL_FACTOR` times as many. At most :data:`NETWORKS_KEPT` networks have a bucket; further ones share
    one. A network whose bucket is full again is removed. So lines and memory are bounded for any number of
    networks.
    """

    def __init__(self, lines: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        now = clock()
        self._clock = clock
        self._lines = float(lines)
        # Networks in the order of their last log lines, the oldest first.
        self._networks: OrderedDict[str, _Lines] = OrderedDict()
        self._others = _Lines(self._lines, SECONDS_A_LINE, now)
        self._all = _Lines(self._lines * ALL_FACTOR, SECONDS_A_LINE / ALL_FACTOR, now)
        self._left_out: Counter[str] = Counter()
        self._last_left_out = ""
        self._summary_at = 0.0

    @property
    def networks(self) -> int:
        """The number of networks with a separate bucket."""
        return len(self._networks)

    def take(self, network: str, kind: str) -> int:
        """Takes one line from a network's budget.

        Returns 0 if the budget is empty, and counts the line as dropped; 1 if this is the last line for
        now; 2 if more are left.
        """
        now = self._clock()
        lines = self._networks.get(network) or self._begin(network, now)
        if min(lines.left(now), self._all.left(now)) < 1:
            if not self._left_out:
                self._summary_at = now + SUMMARY_SECONDS
            self._left_out[kind] += 1
            self._last_left_out = network
            return 0
        lines.take()
        self._all.take()
        if network in self._networks:
            self._networks.move_to_end(network)
        return 2 if min(lines.left(now), self._all.left(now)) >= 1 else 1

    def _begin(self, network: str, now: float) -> _Lines:
        if len(self._networks) >= NETWORKS_KEPT:
            oldest = next(iter(self._networks))
            if not self._networks[oldest].is_full(now):
                return self._others
            del self._networks[oldest]
        lines = self._networks[network] = _Lines(self._lines, SECONDS_A_LINE, now)
        return lines

    def summary(self, *, at_once: bool = False) -> str | None:
        """Returns one line that counts the dropped lines since the last summary.

        Returns ``None`` if there are none or, without ``at_once``, if a minute has not passed.
        """
        if not self._left_out or (not at_once and self._clock() < self._summary_at):
            return None
        counts, self._left_out = self._left_out, Counter()
        kinds = ", ".join(
            f"{count} {LEFT_OUT.get(kind, kind)}" for kind, count in counts.most_common()
        )
        total = sum(counts.values())
        return f"{total} lines about clients were left out: {kinds}; the last about {self._last_left_out}"


class ClientLog:
    """The log of one server. ``AsgiService`` and WebTransport sessions call :meth:`report`.

    Each client may cause ``lines`` lines at once, which are logged at ``level``. Exceptions that an
    application raises while its client is connected are not limited, because they are the application's
    fault.
    """

    def __init__(self, logger: logging.Logger, lines: int, level: int = logging.WARNING) -> None:
        self._logger = logger
        self._level = level
        self._budget = LogBudget(lines)

    def report(self, kind: str, message: str, what: Any) -> None:
        """Logs a report of ``AsgiService``, within the budget of its kind and client."""
        if kind == "application":
            self._logger.error("%s", message, exc_info=what)
        elif kind == "debug":
            self._logger.debug("%s: %r", message, what)
        elif kind == "departure":
            client, error = what
            left = self._budget.take(network(client), kind)
            if left:
                # Clients can cause any number of these exceptions, so the traceback (about thirty lines) is
                # omitted.
                self._say(f"{message}: {in_one_line(error)}", left)
            self._logger.debug("%s", message, exc_info=error)
        elif kind == "fault":
            left = self._budget.take(OURS, kind)
            if left:
                self._logger.error("%s%s", message.rstrip("\n"), is_last(left), exc_info=what)
        else:
            left = self._budget.take(EVERYBODY if what is None else network(what), kind)
            if left:
                self._say(message, left)

    def tick(self) -> None:
        """Logs the number of dropped lines, at most once a minute. The server calls this regularly."""
        self._summarise(self._budget.summary())

    def close(self) -> None:
        """Logs the number of dropped lines since the last summary."""
        self._summarise(self._budget.summary(at_once=True))

    def _say(self, message: str, left: int) -> None:
        self._logger.log(self._level, "%s%s", message, is_last(left))

    def _summarise(self, summary: str | None) -> None:
        if summary is not None:
            self._logger.log(self._level, "%s", summary)


def is_last(left: int) -> str:
    """Returns the end of a log line: a note that later lines are left out, if only this line is ``left`` in
    the budget."""
    return "" if left >= 2 else " (more of this is left out for a minute)"


def network(client: Any) -> str:
    """Returns the network of a client: an IPv4 address, or the /64 of an IPv6 address.

    QUIC's limits count clients in the same way (``AddressBlock`` in ``src/limits/memory_budget.rs``).

    ``client`` is the value of an ASGI scope. Middleware may have replaced it by any object.
    """
    try:
        address = ipaddress.ip_address(str(client[0]))
        if isinstance(address, ipaddress.IPv6Address):
            address = address.ipv4_mapped or address
    except (ValueError, TypeError, LookupError):
        return UNKNOWN
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    high = int(address) >> 64 << 64
    return f"{ipaddress.IPv6Address(high)}/64"


def in_one_line(error: BaseException) -> str:
    """Returns an exception's ``repr`` and the code line that raised it, as one line of text."""
    try:
        said = repr(error)
    except Exception:  # noqa: BLE001 - `__repr__` is a program's code
        said = type(error).__name__
    said = "".join(char if char.isprintable() else " " for char in said[:TEXT_MAX])
    trace = error.__traceback__
    if trace is None:
        return said
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    return f"{said} ({code.co_filename}:{trace.tb_lineno}, in {code.co_name})"
