"""The runner itself, on a small suite: it distinguishes tests that pass, fail, hang, crash and
vary.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.ecosystem.compare import differences, flaky, unproved
from tests.ecosystem.projects import Project
from tests.ecosystem.suite_processes import Result, Suite, read_results

SUITE = """
import asyncio, os, pathlib, signal, subprocess, sys, time
import pytest

def test_passes():
    asyncio.run(asyncio.sleep(0))

def test_without_a_loop():
    pass

@pytest.mark.skip(reason="because")
def test_is_skipped():
    pass

@pytest.mark.xfail
def test_is_expected_to_fail():
    assert False

def test_fails():
    assert 1 == 2, "one is not two"

def test_hangs():
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    time.sleep(600)

def test_dies():
    os.kill(os.getpid(), signal.SIGKILL)

def test_passes_when_run_again():
    marker = pathlib.Path("ran-before")
    ran_before = marker.exists()
    marker.touch()
    assert ran_before

def test_after_all_that():
    async def main():
        assert type(asyncio.get_running_loop()).__module__ == os.environ["WANTED_MODULE"]
    asyncio.run(main())
    with asyncio.Runner() if sys.version_info >= (3, 11) else open(os.devnull) as runner:
        if sys.version_info >= (3, 11):
            runner.run(main())

@pytest.fixture
def broken():
    yield
    raise RuntimeError("teardown")

def test_whose_teardown_fails(broken):
    pass
"""


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "pytest.ini").write_text("[pytest]\n")
    (sources / "test_it.py").write_text(SUITE)
    project = Project(
        "small",
        "1",
        arguments=("test_it.py",),
        environment={"WANTED_MODULE": "uringcore._loop"},
        test_seconds=5.0,
    )
    return Suite(project, "epoll", Path(sys.executable), sources, tmp_path / "results")


def test_every_outcome_of_a_test_is_distinguished(suite: Suite) -> None:
    results = {
        name.partition("::")[2]: one
        for name, one in suite.run(lambda name: name.endswith("again")).items()
    }
    assert {name: one.status for name, one in results.items()} == {
        "test_passes": "pass",
        "test_without_a_loop": "pass",
        "test_is_skipped": "skip",
        "test_is_expected_to_fail": "skip",
        "test_fails": "fail",
        "test_hangs": "hang",
        "test_dies": "crash",
        "test_passes_when_run_again": "pass",
        "test_after_all_that": "pass",
        "test_whose_teardown_fails": "fail",
    }
    assert results["test_fails"].reason == "AssertionError: one is not two"
    assert "in test_hangs" in results["test_hangs"].detail
    assert flaky(results) == ["test_passes_when_run_again"]
    assert results["test_passes"].turns > 0
    assert results["test_without_a_loop"].runs == 0
    assert not any(one.foreign for one in results.values())
    kept = read_results(suite.folder)
    assert {name.partition("::")[2]: one for name, one in kept.items()} == results


def test_a_difference_is_what_stock_passes_and_we_do_not() -> None:
    stock = {
        "same": Result("pass"),
        "worse": Result("pass"),
        "skipped": Result("pass"),
        "lost": Result("pass"),
        "broken there too": Result("fail"),
    }
    ours = {
        "same": Result("pass"),
        "worse": Result("fail", "E   ValueError: no\n"),
        "skipped": Result("skip", "because"),
        "broken there too": Result("hang"),
        "the end of the process": Result("crash", "died with -11"),
    }
    assert differences("small", "uring", ours, stock) == {
        "worse": "fail: ValueError: no",
        "skipped": "skip: because",
        "lost": "did not run",
        "the end of the process": "crash: died with -11",
    }


def test_results_from_another_loop_prove_nothing() -> None:
    stock = {"a": Result("pass", runs=1), "b": Result("pass", runs=1)}
    assert unproved({"a": Result("pass", runs=1, turns=9), "b": Result("fail")}, stock) == []
    assert unproved({"a": Result("pass"), "b": Result("fail")}, stock) == [
        "not one turn was run on our loop",
        "1 tests did not start our loop, like a",
    ]


def test_a_suite_without_a_loop_has_nothing_to_prove() -> None:
    assert unproved({"a": Result("pass")}, {"a": Result("pass")}) == []
