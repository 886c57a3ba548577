"""aioquic as a process, for the tests that run one program on both libraries."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import certificates
from tests.support.child_processes import bound

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

Command = list[str]


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate for localhost, whose file also has its authority's, and its key."""
    return certificates.local(tmp_path_factory.mktemp("certificate")).files


@pytest.fixture
def peer() -> Command:
    """The command of aioquic's side, without the role and its options."""
    pytest.importorskip("aioquic")
    return [sys.executable, "-m", "tests.interop.endpoint"]


@pytest.fixture
def start_peer() -> Iterator[Callable[[Command], subprocess.Popen[str]]]:
    """Starts a peer in the repository's root; at the test's end it is killed if it still runs."""
    started: list[subprocess.Popen[str]] = []

    def start(command: Command) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            bound(command), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
