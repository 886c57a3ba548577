"""The table of open files, in a server inside a program."""

import subprocess
import sys

import pytest

from tests.server.harness import ROOT, environment
from tests.server.open_files_program import CANNOT_BE_HAD


@pytest.mark.parametrize("what", ["dropped", "forked"])
def test_a_place_for_a_file(what, certificate, tmp_path, backend):
    """Each function's docstring states its check."""
    command = [sys.executable, "-m", "tests.server.open_files_program"]
    done = subprocess.run(
        [*command, what, *certificate, str(tmp_path), backend],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    if done.returncode == CANNOT_BE_HAD:
        pytest.skip("files in this directory stay in the page cache")
    assert done.returncode == 0, done.stdout + done.stderr
