"""Whose turn it is on a file: operations of several tasks run one after the other, in order.

A lock that costs an attribute while nobody else wants it, and that stays taken past its holder when
an operation was left behind in the kernel or in a thread. Not here: what is done in a turn.
"""

from __future__ import annotations

import asyncio
from collections import deque

__all__ = ["Turns"]


class Turns:
    """Mixed into every file class.

    While ``_busy`` is unset nothing of the file is under way, and a method that does not have to wait
    may do all its work without taking a turn.
    """

    __slots__ = ("_busy", "_loop", "_orphaned", "_queue")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._busy = False
        self._orphaned = False
        self._queue: deque[asyncio.Future[None]] = deque()

    async def _begin(self) -> None:
        """Wait for this task's turn, in the order of asking."""
        turn = self._ask()
        if turn is not None:
            await self._wait_for(turn)

    def _ask(self) -> asyncio.Future[None] | None:
        """Stand in line. ``None``: the turn has come; else it is to be waited for."""
        if not self._busy:
            self._busy = True
            return None
        turn = self._loop.create_future()
        self._queue.append(turn)
        return turn

    async def _wait_for(self, turn: asyncio.Future[None]) -> None:
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._pass_on()
            else:
                turn.cancel()
            raise

    def _end(self) -> None:
        """The turn is over, unless an operation of it still is under way."""
        if not self._orphaned:
            self._pass_on()

    def _orphan(self) -> None:
        """The holder leaves; the turn lasts until :meth:`_orphan_ended`."""
        self._orphaned = True

    def _orphan_ended(self) -> None:
        self._orphaned = False
        self._pass_on()

    def _pass_on(self) -> None:
        while self._queue:
            turn = self._queue.popleft()
            # A closed loop runs nobody who waits.
            if not turn.done() and not self._loop.is_closed():
                turn.set_result(None)
                return
        self._busy = False
