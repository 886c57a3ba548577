"""A short run of every kind of scenario on each loop; `python -m tests.stress` runs for any time."""

from __future__ import annotations

import os
import sys

import pytest

from tests.stress.byte_pattern import Pattern, Violation
from tests.stress.scenarios import SCENARIOS
from tests.stress.stream_peers import End
from tests.stress.stress_round import StressRound, stress
from tests.support.interpreter_roles import is_newest_interpreter

SEED = int(os.environ.get("STRESS_SEED", "20"))
# Half a minute for each backend over the five interpreters, most of it on the newest one.
SECONDS = float(os.environ.get("STRESS_SECONDS", "20" if is_newest_interpreter() else "3"))
# CPython 3.10's process streams never retrieve the BrokenPipeError of a closed stdin.
CHOSEN = [
    scenario
    for scenario in SCENARIOS
    if sys.version_info >= (3, 11) or scenario.__name__ != "process"
]


@pytest.mark.soak
@pytest.mark.timeout(SECONDS + 600)
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("backend", ["uring", "epoll"])
def test_every_rule_holds(backend: str) -> None:
    """Stock asyncio is left to the command line: now and then its `start_tls` breaks a rule."""
    report = stress(backend, SEED, SECONDS, CHOSEN)
    again = f"python -m tests.stress --seed {SEED} --seconds {SECONDS} --backend {backend}"
    assert not report.violations, "\n".join([again, *report.violations])
    assert report.rounds > 0 and sum(report.scenarios.values()) > 0


def test_a_pattern_finds_what_is_lost_doubled_or_altered() -> None:
    whole = Pattern("key").take(200_000)
    Pattern("key").check(whole)
    for wrong in (whole[1:], whole[:70_000] + whole[69_999:], whole[:-1] + b"\0\0"):
        with pytest.raises(Violation):
            Pattern("key").check(wrong)


def test_an_end_notes_calls_out_of_order(tmp_path: object) -> None:
    import random

    stress_round = StressRound("asyncio", "test", tmp_path)  # type: ignore[arg-type]
    end = End(stress_round, "end", "key", random.Random(1))
    end.data_received(b"too early")
    end.connection_lost(None)
    end.connection_lost(None)
    assert len(stress_round.violations) >= 3
