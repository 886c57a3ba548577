"""Happy eyeballs (RFC 8305) for QUIC: the choice among a name's addresses.

Attempts are started one after the other, a quarter of a second apart or as soon as one has failed, and the
first completed handshake wins. An attempt has no protocol and keeps its events; the winner's events are
delivered to the protocol that is then made. (A ``quic_logger`` has a trace of each.) Not here: the look-up of
names, and the sockets of attempts (``endpoint``).

With one address the protocol exists before its connection, and also with ``wait_connected=False``: there the
first address is used, because 0-RTT data must not go to two servers. A server that answers and fails TLS ends
the race, so that no wrong certificate is hidden; Version Negotiation and ICMP errors prove nothing and do
not. A session ticket and an address token are sent to one address only: they would link a client's addresses,
and the losing attempt would use them up.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol

from uringcore.quic._errors import (
    QuicConnectionError,
    QuicConnectionRefusedError,
    QuicTlsError,
    error_from_event,
)
from uringcore.quic.connection import QuicConnection
from uringcore.quic.events import ConnectionTerminated, HandshakeCompleted, QuicEvent

__all__ = ["ATTEMPT_DELAY", "Attempt", "first_to_answer", "interleaved"]

ATTEMPT_DELAY = 0.25
"The Connection Attempt Delay of RFC 8305 section 5, in seconds."

Address = tuple[int, tuple[Any, ...]]


class _Transport(Protocol):
    def drop(self) -> None: ...
    async def wait_closed(self) -> None: ...


class Attempt:
    """A handshake with one address. It keeps the events until the connection has a protocol."""

    def __init__(self, transport: _Transport, quic: QuicConnection, remote: Sequence[Any]) -> None:
        self.transport = transport
        self.quic = quic
        self.events: list[QuicEvent] = []
        self.is_connected = False
        self.error: QuicConnectionError | None = None
        self._remote = remote
        self._on_end: Callable[[], None] = lambda: None
        quic._set_receiver(self._received)

    @property
    def has_no_route(self) -> bool:
        """True if it has failed because this machine cannot send to the address."""
        return self.error is not None and self.error.errno in _OUR_OWN

    def call_at_end(self, on_end: Callable[[], None]) -> None:
        """``on_end()`` is called when the handshake is completed or has failed."""
        self._on_end = on_end

    def drop(self) -> None:
        """Closes the connection. No further event is delivered."""
        self.quic._set_receiver(None)
        self._on_end = lambda: None
        self.events.clear()
        self.transport.drop()

    def stop_receiving(self) -> None:
        """Stops passing events on. The connection keeps them until it has another receiver."""
        self.quic._set_receiver(None)

    def hand_over(self) -> None:
        """Delivers the events that were kept to the connection's receiver."""
        events, self.events = self.events, []
        self.quic._receive(events)

    def _received(self, received: list[QuicEvent]) -> None:
        self.events += received
        for event in received:
            if isinstance(event, HandshakeCompleted):
                self.is_connected = True
            elif isinstance(event, ConnectionTerminated) and not self.is_connected:
                self.error = error_from_event(event, f"{self._remote[0]} port {self._remote[1]}")
        if self.is_connected or self.error is not None:
            self._on_end()


async def first_to_answer(
    addresses: Iterable[Address],
    begin: Callable[[int, tuple[Any, ...]], Awaitable[Attempt]],
    delay: float | None,
    shares_port: bool = False,
) -> Attempt:
    """Returns the attempt whose handshake was completed first; ``begin(family, address)`` makes the attempts.

    Without a ``delay`` the next attempt begins when the previous one has failed; if they share a port, when
    its socket is closed as well.

    A failed handshake is followed by the next address, unless TLS failed: the answer of a server with another
    certificate, or without our application protocols, counts for all addresses, and its error is raised at
    once. Every other error may concern this address alone, or come from an off-path attacker (Version
    Negotiation proves nothing, RFC 9000 section 6.2). When all have failed, their errors are raised as one.
    """
    race = _Race(shares_port)
    try:
        for family, address in addresses:
            try:
                race.add(await begin(family, address))
            except OSError as exc:
                race.errors.append(exc)
                continue
            await race.wait(delay)
            if race.winner is not None:
                return race.winner
        while race.running:
            await race.wait(None)
            if race.winner is not None:
                return race.winner
        raise _joined(race.errors)
    finally:
        await race.end()


class _Race:
    def __init__(self, shares_port: bool) -> None:
        self.running: list[Attempt] = []
        self.errors: list[OSError] = []
        self.winner: Attempt | None = None
        self._shares_port = shares_port
        self._changed = asyncio.Event()

    def add(self, attempt: Attempt) -> None:
        self.running.append(attempt)
        attempt.call_at_end(self._changed.set)

    async def wait(self, timeout: float | None) -> None:
        """Waits until one attempt has succeeded or failed, at most ``timeout`` seconds."""
        if not any(attempt.is_connected or attempt.error for attempt in self.running):
            self._changed.clear()
            changed = asyncio.ensure_future(self._changed.wait())
            try:
                await asyncio.wait([changed], timeout=timeout)
            finally:
                changed.cancel()
        for attempt in list(self.running):
            if attempt.is_connected:
                self.running.remove(attempt)
                self.winner = attempt
                return
            if attempt.error is not None:
                await self._failed(attempt, attempt.error)

    async def _failed(self, attempt: Attempt, error: QuicConnectionError) -> None:
        self.running.remove(attempt)
        await self._drop(attempt)
        if isinstance(error, QuicTlsError):
            raise error
        self.errors.append(error)

    async def end(self) -> None:
        """Closes the attempts that have not succeeded."""
        while self.running:
            await self._drop(self.running.pop())

    async def _drop(self, attempt: Attempt) -> None:
        attempt.drop()
        if self._shares_port:
            await attempt.transport.wait_closed()


def interleaved(addresses: Iterable[Address]) -> list[Address]:
    """Alternates between families, beginning with the family of the first address (RFC 8305 section 4)."""
    by_family: dict[int, list[Address]] = {}
    for one in dict.fromkeys(addresses):
        by_family.setdefault(one[0], []).append(one)
    rounds = itertools.zip_longest(*by_family.values())
    return [one for several in rounds for one in several if one is not None]


def _joined(errors: Sequence[OSError]) -> OSError:
    """Returns one error for all attempts, in the manner of ``loop.create_connection``."""
    first = errors[0]
    if all(str(error) == str(first) for error in errors):
        return first
    message = "Multiple exceptions: " + ", ".join(str(error) for error in errors)
    ends = [error for error in errors if isinstance(error, QuicConnectionError)]
    if not ends:
        return OSError(message)
    # If some attempts failed because of the server, errors of this machine are left out, because they say
    # nothing about the server.
    ends = [error for error in ends if error.errno not in _OUR_OWN] or ends
    args = (ends[0].error_code, ends[0].frame_type, ends[0].reason_phrase, message)
    kinds = {type(error) for error in ends}
    if kinds == {QuicConnectionRefusedError}:
        return QuicConnectionRefusedError(*args, errno=ends[0].errno or 0)
    return kinds.pop()(*args) if len(kinds) == 1 else QuicConnectionError(*args)


# Errors that this machine raises because it cannot send to an address.
_OUR_OWN = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EINVAL, errno.ENETUNREACH})
