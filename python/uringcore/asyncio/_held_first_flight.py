"""``connect(..., transmit=False)``: a client's first packets wait for the program's first data.

0-RTT data gains time only if it leaves with the ClientHello: one or two iterations later the server's answer
may have arrived. This file ends the wait; the core sends nothing meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from uringcore.quic.connection import QuicConnection

__all__ = ["FirstFlight"]


class FirstFlight:
    """The held packets of one client.

    The program's first ``transmit()`` ends the wait. aioquic would wait for that without limit; a program
    that writes to the connection and leaves the sending to the loop, or that only receives, would
    hang. So a timer calls ``transmit``: after twenty-five milliseconds, since programs are ready sooner, and
    in ten steps. On a busy machine, where that time may pass between two iterations of the loop, a program
    thus gets as many iterations as on an idle one.
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
        """Allows packets to be sent from now on."""
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
