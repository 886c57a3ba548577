"""Result files: every sample of every round.

Git ignores them. The committed medians and spreads of these samples are figures.py's.
"""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness.environment import HERE

RESULTS = HERE / "results"


def minor_version(machine: dict[str, Any]) -> str:
    """CPython's version without its patch number, as "3.11"."""
    return ".".join(machine["python"].split(".")[:2])


def path_of(name: str, beside: str = "") -> Path:
    """The file of a result of the full tables, or of the interpreter `beside`."""
    folder = RESULTS / f"cpython-{beside}" if beside else RESULTS
    return folder / f"{name}.json"


def write(name: str, result: Any, *, beside: bool = False) -> Path:
    """Write a result, a dataclass with its machine, to its file."""
    path = path_of(name, minor_version(result.machine) if beside else "")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(result), indent=1) + "\n")
    return path


def other_pythons() -> list[str]:
    """The interpreters with results beside the full tables."""
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
        """The spread of `values`, or None without values."""
        if not values:
            return None
        return cls(statistics.median(values), min(values), max(values))


@dataclass
class PeerResult:
    """The samples of one peer in one case, or the reason why there are none."""

    absent: str | None = None
    failed: str | None = None
    samples: list[dict[str, float]] = field(default_factory=list)

    def spread(self, name: str) -> Spread | None:
        """The spread of one of the load generator's numbers over the rounds that have it."""
        return Spread.of([sample[name] for sample in self.samples if name in sample])


@dataclass
class CaseResult:
    """One case and its machine."""

    case: str
    machine: dict[str, Any]
    rounds: int
    seconds: float
    amount: str | None = None
    """The amount of a visit's work, if the visit did not end after `seconds`."""
    peers: dict[str, PeerResult] = field(default_factory=dict)

    def save(self, *, beside: bool = False) -> Path:
        """Write it to its file; with `beside` to the file of an interpreter with ratios only."""
        return write(self.case, self, beside=beside)

    @classmethod
    def load(cls, case: str, beside: str = "") -> CaseResult | None:
        """Read it, or the result of the interpreter `beside`; None if there is no file."""
        path = path_of(case, beside)
        if not path.exists():
            return None
        raw = json.loads(path.read_text())
        peers = {name: PeerResult(**value) for name, value in raw.pop("peers").items()}
        return cls(**raw, peers=peers)
