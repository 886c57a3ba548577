"""A server's event counters: requests, their durations, and the lag of its loop.

Plain numbers, one set a process. _metric_definitions.py names them for export, and _metrics_middleware.py
assigns each request to its counter."""

from __future__ import annotations

import copy
import http
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

__all__ = ["Counters", "Histogram"]

METHODS = frozenset(
    {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"}
)
STATUSES = frozenset(int(status) for status in http.HTTPStatus)

DURATION_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
LAG_BOUNDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Histogram:
    """A histogram: counts of values by upper bound."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds: tuple[float, ...] = tuple(bounds)
        self.counts: list[int] = [0] * (len(bounds) + 1)
        self.total: float = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Counters:
    """The counters of one server in one process."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, str]] = Counter()
        """Ended requests by HTTP version, method and status. The number of keys is bounded, whatever clients
        send."""
        self.requests_open: Counter[str] = Counter()
        """Open requests by HTTP version."""
        self.durations: dict[str, Histogram] = {}
        """Histograms, by HTTP version, of the seconds from a request to the last message of its response."""
        self.websockets = 0
        self.websockets_open = 0
        self.given_up: Counter[str] = Counter()
        """Responses over HTTP/3 that were cancelled because the client read nothing (``nothing_taken``) or
        too slowly (``little_taken``)."""
        self.lag: Histogram = Histogram(LAG_BOUNDS)
        """Seconds by which a timer of the loop ran too late, measured ten times a second."""
        self.lag_now: float = 0.0
        # Sums over QUIC connections that have ended.
        self.packets_sent = 0
        self.packets_lost = 0
        self.bytes_lost = 0

    def copy(self) -> Counters:
        """Returns the current counters; later events do not change the copy."""
        return copy.deepcopy(self)

    def request_ended(self, version: str, method: str, status: int, seconds: float) -> None:
        self.requests_open[version] -= 1
        self.requests[version, method_label(method), status_label(status)] += 1
        if version not in self.durations:
            self.durations[version] = Histogram(DURATION_BOUNDS)
        self.durations[version].add(seconds)

    def add_lag(self, seconds: float) -> None:
        self.lag_now = seconds
        self.lag.add(seconds)


def method_label(method: str) -> str:
    return method if method in METHODS else "other"


def status_label(status: int) -> str:
    """Returns a label for a response's status: the number if it is registered, otherwise its class, such as
    ``4xx``."""
    return str(status) if status in STATUSES else f"{status // 100}xx"
