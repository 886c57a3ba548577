"""Whether the client of a stopping connection is there, and until when it may take its responses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from uringcore.quic.connection import QuicConnection

__all__ = ["ClientWatch"]

SILENCE_SECONDS = 1.0
"""How often a stopping connection looks whether its client is there still: a client that was not
heard of in between is gone, and nothing is waited for any more. At least three probe timeouts."""

BUSY_SILENCES = 3
"""As above, but so many times in a row, while an application is working on a request."""

LINGER_MAX_SECONDS = 10.0
"""What a client that is there may take for the last of its responses, when all have been sent."""


class ClientWatch:
    """Looks at a stopping connection until it is closed.

    ``is_busy`` says whether an application is working; ``gone`` is called once nothing more is to be
    waited for, and ``there`` after each look at a client that is there.
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
        self._look_again()

    def all_answered(self) -> None:
        """The client has :data:`LINGER_MAX_SECONDS` from the first such moment on, or from the first one
        behind a request that came late."""
        if self._linger_until is None:
            self._linger_until = self._loop.time() + LINGER_MAX_SECONDS

    def cancel(self) -> None:
        """The connection has ended."""
        self._timer.cancel()

    def _look_again(self) -> None:
        stats = self._quic.stats()
        self._datagrams_received = stats["datagrams_received"]
        # A probe timeout is about three round trips while the estimate is young, and the client's
        # delay of acknowledgements (RFC 9002 section 6.2.1).
        seconds = max(SILENCE_SECONDS, 3 * (3 * stats["rtt"] + 0.025))
        self._timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        """All that was sent a while ago has to be acknowledged by now, by a client that is there."""
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
            self._look_again()
