"""Runs the interoperability table: `python -m tests.interop [--cases ...] [--peers ...] [--roles
...]`.

Every case runs with every peer in both roles. Each cell is printed when it is known and stored in
`results.json`; `python -m tests.interop.table` writes docs/interoperability.md. The status is 1 if
a cell is ours-fails.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.interop.peers import OURS, PEERS, TABLES, Peer, version_of
from tests.interop.results import FILE, LACKS, OURS_FAILS, PASS, Cell, Results
from tests.interop.runner.case_run import PASSED, UNSUPPORTED, play
from tests.interop.runner.cases import CASES, Case
from tests.support import third_party_programs

ROLES = ("server", "client")
# The peers for cases outside the matrix: network impairments, which test one end.
RUNNER_PEERS = (OURS, "aioquic", "quic-go")
EVERYBODY = list(dict.fromkeys(name for names in TABLES.values() for name in names))


def main() -> int:
    """Runs the requested cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--peers", nargs="+", choices=EVERYBODY, default=EVERYBODY)
    parser.add_argument("--roles", nargs="+", choices=ROLES, default=list(ROLES))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--ours",
        choices=PEERS,
        default=OURS,
        help="the program in uringcore's role; only uringcore's cells are saved",
    )
    parser.add_argument("--json", type=Path, default=FILE, help="the file of cells")
    options = parser.parse_args()
    third_party_programs.fetch_from_now_on()
    results = Results.load(options.json)
    bad = 0
    with tempfile.TemporaryDirectory(prefix="interop-") as folder:
        for name in options.cases:
            case = CASES[name]
            for peer in options.peers:
                if peer not in (TABLES[case.table] if case.matrix else RUNNER_PEERS):
                    continue
                if missing := PEERS[peer].missing(name) or PEERS[options.ours].missing(name):
                    print(f"{name:20} {peer:10} absent: {missing}", flush=True)
                    if options.ours == OURS and results.drop(name, peer):
                        results.save(options.json)
                    continue
                ends = PEERS[options.ours], PEERS[peer]
                for role in _roles(case, ends[1], options.roles):
                    cell = asyncio.run(_cell(case, ends, role, Path(folder) / "run", options.seed))
                    if options.ours == OURS:
                        results.versions[peer] = version_of(peer)
                        results.put(name, peer, role, cell)
                        results.save(options.json)
                    bad += cell.verdict == OURS_FAILS
                    figures = " ".join(f"{value:g} {unit}" for unit, value in cell.figures.items())
                    line = f"{name:20} {peer:10} ours is {role:6}  {cell.verdict:10}"
                    print(f"{line} {cell.seconds:6.1f} s {figures} {cell.proof}", flush=True)
    return 1 if bad else 0


def _roles(case: Case, peer: Peer, wanted: list[str]) -> list[str]:
    """The roles of uringcore: against itself, one run covers both."""
    if peer.name == OURS:
        return ["server"]
    others = {"server": "client", "client": "server"}
    return [role for role in wanted if role in case.roles and others[role] in peer.roles]


async def _cell(case: Case, ends: tuple[Peer, Peer], role: str, folder: Path, seed: int) -> Cell:
    ours, theirs = ends
    server, client = (ours, theirs) if role == "server" else (theirs, ours)
    outcome = await play(case, server, client, folder, seed)
    if outcome.verdict == PASSED:
        return Cell(PASS, "", round(outcome.seconds, 2), outcome.figures)
    if theirs.name == OURS:
        return Cell(OURS_FAILS, outcome.reason)
    if outcome.verdict == UNSUPPORTED:
        by_peer = outcome.by != role
        return Cell(LACKS if by_peer else OURS_FAILS, outcome.reason)
    if theirs.roles != ROLES:
        return Cell(OURS_FAILS, outcome.reason)
    alone = await play(case, theirs, theirs, folder, seed)
    if alone.verdict == PASSED:
        return Cell(OURS_FAILS, outcome.reason)
    return Cell(LACKS, f"also between two of its own endpoints: {alone.reason}")


if __name__ == "__main__":
    sys.exit(main())
