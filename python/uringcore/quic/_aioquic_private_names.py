"""Private names of aioquic's connection that real programs use: measurements, the end, the peer's IDs.

They are computed from public attributes; only the end of the connection is stored for them. The tables of
streams and paths are in :mod:`uringcore.quic._aioquic_private_tables`.

The state machine does not expose unused connection IDs of the peer, so only their numbers are visible.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from uringcore.quic.events import ConnectionTerminated

if TYPE_CHECKING:
    from uringcore._uringcore import QuicConnectionCore as _Core
else:
    _Core = object

__all__ = ["END_STATES", "PrivateNames", "QuicConnectionId", "QuicConnectionState", "Recovery"]


class QuicConnectionState(Enum):
    """The stage of a connection's life, as far as a program can see it."""

    FIRSTFLIGHT = 0
    CONNECTED = 1
    CLOSING = 2
    DRAINING = 3
    TERMINATED = 4


END_STATES = frozenset(
    {QuicConnectionState.CLOSING, QuicConnectionState.DRAINING, QuicConnectionState.TERMINATED}
)


@dataclass
class QuicConnectionId:
    """A connection ID of the peer.

    ``cid`` is empty if the state machine does not expose it: for unused IDs, and for the one in use after a
    change.
    """

    cid: bytes
    sequence_number: int
    stateless_reset_token: bytes = b""
    was_sent: bool = False


class Recovery:
    """The measurements of a connection (RFC 9002), under aioquic's names. ``stats()`` has more of them."""

    def __init__(self, stats: Callable[[], dict[str, Any]]) -> None:
        self._stats = stats

    @property
    def _rtt_initialized(self) -> bool:
        return bool(self._stats()["latest_rtt"])

    @property
    def _rtt_latest(self) -> float:
        return float(self._stats()["latest_rtt"])

    @property
    def _rtt_min(self) -> float:
        return float(self._stats()["min_rtt"]) if self._rtt_initialized else float("inf")

    @property
    def _rtt_smoothed(self) -> float:
        return float(self._stats()["rtt"]) if self._rtt_initialized else 0.0

    @property
    def _rtt_variance(self) -> float:
        return float(self._stats()["rtt_variance"]) if self._rtt_initialized else 0.0

    @property
    def bytes_in_flight(self) -> int:
        """Bytes sent, and neither acknowledged nor lost."""
        return int(self._stats()["bytes_in_flight"])

    @property
    def congestion_window(self) -> int:
        """The number of bytes that may be in flight."""
        return int(self._stats()["congestion_window"])

    @property
    def ssthresh(self) -> int | None:
        """The congestion window at which slow start ends, in bytes. ``None`` before the first loss."""
        ssthresh: int | None = self._stats()["ssthresh"]
        return ssthresh

    @property
    def _cc(self) -> Recovery:
        return self


class PrivateNames(_Core):
    """A base class of ``QuicConnection``."""

    _close_event: ConnectionTerminated | None = None
    _close_pending: bool = False

    @property
    def _datagrams_pending(self) -> list[bytes]:
        """DATAGRAM frames that wait to be sent, in order: a new list each time."""
        waiting: list[bytes] = self._queued_datagrams()
        return waiting

    @property
    def _loss(self) -> Recovery:
        return Recovery(self.stats)

    @property
    def _state(self) -> QuicConnectionState:
        event = self._close_event
        # As in aioquic, a connection counts as closing from the time at which the packet with its
        # CONNECTION_CLOSE was made.
        if self.is_closed or (event is not None and not self._close_pending):
            if self.get_timer() is None:
                return QuicConnectionState.TERMINATED
            is_ours = event is not None and event.kind == "local"
            return QuicConnectionState.CLOSING if is_ours else QuicConnectionState.DRAINING
        if self.is_established or self.stats()["datagrams_received"]:
            return QuicConnectionState.CONNECTED
        return QuicConnectionState.FIRSTFLIGHT

    @property
    def _peer_cid(self) -> QuicConnectionId:
        retired = self._peer_cids_retired()
        first: bytes | None = self._peer_connection_id()
        return QuicConnectionId(b"" if retired or first is None else first, retired)

    @property
    def _peer_cid_available(self) -> list[QuicConnectionId]:
        numbers = sorted(self._peer_cid_sequence_numbers)
        return [
            QuicConnectionId(b"", number) for number in numbers[self._peer_cids_retired() + 1 :]
        ]

    @property
    def _peer_cid_sequence_numbers(self) -> set[int]:
        return set(range(self.stats()["connection_ids_received"] + 1))

    def _peer_cids_retired(self) -> int:
        """Returns the number of the peer's IDs that were retired: the state machine retires the oldest
        ones.
        """
        stats = self.stats()
        return int(min(stats["connection_ids_retired"], stats["connection_ids_received"]))

    def _note_close(self, event: ConnectionTerminated, *, is_pending: bool) -> None:
        if self._close_event is None:
            self._close_event = event
        self._close_pending = is_pending
