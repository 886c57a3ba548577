"""A test run that is killed leaves no browser behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.browser.browsers import NAMES
from tests.browser.conftest import need

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys, time
from pathlib import Path
from tests.browser import browsers
from tests.quic.certificates import make

name, folder = sys.argv[1], Path(sys.argv[2])
pki = make(folder)
browser = browsers.launch(name, folder / "profile", pki)
browser.new_page()
print("open", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("name", NAMES)
def test_browsers_end_with_a_run_that_is_killed(name, tmp_path):
    need(name)
    run = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, name, str(tmp_path)],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    )
    with run.stdout:
        assert run.stdout.readline() == "open\n"
    assert processes_with(tmp_path)
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    deadline = time.monotonic() + 60
    while left := processes_with(tmp_path):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def processes_with(folder):
    """The command lines that name the folder, as that of a browser names its profile."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            # It has ended meanwhile.
            continue
        if any(str(folder / "profile") in word for word in words):
            found.append(words)
    return found
