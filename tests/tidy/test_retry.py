"""`.ci/retry.py`, by which `.ci/run` repeats failed tests once."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

TESTS = """
from pathlib import Path

def test_sound():
    pass

def test_unsteady():
    seen = Path(__file__).with_name("seen")
    has_run, _ = seen.exists(), seen.touch()
    assert has_run

def test_broken():
    assert False
"""


def retry(tree: Path, status: int, *failed: str) -> subprocess.CompletedProcess[str]:
    """Runs it after a test run with this status and these failed tests."""
    record = tree / ".pytest_cache" / "3.0" / "v" / "cache"
    record.mkdir(parents=True, exist_ok=True)
    names = {f"test_tree.py::{name}": True for name in failed}
    (record / "lastfailed").write_text(json.dumps(names))
    command = [sys.executable, str(tree / ".ci" / "retry.py"), f"3.0={status}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "retry.py", tmp_path / ".ci")
    (tmp_path / "test_tree.py").write_text(TESTS)
    interpreter = tmp_path / ".venv-3.0" / "bin" / "python"
    interpreter.parent.mkdir(parents=True)
    interpreter.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    interpreter.chmod(0o755)
    return tmp_path


def test_a_test_that_passes_alone_is_unsteady_and_refuses_nothing(tree: Path) -> None:
    (tree / "seen").touch()
    done = retry(tree, 1, "test_unsteady")
    assert done.returncode == 0
    said = "UNSTEADY, to be mended before anything else: CPython 3.0: test_tree.py::test_unsteady"
    assert said in done.stderr


def test_a_test_that_fails_again_refuses_the_run(tree: Path) -> None:
    done = retry(tree, 1, "test_unsteady", "test_broken")
    assert done.returncode == 1
    assert "failed on CPython 3.0" in done.stderr
    assert "UNSTEADY" not in done.stderr


@pytest.mark.parametrize("status", [2, 3, 4, 5, 137])
def test_a_run_that_was_not_completed_is_refused(tree: Path, status: int) -> None:
    """Its record names only tests that failed before its end, and those may pass."""
    done = retry(tree, status, "test_sound")
    assert done.returncode == 1
    assert f"CPython 3.0: pytest ended with status {status}" in done.stdout


def test_a_run_without_a_record_or_with_too_many_failures_is_refused(tree: Path) -> None:
    assert retry(tree, 1).returncode == 1
    done = retry(tree, 1, *(f"test_{number}" for number in range(13)))
    assert done.returncode == 1
    assert "13 recorded failures" in done.stdout
