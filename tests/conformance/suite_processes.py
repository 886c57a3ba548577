"""Runs a group in worker processes, kills hanging ones and continues with the next test."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TEST_SECONDS = 30.0
"""A test that takes longer hangs; the slowest on stock asyncio takes under 10."""
START_SECONDS = 60.0
HANG, CRASH = "hang", "crash"


@dataclass(frozen=True)
class Result:
    """The outcome of one test on one loop: pass, fail, skip, hang or crash."""

    test: str
    status: str
    detail: str = ""
    seconds: float = 0.0

    @property
    def reason(self) -> str:
        """The last line of the detail, which names the exception."""
        lines = self.detail.strip().splitlines()
        return lines[-1] if lines else ""


def run_group(
    group: str,
    loop: str,
    *,
    only: Sequence[str] = (),
    test_seconds: float = TEST_SECONDS,
) -> dict[str, Result]:
    """Return the result of every test of `group` on `loop`, by name; with `only`, of those that
    match one of its patterns.

    Raises `RuntimeError` if a worker ends before its first test.
    """
    results: dict[str, Result] = {}
    while True:
        before = len(results)
        if _run_worker(group, loop, results, only, test_seconds):
            return results
        if len(results) == before:
            raise RuntimeError(f"{group} on {loop}: the worker makes no progress")


def _run_worker(
    group: str,
    loop: str,
    results: dict[str, Result],
    only: Sequence[str],
    test_seconds: float,
) -> bool:
    """Run one worker over the tests that have no result yet; return True if it finished."""
    reader, writer = os.pipe()
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        process = subprocess.Popen(
            [
                *(sys.executable, "-W", "ignore", "-m", "tests.conformance.worker"),
                *("--loop", loop, "--group", group, "--report", str(writer)),
                *("--done", json.dumps(sorted(results)), "--only", json.dumps(list(only))),
            ],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            pass_fds=(writer,),
            start_new_session=True,
        )
        os.close(writer)
        running = ""
        try:
            for line in _lines(reader, test_seconds):
                if "end" in line:
                    return True
                if "start" in line:
                    running = line["start"]
                else:
                    results[running] = Result(
                        running, line["status"], line["detail"], line["seconds"]
                    )
                    running = ""
            # The pipe closed without an end line: the process died inside a test.
            status = process.wait(10)
            _blame(results, group, loop, running, CRASH, f"died with {status}", errors)
        except TimeoutError:
            process.send_signal(signal.SIGABRT)
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
            _blame(results, group, loop, running, HANG, f"no end after {test_seconds} s", errors)
        finally:
            os.close(reader)
            _end_session(process)
    return False


def _lines(reader: int, test_seconds: float) -> Iterator[dict[str, Any]]:
    """Yield the worker's JSON lines; raise `TimeoutError` if none arrives in time."""
    pending = b""
    limit = START_SECONDS
    while True:
        deadline = time.monotonic() + limit
        while b"\n" not in pending:
            ready, _, _ = select.select([reader], [], [], max(deadline - time.monotonic(), 0))
            if not ready:
                raise TimeoutError
            piece = os.read(reader, 1 << 16)
            if not piece:
                return
            pending += piece
        line, _, pending = pending.partition(b"\n")
        limit = test_seconds
        yield json.loads(line)


def _blame(
    results: dict[str, Result],
    group: str,
    loop: str,
    test: str,
    status: str,
    what: str,
    errors: Any,
) -> None:
    errors.seek(0)
    tail = errors.read()[-6000:]
    if not test:
        raise RuntimeError(f"{group} on {loop}: the worker {what} outside of a test\n{tail}")
    results[test] = Result(test, status, f"{tail}\n{what}")


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """End the worker and the children that its tests left behind, which are in its session."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        process.wait()
