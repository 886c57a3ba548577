"""The cost of a process with a loop before it does any work, and of a loop that only waits.

Every sample is a separate process. Processor time is the kernel's figure for the whole process, memory its
peak (`VmHWM`, which starts from zero with the program, unlike `ru_maxrss`).
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.harness import syscalls
from benchmarks.programs.rows import arguments
from benchmarks.servers.loops import LOOPS, package_of

STARTS = 3
"""Processes of each kind in one visit."""
IDLE_SECONDS = 2

TELL_PEAK = """
with open("/proc/self/status") as status:
    print(next(line.split()[1] for line in status if line.startswith("VmHWM:")))
"""
# The steps of `asyncio.run`, on any CPython version and with the loop of the column.
RUN_NOTHING = """
from benchmarks.servers.loops import new_loop
async def main(): pass
loop = new_loop({peer!r})
loop.run_until_complete(main())
loop.run_until_complete(loop.shutdown_asyncgens())
loop.run_until_complete(loop.shutdown_default_executor())
loop.close()
"""
# This process wakes up once a second.
IDLE = """
import asyncio
from benchmarks.servers.loops import new_loop
async def main():
    print("READY", flush=True)
    while True:
        await asyncio.sleep(1)
new_loop({peer!r}).run_until_complete(main())
"""


def one_start(code: str) -> tuple[float, float, float]:
    """The wall and processor milliseconds and the peak MiB of a process that runs `code`."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code + TELL_PEAK], stdout=subprocess.PIPE, text=True, check=True
    )
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall * 1000, cpu * 1000, int(done.stdout) / 1024


def starts(name: str, code: str, count: int) -> dict[str, list[float]]:
    """The rows of `count` processes that run `code`."""
    one_start(code)  # writes missing bytecode files
    walls, cpus, peaks = zip(*(one_start(code) for _ in range(count)), strict=True)
    return {
        f"{name}, wall ms": list(walls),
        f"{name}, CPU ms": list(cpus),
        f"{name}, peak MiB": list(peaks),
    }


def idle(peer: str) -> dict[str, list[float]]:
    """The rows of a loop that sleeps."""
    process = subprocess.Popen(
        [sys.executable, "-c", IDLE.format(peer=peer)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "READY\n":
            raise RuntimeError(f"{peer}: the loop did not start")
        return _idle_rows(process.pid, time.monotonic())
    finally:
        process.kill()
        process.communicate()


def _idle_rows(pid: int, ready: float) -> dict[str, list[float]]:
    """The rows of an idle process, per second. It wakes up a whole number of seconds after `ready`."""
    _wait_half(ready)
    before = _cpu_ns(pid)
    _wait_half(ready, IDLE_SECONDS)
    rows = {"idle, CPU µs/s": [(_cpu_ns(pid) - before) / 1000 / IDLE_SECONDS]}
    if syscalls.unavailable() is None:
        began = int(time.monotonic() - ready)
        with syscalls.SyscallCounter(pid) as counter:
            _wait_half(ready, IDLE_SECONDS)
        seconds = int(time.monotonic() - ready) - began
        rows["idle, system calls/s"] = [counter.count / seconds]
    return rows


def _wait_half(ready: float, seconds: int = 0) -> None:
    """Wait for the middle between two wake-ups, `seconds` later than the next."""
    elapsed = time.monotonic() - ready
    time.sleep(seconds + (0.5 - elapsed) % 1)


def _cpu_ns(pid: int) -> int:
    """The processor time of all threads, exact while they sleep."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


def forget_pages(package: str) -> None:
    """Drop the package's extension modules from the page cache, as after the machine's start.

    The page cache holds a file that was just written in large pieces, and a process that reads one byte of
    such a piece has the whole piece in its memory.
    """
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations if spec else None) or ():
        for path in Path(folder).rglob("*.so"):
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def main() -> None:
    """Measure the loop named on the command line; the program has no window, so `--seconds` has no effect."""
    peer = arguments(__doc__, LOOPS).peer
    forget_pages(package_of(peer))
    rows = {
        **starts("import", f"import {package_of(peer)}", STARTS),
        **starts("run of nothing", RUN_NOTHING.format(peer=peer), STARTS),
        **idle(peer),
    }
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
