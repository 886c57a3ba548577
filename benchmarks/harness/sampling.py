"""The processor time of a process by part of the code: `perf` samples of its clock.

A sample in the kernel is assigned by its call chain, one in native code by the line tables (code_origin.py),
one in libc by its function. Percentages are valid on a loaded machine; times are not.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from benchmarks.harness.code_origin import Object
from benchmarks.harness.perf import Perf

HERTZ = 1999
KERNEL = "kernel"

# The first pattern that any function of the chain matches. Loopback delivers to the client's socket inside
# the server's send, so the send includes the delivery.
KERNEL_ROOMS = (
    (
        "kernel: wait",
        re.compile(r"^(schedule|__schedule|finish_task_switch|io_cqring_wait|ep_poll)"),
    ),
    ("kernel: send", re.compile(r"^(udp_sendmsg|udpv6_sendmsg|sock_sendmsg|__sock_sendmsg)")),
    ("kernel: receive", re.compile(r"^(udp_recvmsg|udpv6_recvmsg|sock_recvmsg|inet_recvmsg)")),
    ("kernel: memory", re.compile(r"(page_fault|do_mmap|do_brk|do_madvise|munmap|clear_page)")),
)
KERNEL_OTHER = "kernel: other"
COPY = re.compile(r"^_*(mem(move|cpy|set|cmp|chr)|str)")
ALLOCATION = re.compile(
    r"malloc|calloc|realloc|free|unlink_chunk|memalign|sysmalloc|systrim|arena|tcache|brk"
)
CRATES = {
    "C": "cryptography",
    "aws-lc-rs": "cryptography",
    "rustls": "cryptography",
    "rustls-webpki": "cryptography",
    "subtle": "cryptography",
    "zeroize": "cryptography",
    "std": "collections",
    "quinn-proto": "quinn-proto",
    "quinn": "quinn and tokio",
    "quinn-udp": "quinn and tokio",
    "tokio": "quinn and tokio",
    "mio": "quinn and tokio",
    "bytes": "bytes",
    "uringcore-py": "our py",
    "pyo3": "our py",
    "pyo3-ffi": "our py",
    "uringcore-engine": "our engine",
    "uringcore-wire": "our proto",
    "uringcore-limits": "our proto",
    "uringcore-quic": "our proto",
    "uringcore-h3": "our proto",
    "uringcore-http": "our proto",
    "uringcore-io": "our io",
    "io-uring": "our io",
    "program": "program",
}
ROOMS = (
    "kernel: send",
    "kernel: receive",
    "kernel: wait",
    "kernel: memory",
    "kernel: other",
    "cryptography",
    "quinn-proto",
    "bytes",
    "collections",
    "quinn and tokio",
    "our proto",
    "our engine",
    "our io",
    "our py",
    "CPython",
    "copies",
    "allocation",
    "other",
)
"""Every part, in the order of the tables."""


@dataclass
class Samples:
    """The number of samples of each part, and of each of its functions."""

    rooms: Counter[str] = field(default_factory=Counter)
    functions: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """All samples."""
        return sum(self.rooms.values())

    def shares(self) -> dict[str, float]:
        """Each part's share of the whole, 0 to 1."""
        return {room: self.rooms[room] / max(self.total, 1) for room in ROOMS}

    def top(self, count: int) -> list[tuple[str, str, float]]:
        """The functions with most samples: part, name, share."""
        return [
            (room, name, number / max(self.total, 1))
            for (room, name), number in self.functions.most_common(count)
        ]


def unavailable() -> str | None:
    """The reason why this machine cannot sample, or None."""
    if shutil.which("perf") is None:
        return "perf is not installed"
    if shutil.which("llvm-addr2line") is None and shutil.which("addr2line") is None:
        return "neither llvm-addr2line nor addr2line is installed"
    with tempfile.NamedTemporaryFile() as data:
        probe = subprocess.run(
            ["perf", "record", "-q", "-g", "-e", "cpu-clock", "-o", data.name, "true"],
            capture_output=True,
            text=True,
            check=False,
        )
    return None if probe.returncode == 0 else f"perf cannot sample: {probe.stderr.strip()}"


class Sampler:
    """Samples all threads of `pid` while the block runs; afterwards `samples` contains them."""

    def __init__(self, pid: int) -> None:
        self.samples = Samples()
        self._folder = tempfile.TemporaryDirectory()
        self._data = Path(self._folder.name) / "perf.data"
        self._perf = Perf(
            pid,
            *("record", "-q", "-g", "-F", str(HERTZ), "-e", "cpu-clock"),
            *("-o", str(self._data)),
        )

    def __enter__(self) -> Sampler:
        self._perf.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._perf.stop()
        with self._folder:
            if error is None:
                self.samples = _attribute(list(_chains(self._data)))


@dataclass(frozen=True)
class _Frame:
    address: int
    """An address in the kernel; elsewhere perf prints chains as offsets in the object's file."""
    symbol: str
    object: str


def _chains(data: Path) -> Iterator[list[_Frame]]:
    """The call chains of a recording, innermost frame first."""
    done = subprocess.run(
        ["perf", "script", "-i", str(data), "-F", "ip,sym,dso"],
        capture_output=True,
        text=True,
        check=True,
    )
    chain: list[_Frame] = []
    for line in done.stdout.splitlines():
        match = re.match(r"\s*([0-9a-f]+) (.*) \((.*)\)$", line)
        if match:
            chain.append(_Frame(int(match[1], 16), match[2], match[3]))
        elif chain:
            yield chain
            chain = []
    if chain:
        yield chain


def _attribute(chains: list[list[_Frame]]) -> Samples:
    natives: dict[str, set[int]] = {}
    for chain in chains:
        if _is_native(chain[0].object):
            natives.setdefault(chain[0].object, set()).add(chain[0].address)
    owners = {path: _owners(path, found) for path, found in natives.items()}
    samples = Samples()
    for chain in chains:
        first = chain[0]
        if first.object in owners:
            crate = owners[first.object].get(first.address, "std")
            room = CRATES.get(crate, "other")
        else:
            room = _room(chain)
        samples.rooms[room] += 1
        samples.functions[room, first.symbol] += 1
    return samples


def _room(chain: list[_Frame]) -> str:
    """The part of a sample that is not in native code with line tables."""
    first = chain[0]
    name = Path(first.object).name
    if first.object.startswith("[k") or first.address >> 63:
        for room, pattern in KERNEL_ROOMS:
            if any(pattern.search(frame.symbol) for frame in chain if frame.address >> 63):
                return room
        return KERNEL_OTHER
    if name.startswith(("libpython", "python")):
        return "CPython"
    if name.startswith("libc.so"):
        if COPY.search(first.symbol):
            return "copies"
        if ALLOCATION.search(first.symbol):
            return "allocation"
    return "other"


def _is_native(path: str) -> bool:
    name = Path(path).name
    return name.startswith("_uringcore") or name in ("quinn_server", "engine_server", "h3_server")


def _owners(path: str, offsets: set[int]) -> dict[int, str]:
    """The owning crate of each offset in the object at `path`."""
    binary = Object(Path(path))
    linked = binary.addresses(offsets)
    owners = binary.owners(linked.values())
    return {offset: owners[address] for offset, address in linked.items()}
