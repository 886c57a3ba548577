"""``connect(..., transmit=False)``: a client's first packets wait for what the program has to say.

0-RTT data is worth having only if it leaves with the ClientHello: a turn or two later the server's
answer may be in. Here: when the wait is over. Not here: that nothing is sent meanwhile (the core).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from uringcore.quic.connection import QuicConnection

__all__ = ["FirstFlight"]


class FirstFlight:
    """The held packets of one client.

    The program's first ``transmit()`` ends the wait. aioquic would wait for that forever; a program
    that writes to the connection and leaves the sending to the loop, or that only listens, would
    hang. So ``transmit`` is called for it when nothing has happened for a while: twenty-five
    milliseconds, as programs get ready in less, and in ten steps, so that a busy machine, where that
    time may pass between two turns of the loop, leaves a program as many turns as an idle one.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        quic: QuicConnection,
        transmit: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._quic = quic
        self._transmit = transmit
        self._steps = _STEPS
        quic._hold()
        self._timer = loop.call_later(_STEP, self._step)

    def release(self) -> None:
        """From now on packets may leave."""
        self._timer.cancel()
        self._quic._release()

    def _step(self) -> None:
        self._steps -= 1
        if self._steps:
            self._timer = self._loop.call_later(_STEP, self._step)
        else:
            self._transmit()


_STEPS = 10
_STEP = 0.0025
