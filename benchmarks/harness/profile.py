"""The distribution of a case's processor time: `run.py --profile`.

Each visit has three windows on one server: samples of its clock (sampling.py), its packets and system calls,
and calls counted by probes (kernel_counts.py). Shares and counts are valid on a loaded machine, times are
not: the tables have the rates, the profile has none.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness import figures, kernel_counts, machine, sampling, syscalls
from benchmarks.harness.cases import CASES, Case
from benchmarks.harness.environment import Environment
from benchmarks.harness.peers import PEERS, load_command
from benchmarks.harness.process import BenchmarkFailure, Server, run_load
from benchmarks.harness.results import path_of, write
from benchmarks.harness.round_plan import GRACE_SECONDS

PEERS_SHOWN = ("uringcore-uring", "quinn", "quinn + h3")
COUNTED_SECONDS = 0.5
FUNCTIONS = 25
PAGE = "profile"
"""Its page in `docs/benchmarks`, and its file of figures."""


@dataclass
class PeerProfile:
    """One peer in one case."""

    cpu_us_per_unit: float
    samples: int
    shares: dict[str, float]
    """The part of each room of `sampling.ROOMS`, 0 to 1."""
    functions: list[tuple[str, str, float]] = field(default_factory=list)
    """The functions with most samples: room, name, share. The figures leave them out."""
    counts: dict[str, float] = field(default_factory=dict)
    """Counts for each unit of the case, and packets a batch."""

    def to_json(self) -> dict[str, Any]:
        """Returns the profile's line in the figures."""
        return {
            "cpu_us_per_unit": figures.rounded(self.cpu_us_per_unit),
            "samples": self.samples,
            "shares": {room: figures.rounded(share) for room, share in self.shares.items()},
            "counts": {name: figures.rounded(count) for name, count in self.counts.items()},
        }


@dataclass
class CaseProfile:
    """One case and its machine."""

    case: str
    machine: dict[str, Any]
    peers: dict[str, PeerProfile] = field(default_factory=dict)

    def save(self) -> Path:
        """Write `results/profile_<case>.json`."""
        return write(f"profile_{self.case}", self)

    def keep(self) -> None:
        """Replace its figures."""
        peers = {name: peer.to_json() for name, peer in self.peers.items()}
        figures.keep(PAGE, self.case, {"machine": self.machine, "peers": peers})

    @classmethod
    def load(cls, case: str) -> CaseProfile | None:
        """Read its figures, or None where there are none."""
        raw = figures.read(PAGE).get(case)
        return None if raw is None else cls._of({"case": case, **raw})

    @classmethod
    def load_result(cls, case: str) -> CaseProfile | None:
        """Read `results/profile_<case>.json`, or None where there is none."""
        path = path_of(f"profile_{case}")
        return cls._of(json.loads(path.read_text())) if path.exists() else None

    @classmethod
    def _of(cls, raw: dict[str, Any]) -> CaseProfile:
        peers = {name: PeerProfile(**value) for name, value in raw.pop("peers").items()}
        return cls(**raw, peers=peers)


def collect() -> int:
    """Make the figures of the profiles in `benchmarks/results` again; returns their number.

    Results that are older than the committed table are skipped.
    """
    found = [
        one
        for case in CASES
        if (one := CaseProfile.load_result(case.name)) is not None
        and not figures.is_older(PAGE, case.name, one.machine)
    ]
    for one in found:
        one.keep()
    return len(found)


def unavailable() -> str | None:
    """The reason why this machine cannot profile, or None."""
    return sampling.unavailable() or syscalls.unavailable() or kernel_counts.unavailable()


def profile_case(
    case: Case, environment: Environment, seconds: float, peers: frozenset[str]
) -> CaseProfile:
    """Profile `case` with each of `peers`, or with `PEERS_SHOWN` if there are none.

    Raises `BenchmarkFailure` if one of them is absent or fails.
    """
    result = CaseProfile(case.name, machine.facts(environment))
    for peer in PEERS[case.family]:
        if peer.name not in (peers or PEERS_SHOWN):
            continue
        reason = "it is no server" if peer.alone else peer.absent(environment)
        if reason is not None:
            raise BenchmarkFailure(f"{peer.name}: {reason}")
        with Server(peer.name, peer.command(environment), {"PYTHONPATH": ""}) as server:
            command = load_command(environment, case, peer, server)
            result.peers[peer.name] = _visit(case, command, server.pid, seconds)
        print(_told(peer.name, result.peers[peer.name]), flush=True)
    return result


def _visit(case: Case, command: list[str], pid: int, seconds: float) -> PeerProfile:
    limit = seconds + GRACE_SECONDS
    long = [*command, "--seconds", str(seconds), "--warmup", "0.2"]
    short = [*command, "--seconds", str(COUNTED_SECONDS), "--warmup", "0"]
    if case.amount is not None:
        long += case.amount.arguments(quick=True, counting=False)
        short += case.amount.arguments(quick=True, counting=True)
    with sampling.Sampler(pid) as sampler:
        sample = run_load(long, limit)
    with kernel_counts.PacketCounter(pid) as packets, syscalls.SyscallCounter(pid) as calls:
        moved = case.unit.count_of_visit(run_load(packets.wrap(short), limit))
    samples = sampler.samples
    counts = {
        "packets_in": packets.received.packets / moved,
        "packets_out": packets.sent.packets / moved,
        "batch_in": packets.received.packets / max(packets.received.batches, 1),
        "batch_out": packets.sent.packets / max(packets.sent.batches, 1),
        "syscalls": calls.count / moved,
    }
    with kernel_counts.CallCounter(pid) as counter:
        moved = case.unit.count_of_visit(run_load(short, limit))
    counts |= {name: counter.counts.get(name, 0) / moved for name in kernel_counts.CALLS}
    return PeerProfile(
        cpu_us_per_unit=sample["server_cpu_ns"] / 1000 / case.unit.count_of(sample),
        samples=samples.total,
        shares=samples.shares(),
        functions=samples.top(FUNCTIONS),
        counts=counts,
    )


def _told(name: str, found: PeerProfile) -> str:
    shares = [f"{room} {share:.1%}" for room, share in found.shares.items() if share >= 0.005]
    counts = [f"{what} {count:.3g}" for what, count in found.counts.items()]
    functions = [f"    {share:6.1%}  {room:16} {what}" for room, what, share in found.functions]
    return "\n".join(
        [
            f"  {name}: {found.cpu_us_per_unit:.3g} µs a unit, {found.samples} samples",
            f"    {', '.join(shares)}",
            f"    {', '.join(counts)}",
            *functions,
        ]
    )
