"""The cells of the interoperability table: their storage, and the verdicts.

A cell is a case, a peer and our role. Its verdict is `pass`; or `peer-lacks`, with the proof: the
peer's program reports that its library lacks the feature, or the case also fails between two
instances of the peer; or `ours-fails`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

__all__ = ["FILE", "LACKS", "OURS_FAILS", "PASS", "Cell", "Results"]

PASS, LACKS, OURS_FAILS = "pass", "peer-lacks", "ours-fails"
FILE = Path(__file__).with_name("results.json")


@dataclass
class Cell:
    """One verdict."""

    verdict: str
    proof: str = ""
    """The reason for a result other than `pass`."""
    seconds: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)


@dataclass
class Results:
    """All cells, by case, peer and our role ("server" or "client")."""

    cells: dict[str, dict[str, dict[str, Cell]]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    """Versions of the peers."""

    @classmethod
    def load(cls, path: Path = FILE) -> Results:
        """Returns the content of a file, or no cells if it does not exist."""
        if not path.exists():
            return cls()
        stored = json.loads(path.read_text())
        cells = {
            case: {
                peer: {role: Cell(**cell) for role, cell in roles.items()}
                for peer, roles in peers.items()
            }
            for case, peers in stored["cells"].items()
        }
        return cls(cells, stored["versions"])

    def save(self, path: Path = FILE) -> None:
        """Writes the file, in an order that makes differences readable."""
        cells = {
            case: {
                peer: {role: asdict(cell) for role, cell in roles.items()}
                for peer, roles in peers.items()
            }
            for case, peers in self.cells.items()
        }
        content = {"versions": self.versions, "cells": cells}
        path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")

    def put(self, case: str, peer: str, role: str, cell: Cell) -> None:
        """Sets a cell."""
        self.cells.setdefault(case, {}).setdefault(peer, {})[role] = cell

    def drop(self, case: str, peer: str) -> bool:
        """Removes the cells of a peer that is absent: they belong to another, older program.
        Returns true if there were any.
        """
        return self.cells.get(case, {}).pop(peer, None) is not None
