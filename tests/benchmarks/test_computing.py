"""Responses that need time: each server responds to the clients of each protocol, and its costs are
counted.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.harness import syscalls
from benchmarks.programs import computing
from benchmarks.programs.certificate import write as write_certificate
from benchmarks.programs.deployed import CERTIFICATES
from benchmarks.servers.computing import OURS_ALONE, WIRES
from benchmarks.servers.loops import OURS

LOOPS = ("asyncio", "uvloop", *OURS)
SERVED = [
    (loop, wire) for loop in LOOPS for wire in WIRES if loop in OURS or wire not in OURS_ALONE
]


@pytest.mark.parametrize(("loop", "wire"), SERVED)
def test_each_wire_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, loop: str, wire: str
) -> None:
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    write_certificate(tmp_path)
    monkeypatch.setenv(CERTIFICATES, str(tmp_path))
    monkeypatch.setattr(computing, "CLIENTS", 5)
    monkeypatch.setitem(computing.BURSTS, 1, 2)
    rows = computing.measure(loop, wire, 1)
    found = {row.rpartition(": ")[2]: value for row, value in rows.items()}
    assert found.pop("first, ms") <= found.pop("median, ms") <= found.pop("last, ms")
    assert found.pop("processor time an answer, µs") > 0
    if syscalls.unavailable() is None:
        assert found.pop("system calls an answer") > 0
    assert not found
