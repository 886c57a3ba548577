"""Each server of the benchmarks is measured with a heap that no longer maps each large block."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from benchmarks.harness.environment import ROOT

READS = 200
# One byte into 256 KiB, as asyncio's selector loop reads: the block is allocated whole and shrunk.
PROGRAM = f"""
import importlib, resource, socket, sys
if sys.argv[1:]:
    importlib.import_module(sys.argv[1])
one, other = socket.socketpair()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({READS}):
    one.send(b"x")
    other.recv(256 * 1024)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(*modules: str) -> int:
    environ = {name: value for name, value in os.environ.items() if "MALLOC" not in name}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *modules],
        cwd=ROOT,
        env={**environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    return int(done.stdout)


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc",
    reason="only glibc adapts its mmap threshold to freed blocks",
)
def test_a_warm_heap_serves_large_reads_without_the_kernel() -> None:
    assert page_faults() >= READS, (
        "glibc maps every block of 256 KiB until the process has freed one"
    )
    assert page_faults("benchmarks.applications.bare") < READS // 10
