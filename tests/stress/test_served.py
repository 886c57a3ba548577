"""A short trial of a server under load with faults; `python -m tests.stress.served` runs longer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.http import http3_bytes
from tests.stress.served.trial import FAULTS, trial
from tests.stress.served.verifying_clients import goaways
from tests.support.interpreter_roles import is_default_interpreter

SEED = int(os.environ.get("STRESS_SEED", "20"))
SECONDS = float(os.environ.get("STRESS_SECONDS", "5"))


@pytest.mark.soak
@pytest.mark.timeout(SECONDS + 900)
@pytest.mark.skipif(
    not is_default_interpreter(), reason="the fault tests do not depend on the interpreter"
)
@pytest.mark.either_backend
@pytest.mark.parametrize("backend", ["uring", "epoll"])
def test_no_request_is_lost_under_faults(backend: str, tmp_path: Path) -> None:
    report = trial(backend, SEED, SECONDS, tmp_path)
    again = f"python -m tests.stress.served --seed {SEED} --seconds {SECONDS} --backend {backend}"
    assert not report.violations, "\n".join([again, *report.violations])
    assert report.phases.keys() == {"calm", "drain", *FAULTS}
    assert len(report.answered) > 4


def test_goaway_is_read_from_the_control_stream() -> None:
    said = [
        http3_bytes.frame(http3_bytes.GOAWAY, http3_bytes.varint(number))
        for number in (http3_bytes.HIGHEST_REQUEST, 8)
    ]
    control = http3_bytes.varint(http3_bytes.CONTROL) + http3_bytes.settings({}) + b"".join(said)
    assert list(goaways(control)) == [http3_bytes.HIGHEST_REQUEST, 8]
    assert list(goaways(http3_bytes.varint(http3_bytes.QPACK_ENCODER) + said[0])) == []
    assert list(goaways(b"")) == []
