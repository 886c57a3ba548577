"""One direction of a network path as a pure function of a seed and of time.

A `Link` returns the arrival times and contents of each datagram. It has no socket and no clock, so a test
can send a million datagrams through it in a second.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

__all__ = ["PERFECT", "Conditions", "Counts", "Link"]

QUEUE_MAX = 4096
"The maximum length of the link's queue, unless the conditions set another one."


@dataclass(frozen=True)
class Conditions:
    """The impairments of a direction. Probabilities are between 0 and 1, times are in seconds."""

    delay: float = 0.0
    """Time from the end of the transmission to the arrival."""
    rate: float | None = None
    """Bits of UDP payload and headers a second; `None` is no limit."""
    queue: int | None = None
    """Datagrams that may wait while another is being sent; more are dropped. Needs `rate`."""
    loss: float = 0.0
    """The share of lost datagrams."""
    burst: float | None = None
    """The mean length of a run of losses (Gilbert's model); `None` makes each loss independent."""
    burst_max: int | None = None
    """After this number of losses in a row one datagram arrives."""
    drop: frozenset[int] = frozenset()
    """Ordinals, from 1, of datagrams that are always dropped."""
    reorder: float = 0.0
    """The share of datagrams that are delayed by `reorder_delay`."""
    reorder_delay: float = 0.01
    duplicate: float = 0.0
    corrupt: float = 0.0
    """The share of datagrams in which one byte is changed."""
    corrupt_max: int | None = None
    """After this number of corruptions in a row one datagram is unchanged."""
    black_hole: tuple[float, float] | None = None
    """Seconds up and seconds down, repeated from the link's first datagram on."""

    def __post_init__(self) -> None:
        for name in ("loss", "reorder", "duplicate", "corrupt"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}: must be between 0 and 1, is {getattr(self, name)}")
        if self.burst is not None and self.burst < 1:
            raise ValueError(f"burst: a run of losses has at least one, not {self.burst}")
        if self.rate is not None and self.rate <= 0:
            raise ValueError(f"rate: must be above 0, is {self.rate}")
        if self.queue is not None and self.rate is None:
            raise ValueError("queue: nothing waits on a link without a rate")


PERFECT = Conditions()


@dataclass
class Counts:
    """Counts of the datagrams of a direction, by result."""

    taken: int = 0
    """Datagrams that entered the link."""
    bytes_taken: int = 0
    arrived: int = 0
    """Datagrams with a time of arrival, including duplicates."""
    bytes_arrived: int = 0
    lost: int = 0
    """Datagrams lost at random."""
    dropped: int = 0
    """Datagrams dropped by their ordinal."""
    overflowed: int = 0
    """Datagrams dropped because the queue was full."""
    swallowed: int = 0
    """Datagrams dropped while the link was down."""
    reordered: int = 0
    duplicated: int = 0
    corrupted: int = 0


@dataclass
class Link:
    """A direction with its own random generator and state."""

    conditions: Conditions = PERFECT
    seed: int = 0
    counts: Counts = field(default_factory=Counts)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._free_at = 0.0
        self._waiting: deque[float] = deque()
        self._began: float | None = None
        self._in_burst = False
        self._lost_in_a_row = 0
        self._corrupted_in_a_row = 0

    def send(self, now: float, data: bytes) -> list[tuple[float, bytes]]:
        """Sends a datagram at `now`. Returns its arrivals with their content: none, one or two."""
        counts, conditions = self.counts, self.conditions
        if self._began is None:
            self._began = now
        counts.taken += 1
        counts.bytes_taken += len(data)
        if counts.taken in conditions.drop:
            counts.dropped += 1
            return []
        if self._is_down(now):
            counts.swallowed += 1
            return []
        departure = self._departure(now, len(data))
        if departure is None:
            counts.overflowed += 1
            return []
        # Lost datagrams use the link: the loss is behind the bottleneck.
        if self._is_lost():
            counts.lost += 1
            return []
        if self._is_corrupted():
            counts.corrupted += 1
            data = self._changed(data)
        arrival = departure + conditions.delay
        if self._happens(conditions.reorder):
            counts.reordered += 1
            arrival += conditions.reorder_delay
        arrivals = [(arrival, data)]
        if self._happens(conditions.duplicate):
            counts.duplicated += 1
            arrivals.append((arrival, data))
        counts.arrived += len(arrivals)
        counts.bytes_arrived += len(data) * len(arrivals)
        return arrivals

    def _happens(self, chance: float) -> bool:
        # A probability of 0 draws no number, so enabling one impairment does not change the others.
        return chance > 0 and self._chance.random() < chance

    def _is_down(self, now: float) -> bool:
        hole = self.conditions.black_hole
        if hole is None or self._began is None:
            return False
        up, down = hole
        return (now - self._began) % (up + down) >= up

    def _departure(self, now: float, size: int) -> float | None:
        """Returns the time at which the last bit has left, or None if the queue is full."""
        rate = self.conditions.rate
        if rate is None:
            return now
        waiting = self._waiting
        while waiting and waiting[0] <= now:
            waiting.popleft()
        # The first one is being sent, the others wait.
        limit = QUEUE_MAX if self.conditions.queue is None else self.conditions.queue
        if len(waiting) > limit:
            return None
        self._free_at = max(self._free_at, now) + (size + _HEADERS) * 8 / rate
        waiting.append(self._free_at)
        return self._free_at

    def _is_lost(self) -> bool:
        conditions = self.conditions
        if conditions.loss == 0:
            return False
        lost = self._chance.random() < self._loss_chance()
        self._in_burst = lost
        limit = conditions.burst_max
        if lost and limit is not None and self._lost_in_a_row >= limit:
            lost = self._in_burst = False
        self._lost_in_a_row = self._lost_in_a_row + 1 if lost else 0
        return lost

    def _loss_chance(self) -> float:
        """Returns the loss probability of the next datagram; Gilbert's two states average to `loss`."""
        loss, burst = self.conditions.loss, self.conditions.burst
        if burst is None or loss == 1:
            return loss
        if self._in_burst:
            return 1 - 1 / burst
        return min(1.0, loss / burst / (1 - loss))

    def _is_corrupted(self) -> bool:
        corrupted = self._happens(self.conditions.corrupt)
        limit = self.conditions.corrupt_max
        if corrupted and limit is not None and self._corrupted_in_a_row >= limit:
            corrupted = False
        self._corrupted_in_a_row = self._corrupted_in_a_row + 1 if corrupted else 0
        return corrupted

    def _changed(self, data: bytes) -> bytes:
        if not data:
            return data
        changed = bytearray(data)
        changed[self._chance.randrange(len(data))] ^= self._chance.randrange(1, 256)
        return bytes(changed)


_HEADERS = 28
"IPv4's and UDP's headers, which a real link carries too."
