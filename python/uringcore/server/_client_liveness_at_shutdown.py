"""Liveness of the client of a stopping connection, and the time limit for its last responses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from uringcore.quic.connection import QuicConnection

__all__ = ["ClientLiveness"]

SILENCE_SECONDS = 1.0
"""The shortest interval of the checks in seconds. If nothing arrives from a client within an interval, the
client has left, and the wait ends. An interval is at least three probe timeouts long."""

BUSY_SILENCES = 3
"""The number of silent intervals in a row after which the client has left while an application works on a
request."""

LINGER_MAX_SECONDS = 10.0
"""Seconds that a live client has to acknowledge its responses after all were sent."""


class ClientLiveness:
    """Checks a stopping connection until it is closed.

    ``is_busy`` returns True while an application is working. ``gone`` is called when the wait ends, and
    ``there`` after each check that finds a live client.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        quic: QuicConnection,
        *,
        is_busy: Callable[[], bool],
        gone: Callable[[], None],
        there: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._quic = quic
        self._is_busy = is_busy
        self._gone = gone
        self._there = there
        self._silences = 0
        self._linger_until: float | None = None
        self._schedule_check()

    def all_answered(self) -> None:
        """Begins the last :data:`LINGER_MAX_SECONDS`, because all requests are answered. A late request stops
        the count."""
        if self._linger_until is None:
            self._linger_until = self._loop.time() + LINGER_MAX_SECONDS

    def cancel(self) -> None:
        """Stops the checks, because the connection has ended."""
        self._timer.cancel()

    def _schedule_check(self) -> None:
        stats = self._quic.stats()
        self._datagrams_received = stats["datagrams_received"]
        # A probe timeout is about three round trips while the estimate is new, plus the client's maximum ACK
        # delay (RFC 9002 section 6.2.1).
        seconds = max(SILENCE_SECONDS, 3 * (3 * stats["rtt"] + 0.025))
        self._timer = self._loop.call_later(seconds, self._check)

    def _check(self) -> None:
        """Checks the client: a live one has acknowledged everything that was sent before the last check."""
        heard = self._quic.stats()["datagrams_received"] != self._datagrams_received
        self._silences = 0 if heard else self._silences + 1
        if self._is_busy():
            self._linger_until = None
            gone = self._silences >= BUSY_SILENCES
        else:
            late = self._linger_until is not None and self._loop.time() >= self._linger_until
            gone = self._silences > 0 or late
        if gone:
            self._gone()
        else:
            self._there()
            self._schedule_check()
