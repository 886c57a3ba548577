"""The duration and the number of the rounds of a benchmark."""

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
    """The number of rounds in which system calls are counted, in a separate short window."""
    keep_going: bool
    peers: frozenset[str] = frozenset()
    """Only these peers; all when empty."""
    quick: bool = False
    """True if cases with an amount use the smaller one."""


SECONDS_MIN = 1.0
"""Figures of a shorter timed window depend more on the moment than on the server."""
GRACE_SECONDS = 60.0
"""A visit that takes this much longer than its windows is a hang."""
AMOUNT_SECONDS = 300.0
"""The longest duration of a visit that ends after an amount."""
AMOUNT_ROUNDS = 3
"""The most rounds of those: the slowest peer needs a minute for each."""
