"""How long a benchmark runs and how often."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """One run of the benchmarks."""

    rounds: int
    seconds: float
    """The timed window of one visit."""
    warmup: float
    counted_rounds: int
    """In how many rounds system calls are counted, a short window of its own."""
    keep_going: bool
    peers: frozenset[str] = frozenset()
    """Only these peers; all when empty."""
    quick: bool = False
    """Whether cases that last as long as their amount does get the smaller one."""


SECONDS_MIN = 1.0
"""A shorter timed window measures the moment more than the server."""
GRACE_SECONDS = 60.0
"""A visit that lasts this much longer than its windows hangs."""
AMOUNT_SECONDS = 300.0
"""How long a visit whose end is an amount may last."""
AMOUNT_ROUNDS = 3
"""No more rounds of those: the slowest peer needs a minute for each."""
