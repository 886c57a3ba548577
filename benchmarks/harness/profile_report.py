"""The profile's tables in BENCHMARK.md, from the result files of `run.py --profile`."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.harness import provenance
from benchmarks.harness.cases import CASES, Case
from benchmarks.harness.chart import figure
from benchmarks.harness.profile import CaseProfile, PeerProfile

# The columns of the first table, and the parts that each adds up.
COLUMNS = {
    "kernel: send": ("kernel: send",),
    "receive": ("kernel: receive",),
    "wait": ("kernel: wait",),
    "rest": ("kernel: memory", "kernel: other"),
    "crypto": ("cryptography",),
    "quinn-proto": ("quinn-proto",),
    "bytes": ("bytes",),
    "collections": ("collections",),
    "our Rust": ("our proto", "our engine", "our io", "our py"),
    "tokio, quinn": ("quinn and tokio",),
    "CPython": ("CPython",),
    "copies": ("copies",),
    "allocation": ("allocation",),
    "other": ("other", "program"),
}
COUNTS = {
    "packets in": "packets_in",
    "a batch": "batch_in",
    "packets out": "packets_out",
    "a batch ": "batch_out",
    "syscalls": "syscalls",
    "into Python": "into_python",
    "into Rust": "into_rust",
    "allocations": "allocations",
    "objects": "objects",
}
ABOUT = """\
## QUIC, profiled

`python benchmarks/run.py --profile quic` samples the processor clock of the server process and
assigns each sample to a part of the code: in the kernel by the call chain, in native code by the
line table of the innermost inlined call, in libc by the function. Shares and counts are valid on a
busy machine as well. The costs of a unit in time are in [quic.md](quic.md).

The figures are percent of the server's processor time. *Send* includes the loopback delivery to the
client's socket. *Collections* are Rust's standard ones, mostly quinn-proto's heaps and trees.
*Copies* and *allocation* are libc's functions, for every caller.
"""
COUNTED = """\
Counts for each unit of work: packets, how many packets one receive or send carries, system calls,
calls from native code into the interpreter, calls from Python into our methods, calls of libc's
allocator and of CPython's.
"""


def section() -> str | None:
    """The section, or None without results."""
    profiles = [(case, CaseProfile.load(case.name)) for case in CASES]
    rows = [
        (case, name, peer)
        for case, found in profiles
        if found is not None
        for name, peer in found.peers.items()
    ]
    if not rows:
        return None
    machines = [found.machine for _, found in profiles if found is not None]
    return "\n".join(
        [
            ABOUT,
            *_table(["server", "samples", *COLUMNS], [_shares(*row) for row in rows]),
            "",
            COUNTED,
            *_table(["server", "unit", *COUNTS], [_counts(*row) for row in rows]),
            "",
            f"{provenance.stamps(machines)}.",
            "",
        ]
    )


def _table(head: list[str], rows: Iterable[list[str]]) -> list[str]:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def _shares(case: Case, name: str, peer: PeerProfile) -> list[str]:
    shares = [sum(peer.shares.get(room, 0) for room in rooms) for rooms in COLUMNS.values()]
    return [
        _title(case, name),
        f"{peer.samples:,}",
        *("–" if share < 0.0005 else f"{share:.1%}"[:-1] for share in shares),
    ]


def _counts(case: Case, name: str, peer: PeerProfile) -> list[str]:
    counts = [peer.counts.get(count) for count in COUNTS.values()]
    return [
        _title(case, name),
        case.unit.per,
        *("–" if not count else figure(count) for count in counts),
    ]


def _title(case: Case, name: str) -> str:
    return f"{case.title.removeprefix('QUIC ')}: {name}"
