"""The pytest plugin inside a foreign suite: it installs the loop and reports every test.

It is loaded with `-p ecosystem_plugin`; only this folder is on PYTHONPATH, because the suites have
packages called `tests` of their own. Environment variables, set by suite_processes.py, configure it:

- `ECOSYSTEM_LOOP`: asyncio, uring or epoll;
- `ECOSYSTEM_REPORT`: the file that gets a JSON line when a test starts and when it ends;
- `ECOSYSTEM_DONE`: a file with the names of tests to leave out, one a line;
- `ECOSYSTEM_ONLY`: a file with the names of the only tests to run, one a line.

Other modules hold the list of tests, the time-outs (the runner kills the process) and the meaning
of a result.
"""

from __future__ import annotations

import asyncio
import asyncio.base_events
import asyncio.unix_events
import faulthandler
import json
import os
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

LOOP = os.environ["ECOSYSTEM_LOOP"]
SKIPPED, FAILED, PASSED = "skip", "fail", "pass"
DETAIL_CHARACTERS = 8000

_counts = {"loops": 0, "runs": 0, "turns": 0, "foreign": 0}


def _loop_class() -> type[asyncio.AbstractEventLoop]:
    """Return a subclass of the loop under test that counts activity on it."""
    if LOOP == "asyncio":
        base: Any = asyncio.SelectorEventLoop
        arguments: tuple[Any, ...] = ()
    else:
        import uringcore

        base = uringcore.UringEventLoop
        arguments = (LOOP,)
        _count_foreign_turns(base)

    def new(cls: Any, *ignored: Any) -> Any:
        return base.__new__(cls, *arguments)

    def init(self: Any, *ignored: Any) -> None:
        base.__init__(self, *arguments)
        _counts["loops"] += 1

    def run_forever(self: Any) -> None:
        _counts["runs"] += 1
        before = _turns(self)
        try:
            base.run_forever(self)
        finally:
            _counts["turns"] += max(_turns(self) - before, 0)

    members = {"__init__": init, "run_forever": run_forever, "__module__": base.__module__}
    if arguments:
        members["__new__"] = new
    # asyncio's name for the class: it becomes part of the names of parametrised tests.
    return type(asyncio.SelectorEventLoop.__name__, (base,), members)


def _turns(loop: Any) -> int:
    """Return how often a loop of ours has entered the kernel; stock asyncio keeps no such count."""
    if LOOP == "asyncio" or loop.is_closed():
        return 0
    turns: int = loop.stats()["turns"]
    return turns


def _count_foreign_turns(ours: type[Any]) -> None:
    """Count iterations of loops that are not ours: a suite that makes its own would prove nothing."""
    stock = asyncio.base_events.BaseEventLoop._run_once  # type: ignore[attr-defined]

    def _run_once(self: Any) -> None:
        if not isinstance(self, ours):
            _counts["foreign"] += 1
        stock(self)

    asyncio.base_events.BaseEventLoop._run_once = _run_once  # type: ignore[attr-defined]


def _install(loop_class: type[Any]) -> None:
    """Make every asyncio API that creates a loop use this class.

    asyncio's automatic policy and any other of its class (pytest-asyncio makes some) serve
    `new_event_loop`, `asyncio.run`, `Runner` and IsolatedAsyncioTestCase; the class names serve
    code that creates the selector loop directly, as uvicorn does.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        policies: Any = asyncio.unix_events
        policy = getattr(policies, "_UnixDefaultEventLoopPolicy", None) or getattr(
            policies, "_DefaultEventLoopPolicy", None
        )
        if policy is None:  # asyncio without policies
            events: Any = asyncio.events
            events.new_event_loop = loop_class
            asyncio.new_event_loop = loop_class  # type: ignore[assignment]
        else:
            policy._loop_factory = loop_class
    asyncio.SelectorEventLoop = loop_class  # type: ignore[misc]
    if sys.version_info >= (3, 13):
        asyncio.EventLoop = loop_class  # type: ignore[misc]


class Reporter:
    """Writes a line at the start and the end of each test; leaves out the listed tests."""

    def __init__(self) -> None:
        # Open for as long as the process lives: a crash must not cost a line.
        self._file = Path(os.environ["ECOSYSTEM_REPORT"]).open("a", buffering=1)  # noqa: SIM115
        self._pid = os.getpid()
        self._status: dict[str, tuple[str, str]] = {}
        self._started: dict[str, tuple[float, dict[str, int]]] = {}

    def _write(self, line: dict[str, Any]) -> None:
        # Some suites fork: a child that continues through pytest must not report for its parent.
        if os.getpid() == self._pid and not self._file.closed:
            self._file.write(json.dumps(line) + "\n")

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        done = _names("ECOSYSTEM_DONE") or set()
        only = _names("ECOSYSTEM_ONLY")
        kept = [
            item
            for item in items
            if item.nodeid not in done and (only is None or item.nodeid in only)
        ]
        dropped = [item for item in items if item not in set(kept)]
        if dropped:
            config.hook.pytest_deselected(items=dropped)
        items[:] = kept
        self._write({"collected": len(kept)})

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write({"uncollected": report.nodeid, "detail": str(report.longrepr)[-2000:]})

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._started[nodeid] = (time.monotonic(), dict(_counts))
        self._write({"start": nodeid})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # Three reports for each test (setup, call, teardown), and more with subtests.
        old = self._status.get(report.nodeid, ("", ""))
        if report.failed and not hasattr(report, "wasxfail"):
            detail = (old[1] + report.longreprtext)[-DETAIL_CHARACTERS:]
            self._status[report.nodeid] = (FAILED, detail)
        elif old[0] == FAILED:
            return
        elif report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else "xfail"
            self._status[report.nodeid] = (SKIPPED, reason)
        elif report.when == "call" and not old[0]:
            self._status[report.nodeid] = (PASSED, "")

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        if nodeid not in self._started:
            return
        started, before = self._started.pop(nodeid)
        status, detail = self._status.pop(nodeid, (FAILED, "no report"))
        self._write(
            {
                "end": nodeid,
                "status": status,
                "detail": detail,
                "seconds": round(time.monotonic() - started, 3),
                **{name: _counts[name] - before[name] for name in _counts},
            }
        )

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._write({"finished": int(exitstatus)})

    def pytest_unconfigure(self) -> None:
        self._file.close()


def _names(variable: str) -> set[str] | None:
    path = os.environ.get(variable)
    return set(Path(path).read_text().splitlines()) if path else None


def pytest_configure(config: pytest.Config) -> None:
    """Install the loop before any test module is imported."""
    config.pluginmanager.register(Reporter(), "ecosystem-reporter")


_install(_loop_class())
# Before the runner kills a hanging process, it requests the stacks by this signal. They get a file
# of their own, since pytest has redirected the standard error.
_stacks = Path(os.environ["ECOSYSTEM_REPORT"]).with_suffix(".stacks").open("w")
faulthandler.register(signal.SIGUSR1, file=_stacks, all_threads=True)
