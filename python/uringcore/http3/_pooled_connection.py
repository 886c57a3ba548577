"""One connection of a client, from its first packet to its last, held open by a task.

The connection counts its requests and reports changes. ``_connection_pool`` assigns requests to it, and
closes it.

The task enters and leaves QUIC's context manager, so every way out closes the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from uringcore._time_limit import within
from uringcore.asyncio.client import connect as quic_connect
from uringcore.h3.connection import ErrorCode
from uringcore.http3._connection import HTTP3ClientProtocol
from uringcore.http3._errors import ConnectError, ConnectTimeoutError
from uringcore.http3._resumption_cache import ResumptionState, Route
from uringcore.quic._happy_eyeballs import ATTEMPT_DELAY
from uringcore.quic.configuration import QuicConfiguration

__all__ = ["PooledConnection"]

# A connection with 0-RTT data goes to the remembered address only. After this number of round trips without
# an answer, and at least the delay of happy eyeballs, the other addresses are tried.
PATIENCE_ROUND_TRIPS = 4

# If a connection was idle for longer than this, its server may be dead. So a PING is sent with the next
# request. After shorter pauses none is sent, because each costs a task.
PROBE_AFTER_IDLE_SECONDS = 0.25
SILENCE_SECONDS = 1.0
SILENCE_ROUND_TRIPS = 6


class PooledConnection:
    """A connection of a client's pool, with the number of its streams in use."""

    def __init__(
        self,
        route: Route,
        configuration: QuicConfiguration,
        resumption: ResumptionState,
        *,
        early: bool,
        timeout: float | None,
        on_change: Callable[[PooledConnection], None],
    ) -> None:
        self.route = route
        self.streams = 0
        """Requests that use the connection."""
        self.is_over = False
        self.is_cancelled = False
        self.error: Exception | None = None
        """The exception that ended the connection or its handshake."""
        self._was_taken = False
        self.idle_timer: asyncio.TimerHandle | None = None
        self.protocol: HTTP3ClientProtocol | None = None
        self._idle_since = 0.0
        self._probe: asyncio.Task[None] | None = None
        self._resumption = resumption
        self._retired = False
        self._ending = asyncio.Event()
        self._changed = asyncio.Event()
        self._on_change = on_change
        early_configuration = resumption.take_early(configuration) if early else None
        self.is_early = early_configuration is not None
        self._timer: asyncio.TimerHandle | None = None
        self.task = asyncio.ensure_future(self._keep(early_configuration or configuration))
        if timeout is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(timeout, self._expire, timeout)

    @property
    def is_connecting(self) -> bool:
        """True if the handshake is not complete and may still succeed."""
        return not self.is_over and not self._ending.is_set() and not self.is_established

    @property
    def is_established(self) -> bool:
        """True if the handshake is complete."""
        return self.protocol is not None and self.protocol.is_established

    @property
    def has_served_nothing(self) -> bool:
        """True if it ended without having served a request: it was never made, or its server ended it at
        once. Trying another one could repeat endlessly.
        """
        if not self.is_established:
            return self.is_over and self.error is not None
        return self.is_over and not self._was_taken

    @property
    def is_leaving(self) -> bool:
        """True if the connection accepts no more requests."""
        ready = self.protocol is not None
        return self._retired or self.is_over or (ready and not self.takes(safe=True))

    def takes(self, *, safe: bool) -> bool:
        """True if it takes another request; before the handshake is complete, only a safe one."""
        if self._retired or self.is_over or self.protocol is None:
            return False
        return self.protocol.takes_requests and (safe or self.protocol.is_established)

    def taken(self) -> PooledConnection:
        """Counts one more request."""
        self.streams += 1
        self._was_taken = True
        if self.idle_timer is not None:
            self.idle_timer.cancel()
            self.idle_timer = None
            if asyncio.get_running_loop().time() - self._idle_since > PROBE_AFTER_IDLE_SECONDS:
                self._send_probe()
        return self

    def rest(self, seconds: float) -> None:
        """Starts the timer that closes an idle connection in ``seconds``."""
        if self.idle_timer is None:
            loop = asyncio.get_running_loop()
            self._idle_since = loop.time()
            self.idle_timer = loop.call_later(seconds, self.close)

    @property
    def awaits_probe(self) -> bool:
        """True while the PING that was sent with the first request after an idle time is unanswered: the
        server may have been killed, or the path may drop packets."""
        return self._probe is not None and not self._probe.done()

    def _send_probe(self) -> None:
        """Sends a PING with a request. Only its acknowledgement proves that the server is alive: other
        datagrams may have waited in the socket since before the server died."""
        if self.protocol is not None:
            if self._probe is not None:
                self._probe.cancel()
            self._probe = asyncio.ensure_future(self.protocol.ping())
            # The probe's exception is read here, so that the loop does not report it. If the connection ends,
            # its requests raise the error.
            self._probe.add_done_callback(lambda probe: probe.cancelled() or probe.exception())

    @property
    def patience(self) -> float:
        """Seconds in which a live server acknowledges something, even if a few packets are lost."""
        rtt = 0.0 if self.protocol is None else self.protocol.stats()["rtt"]
        return max(SILENCE_SECONDS, SILENCE_ROUND_TRIPS * rtt)

    async def wait_established(self) -> None:
        """Waits until the handshake has succeeded or failed."""
        while self.is_connecting:
            self._changed.clear()
            await self._changed.wait()

    def retire(self) -> None:
        """Gives the connection no new requests, and closes it when its open requests have ended."""
        self._retired = True
        if not self.streams:
            self.close()

    def close(self) -> None:
        """Closes the connection. Its open requests fail."""
        self._retired = True
        if self.idle_timer is not None:
            self.idle_timer.cancel()
            self.idle_timer = None
        self._ending.set()
        if self.protocol is None:
            self.task.cancel()

    def _expire(self, timeout: float) -> None:
        if self.is_connecting:
            # Closing may take a while, so the end is reported first, and requests with more time get another
            # connection.
            self.error = ConnectTimeoutError(f"no connection within {timeout:g} s")
            self._retired = True
            self._ending.set()
            self.task.cancel()
            self._notify()

    async def _keep(self, configuration: QuicConfiguration) -> None:
        try:
            await self._open_and_keep(configuration)
        except asyncio.CancelledError:
            if not isinstance(self.error, ConnectTimeoutError):
                # The loop or the client is closing, so no other connection is tried.
                self.is_cancelled = True
                self.error = self.error or ConnectError("the connection was cancelled")
                raise
        except Exception as exc:  # noqa: BLE001 - the waiting requests raise it
            self.error = self.error or exc
        finally:
            self.is_over = True
            if self._probe is not None:
                self._probe.cancel()
            if self.is_early and not self.is_established:
                self._resumption.forget()
            if self._timer is not None:
                self._timer.cancel()
            self._notify()

    async def _open_and_keep(self, configuration: QuicConfiguration) -> None:
        host, port = self.route.host, self.route.port
        if self.is_early:
            assert self._resumption.address is not None
            host, port = self._resumption.address
        async with quic_connect(
            host,
            port,
            configuration=configuration,
            create_protocol=HTTP3ClientProtocol,
            session_ticket_handler=self._resumption.tickets.append,
            token_handler=self._resumption.keep_token,
            wait_connected=not self.is_early,
        ) as protocol:
            protocol.on_change = self._notify
            protocol.begin()
            self.protocol = protocol
            self._notify()
            if self.is_early:
                await self._wait_answer()
            self._remember(protocol)
            await self._ending.wait()
            protocol.close(ErrorCode.H3_NO_ERROR)

    async def _wait_answer(self) -> None:
        patience = max(ATTEMPT_DELAY, PATIENCE_ROUND_TRIPS * self._resumption.rtt)
        try:
            await within(self.wait_established(), patience)
        except asyncio.TimeoutError:
            self._ending.set()

    def _remember(self, protocol: HTTP3ClientProtocol) -> None:
        peer = protocol.get_extra_info("peername")
        if protocol.is_established and peer is not None:
            self._resumption.address = (peer[0], peer[1])
            self._resumption.rtt = protocol.stats()["rtt"]

    def _notify(self) -> None:
        self._changed.set()
        if self.protocol is not None and self.protocol.lost is not None:
            self.error = self.error or self.protocol.lost
            self._ending.set()
        self._on_change(self)
