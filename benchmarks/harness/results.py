"""Result files: every sample of every round, and the medians and spreads drawn from them."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness.environment import HERE

RESULTS = HERE / "results"
MAIN_PYTHON = "3.13"
"""The interpreter of the whole tables; what was measured on another one is told in ratios beside them."""


def path_of(name: str, python: str = MAIN_PYTHON) -> Path:
    """The file of a case's or a matrix's result on the interpreter `python`, in a folder that is there."""
    minor = ".".join(python.split(".")[:2])
    folder = RESULTS if minor == MAIN_PYTHON else RESULTS / f"cpython-{minor}"
    folder.mkdir(exist_ok=True)
    return folder / f"{name}.json"


def other_pythons() -> list[str]:
    """Which other interpreters there are results of."""
    found = [folder.name.removeprefix("cpython-") for folder in RESULTS.glob("cpython-*")]
    return sorted(found, key=lambda version: [int(part) for part in version.split(".")])


@dataclass
class Spread:
    """A median with the smallest and the largest of its samples."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> Spread | None:
        """The spread of `values`, or None where there are none."""
        if not values:
            return None
        return cls(statistics.median(values), min(values), max(values))


@dataclass
class PeerResult:
    """What one peer did in one case: its samples, or why there are none."""

    absent: str | None = None
    failed: str | None = None
    samples: list[dict[str, float]] = field(default_factory=list)

    def spread(self, name: str) -> Spread | None:
        """The spread of one of the load generator's numbers over the rounds that have it."""
        return Spread.of([sample[name] for sample in self.samples if name in sample])


@dataclass
class CaseResult:
    """One case with the machine it ran on."""

    case: str
    machine: dict[str, Any]
    rounds: int
    seconds: float
    amount: str | None = None
    """What a visit did, where it did not last so many seconds."""
    peers: dict[str, PeerResult] = field(default_factory=dict)

    def save(self) -> Path:
        """Write it to its file."""
        path = path_of(self.case, self.machine["python"])
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")
        return path

    @classmethod
    def load(cls, case: str, python: str = MAIN_PYTHON) -> CaseResult | None:
        """Read what was measured on `python`, or None where nothing was."""
        path = path_of(case, python)
        if not path.exists():
            return None
        raw = json.loads(path.read_text())
        peers = {name: PeerResult(**value) for name, value in raw.pop("peers").items()}
        return cls(**raw, peers=peers)
