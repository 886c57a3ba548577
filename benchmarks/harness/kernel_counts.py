"""The kernel's counts for a server under load: packets, batches, calls, allocations.

Packets are those of the loopback device (tracepoint `net:net_dev_start_xmit`), one event a batch. Calls are
counted by probes at functions' entries (uprobes), each of which costs a microsecond. So calls have a separate
window, in which counts are valid and rates are not.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from benchmarks.harness.code_origin import Object
from benchmarks.harness.perf import ATTACH_SECONDS, Perf

XMIT = "net:net_dev_start_xmit"
UPROBES = Path("/sys/kernel/tracing/uprobe_events")
GROUP = "uringcore_bench"

# The counted functions, by the object that contains them: allocations of every caller, entries of the
# interpreter's loop from C (the calls from Rust into Python, because calls between Python functions stay
# inside the loop), and the functions that the bindings generate for our methods.
ALLOCATIONS = ("libc.so", re.compile(r"^(malloc|calloc|realloc|posix_memalign|aligned_alloc)$"))
OBJECTS = ("python", re.compile(r"^_PyObject_Malloc$"))
INTO_PYTHON = ("python", re.compile(r"^_PyEval_EvalFrameDefault$"))
INTO_RUST = ("_uringcore", re.compile(r"__pymethod_|pyo3_get_value"))
CALLS = {
    "allocations": ALLOCATIONS,
    "objects": OBJECTS,
    "into_python": INTO_PYTHON,
    "into_rust": INTO_RUST,
}


@dataclass
class Packets:
    """UDP packets that one process has sent."""

    batches: int = 0
    packets: int = 0

    @classmethod
    def read(cls, data: Path) -> Packets:
        """Count a recording of `XMIT`."""
        done = subprocess.run(
            ["perf", "script", "-i", str(data), "-F", "trace"],
            capture_output=True,
            text=True,
            check=True,
        )
        segments = [
            max(int(match[1]), 1)
            for line in done.stdout.splitlines()
            if " protocol=0x0800 " in line and (match := re.search(r"gso_segs=(\d+)", line))
        ]
        return cls(batches=len(segments), packets=sum(segments))


class PacketCounter:
    """Counts the packets that `pid` and the commands of `wrap` send while the block runs."""

    def __init__(self, pid: int) -> None:
        self.sent = Packets()
        self.received = Packets()
        self._folder = tempfile.TemporaryDirectory()
        self._data = [Path(self._folder.name) / name for name in ("server", "client")]
        self._perf = Perf(pid, "record", "-q", "-e", XMIT, "-o", str(self._data[0]))

    def wrap(self, command: list[str]) -> list[str]:
        """`command` with its packets recorded."""
        return ["perf", "record", "-q", "-e", XMIT, "-o", str(self._data[1]), "--", *command]

    def __enter__(self) -> PacketCounter:
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
                self.sent, self.received = (Packets.read(data) for data in self._data)


class CallCounter:
    """Counts the calls of `CALLS` in `pid` while the block runs."""

    def __init__(self, pid: int) -> None:
        self.counts: dict[str, int] = {}
        self._pid = pid
        self._perf = Perf(pid, "stat", "-x", ",", "-e", f"{GROUP}:*")

    def __enter__(self) -> CallCounter:
        remove_probes()
        probes = [
            f"p:{GROUP}/{name}_{number} {path}:{offset:#x}"
            for name, (kind, pattern) in CALLS.items()
            for number, (path, offset) in enumerate(_functions(self._pid, kind, pattern))
        ]
        _tell(probes)
        self._perf.start(settle=ATTACH_SECONDS + len(probes) / 100)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        text = self._perf.stop()
        remove_probes()
        for line in text.splitlines():
            match = re.match(rf"(\d+),.*{GROUP}:(\w+)_\d+,", line)
            if match:
                self.counts[match[2]] = self.counts.get(match[2], 0) + int(match[1])
        if not self.counts and error is None:
            raise RuntimeError(f"perf stat counted no call: {text!r}")


def unavailable() -> str | None:
    """The reason why this machine cannot count calls, or None."""
    try:
        _tell([])
    except OSError as error:
        return f"probes need root and tracefs: {error}"
    return None


def remove_probes() -> None:
    """Remove our probes, including those of a killed run."""
    names = re.findall(rf"^\w:({GROUP}/\w+) ", UPROBES.read_text(), re.MULTILINE)
    _tell([f"-:{name}" for name in names])


def _tell(lines: list[str]) -> None:
    """Write one command per write. A Python file would seek, which tracefs refuses."""
    events = os.open(UPROBES, os.O_WRONLY | os.O_APPEND)
    try:
        for line in lines:
            os.write(events, line.encode() + b"\n")
    finally:
        os.close(events)


def _functions(pid: int, kind: str, pattern: re.Pattern[str]) -> list[tuple[str, int]]:
    """File and offset of each function with a matching name, in the mapped objects of a kind."""
    mapped = {
        line.split(maxsplit=5)[5]
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines()
        if len(line.split(maxsplit=5)) == 6 and " r-xp " in line
    }
    found: dict[int, tuple[str, int]] = {}
    for path in sorted(mapped):
        if kind not in Path(path).name:
            continue
        binary = Object(Path(path))
        for name, address in _symbols(path):
            if pattern.search(name.partition("@")[0]):
                # Aliases, and functions that the linker merged, have one address.
                found[address] = (path, binary.offset(address))
    return list(found.values())


def _symbols(path: str) -> list[tuple[str, int]]:
    """The functions of an object, from both of its symbol tables."""
    lines: list[str] = []
    for table in ([], ["-D"]):
        done = subprocess.run(
            ["nm", "--defined-only", *table, path], capture_output=True, text=True, check=False
        )
        lines += done.stdout.splitlines()
    parts = [line.split() for line in lines]
    return [(part[2], int(part[0], 16)) for part in parts if len(part) == 3 and part[1] in "tTwWiu"]
