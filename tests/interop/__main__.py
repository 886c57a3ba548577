"""Plays the interoperability table: `python -m tests.interop [--cases ...] [--peers ...] [--roles ...]`.

Every case with every peer, both roles. Each cell is printed as it comes and kept in `results.json`;
`python -m tests.interop.table` makes the README's table of it. The status is 1 if a cell is ours-fails.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.interop.peers import OURS, PEERS, version_of
from tests.interop.results import FILE, LACKS, OURS_FAILS, PASS, Cell, Results
from tests.interop.runner.cases import CASES, Case
from tests.interop.runner.play import PASSED, UNSUPPORTED, play

ROLES = ("server", "client")
# Who plays the cases that are not the matrix's: the harms of the network, which are about one end.
RUNNER_PEERS = (OURS, "aioquic", "quic-go")
MATRIX_PEERS = (OURS, "aioquic", "qh3", "aiopquic", "quic-go", "quinn")


def main() -> int:
    """Plays what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--peers", nargs="+", choices=MATRIX_PEERS, default=list(MATRIX_PEERS))
    parser.add_argument("--roles", nargs="+", choices=ROLES, default=list(ROLES))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, default=FILE, help="where cells are kept")
    options = parser.parse_args()
    results = Results.load(options.json)
    bad = 0
    with tempfile.TemporaryDirectory(prefix="interop-") as folder:
        for name in options.cases:
            case = CASES[name]
            for peer in options.peers:
                if not case.matrix and peer not in RUNNER_PEERS:
                    continue
                if PEERS[peer].missing() is not None:
                    print(f"{name:20} {peer:10} absent: {PEERS[peer].missing()}", flush=True)
                    continue
                results.versions[peer] = version_of(peer)
                # With ourselves, one run is both roles.
                roles = ["server"] if peer == OURS else options.roles
                for role in roles:
                    cell = asyncio.run(_cell(case, peer, role, Path(folder) / "run", options.seed))
                    results.put(name, peer, role, cell)
                    results.save(options.json)
                    bad += cell.verdict == OURS_FAILS
                    figures = " ".join(f"{value:g} {unit}" for unit, value in cell.figures.items())
                    line = f"{name:20} {peer:10} ours is {role:6}  {cell.verdict:10}"
                    print(f"{line} {cell.seconds:6.1f} s {figures} {cell.proof}", flush=True)
    return 1 if bad else 0


async def _cell(case: Case, peer: str, role: str, folder: Path, seed: int) -> Cell:
    ours, theirs = PEERS[OURS], PEERS[peer]
    server, client = (ours, theirs) if role == "server" else (theirs, ours)
    outcome = await play(case, server, client, folder, seed)
    if outcome.verdict == PASSED:
        return Cell(PASS, "", round(outcome.seconds, 2), outcome.figures)
    if peer == OURS:
        return Cell(OURS_FAILS, outcome.reason)
    if outcome.verdict == UNSUPPORTED:
        by_peer = outcome.by != role
        return Cell(LACKS if by_peer else OURS_FAILS, outcome.reason)
    alone = await play(case, theirs, theirs, folder, seed)
    if alone.verdict == PASSED:
        return Cell(OURS_FAILS, outcome.reason)
    return Cell(LACKS, f"between two of it as well: {alone.reason}")


if __name__ == "__main__":
    sys.exit(main())
