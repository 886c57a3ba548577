"""Runs a project's suite in worker processes, kills hanging ones and continues with the next test."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.ecosystem.projects import INSIDE, Project
from tests.ecosystem.redis_and_postgresql import Service

START_SECONDS = 180.0
"""Time limit until the first test starts: collecting aiohttp's tests takes 20 s on a busy machine."""
END_SECONDS = 60.0
POLL_SECONDS = 0.1
ATTEMPTS = 3
"""The number of attempts for a failing test: these suites have tests that depend on timing."""
HANG, CRASH = "hang", "crash"
BAD = ("fail", HANG, CRASH)

_PYTEST_ENDS = (0, 1, 5)
"""Exit statuses for: all passed, some failed, none left to run. Other statuses are usage and internal
errors.
"""
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Result:
    """The outcome of one test on one loop: pass, fail, skip, hang or crash."""

    status: str
    detail: str = ""
    seconds: float = 0.0
    runs: int = 0
    """The number of loops of the kind under test that ran in this test."""
    turns: int = 0
    """Turns of uringcore's loops (not counted on stock asyncio)."""
    foreign: int = 0
    """Turns of any other loop."""
    attempts: int = 1

    @property
    def reason(self) -> str:
        """The line of the detail that names the exception."""
        lines = [line for line in self.detail.strip().splitlines() if line.strip()]
        errors = [line[1:].strip() for line in lines if line.startswith("E  ")]
        return (errors or lines or [""])[-1 if not errors else 0]


@dataclass
class Suite:
    """One project's suite on one loop, ready to be run."""

    project: Project
    loop: str
    python: Path
    sources: Path
    folder: Path
    """The directory of the log, the reports and pytest's own XML files."""
    service: Service = field(default_factory=Service)
    prefix: tuple[str, ...] = ()
    """Words before the command."""
    keyword: str = ""

    def run(self, worth_repeating: Callable[[str], bool]) -> dict[str, Result]:
        """Return the result of every test, by name; failures for which `worth_repeating` is true
        run again.

        Raises `RuntimeError` if a worker ends before its first test.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        for old in self.folder.iterdir():
            old.unlink()
        results = self._run_all(None)
        for attempt in range(2, ATTEMPTS + 1):
            failed = [
                name for name, one in results.items() if one.status in BAD and worth_repeating(name)
            ]
            if not failed:
                break
            for name, again in self._run_all(failed).items():
                better = again if again.status not in BAD else results.get(name, again)
                results[name] = replace(better, attempts=attempt)
        (self.folder / "results.json").write_text(
            json.dumps({name: asdict(one) for name, one in results.items()}, indent=1)
        )
        return results

    def _run_all(self, only: list[str] | None) -> dict[str, Result]:
        results: dict[str, Result] = {}
        while True:
            before = len(results)
            if self._run_worker(results, only):
                return results
            if len(results) == before:
                raise RuntimeError(
                    f"{self.project.name} on {self.loop}: the worker makes no progress\n"
                    + self._tail()
                )

    def _run_worker(self, results: dict[str, Result], only: list[str] | None) -> bool:
        """Run one worker over the tests that have no result yet; return True if it finished."""
        number = len(list(self.folder.glob("*.xml"))) + 1
        report = self.folder / f"report-{number}.jsonl"
        report.write_text("")
        done = self.folder / "done"
        done.write_text("\n".join(results))
        environment = {
            **os.environ,
            **self.project.environment,
            **self.service.environment,
            "PYTHONPATH": str(INSIDE),
            "PYTHONDONTWRITEBYTECODE": "1",
            "ECOSYSTEM_LOOP": self.loop,
            "ECOSYSTEM_REPORT": str(report),
            "ECOSYSTEM_DONE": str(done),
        }
        for name in ("VIRTUAL_ENV", "PYTHONHOME", "PYTHONASYNCIODEBUG", "URINGCORE_BACKEND"):
            environment.pop(name, None)
        if only is not None:
            (self.folder / "only").write_text("\n".join(only))
            environment["ECOSYSTEM_ONLY"] = str(self.folder / "only")
        xml = self.folder / f"junit-{number}.xml"
        xml.write_text("")
        # A shell that starts this process in the background has SIGINT ignored, and ignored signals
        # are inherited.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with _own_orphans(), (self.folder / "log").open("a") as log:
            process = subprocess.Popen(
                [
                    *self.prefix,
                    *self.service.prefix,
                    *(str(self.python), "-m", "pytest", "-p", "ecosystem_plugin", "-o", "addopts="),
                    *("-p", "no:cacheprovider", "--tb=short", "-q", f"--junitxml={xml}"),
                    *(("-k", self.keyword) if self.keyword else ()),
                    *self.project.arguments,
                    *self.service.arguments,
                ],
                cwd=self.sources,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                return self._watch(process, report, results)
            finally:
                _end_session(process)

    def _watch(
        self, process: subprocess.Popen[bytes], report: Path, results: dict[str, Result]
    ) -> bool:
        running, finished = "", None
        limit, seen = START_SECONDS, time.monotonic()
        with report.open() as lines:
            while True:
                ended = process.poll() is not None
                for line in _new_lines(lines):
                    seen = time.monotonic()
                    if "start" in line:
                        running, limit = line["start"], self.project.test_seconds
                    elif "end" in line:
                        results[line["end"]] = _result(line)
                        running = ""
                    elif "uncollected" in line:
                        name = f"collecting {line['uncollected']}"
                        results[name] = Result("fail", line["detail"])
                    elif "finished" in line:
                        finished, limit = line["finished"], END_SECONDS
                if ended:
                    if finished not in _PYTEST_ENDS or process.returncode < 0:
                        if not results and not running:
                            return False
                        what = f"{self._tail()}\ndied with {process.returncode}"
                        results[running or "the end of the process"] = Result(CRASH, what)
                    return finished in _PYTEST_ENDS
                if time.monotonic() - seen > limit:
                    what = f"{_stacks(process, report)}\nno end after {limit:.0f} s"
                    results[running or "the end of the process"] = Result(HANG, what, limit)
                    return finished is not None
                time.sleep(POLL_SECONDS)

    def _tail(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-6000:]


def read_results(folder: Path) -> dict[str, Result]:
    """Return the results that an earlier run left in `folder`."""
    found = json.loads((folder / "results.json").read_text())
    return {name: Result(**one) for name, one in found.items()}


def _stacks(process: subprocess.Popen[bytes], report: Path) -> str:
    """Return the stack of every thread of the worker."""
    process.send_signal(signal.SIGUSR1)
    time.sleep(1)
    return report.with_suffix(".stacks").read_text(errors="replace")


def _result(line: dict[str, Any]) -> Result:
    names = ("status", "detail", "seconds", "runs", "turns", "foreign")
    return Result(**{name: line[name] for name in names})


def _new_lines(lines: Any) -> Iterator[dict[str, Any]]:
    while True:
        position = lines.tell()
        line = lines.readline()
        if not line.endswith("\n"):
            lines.seek(position)
            return
        yield json.loads(line)


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """End the worker and those of its children that are in its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def _own_orphans() -> Iterator[None]:
    """Adopt the processes that the suite leaves behind (servers in sessions of their own) and end
    them.
    """
    keep = set(_children())
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    try:
        yield
    finally:
        while strays := [pid for pid in _children() if pid not in keep]:
            for pid in strays:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _children() -> list[int]:
    """Return the processes whose parent is this one."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                stat = (entry / "stat").read_text()
                if int(stat.rsplit(")", 1)[1].split()[1]) == os.getpid():
                    found.append(int(entry.name))
    return found
