"""A test run leaves no browser process behind: not if it is killed, and not if its browser does not
start.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser.browsers import NAMES
from tests.browser.conftest import need
from tests.support.child_processes import naming, wait_gone

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys, time
from pathlib import Path
from tests.browser import browsers
from tests.support.certificates import make

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
    try:
        with run.stdout:
            assert run.stdout.readline() == "open\n"
        assert list(naming(tmp_path / "profile"))
    finally:
        run.kill()
        run.wait()
    wait_gone(tmp_path)


BROKEN = """
import sys
from pathlib import Path
from tests.browser.chromium import Chromium
from tests.support.certificates import make

folder = Path(sys.argv[1])
Chromium("/bin/false", folder / "profile", make(folder).server)
"""


def test_a_chromium_that_does_not_start_is_an_error_and_no_hang(tmp_path):
    need("chromium")
    done = subprocess.run(
        [sys.executable, "-c", BROKEN, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 1
    assert "launch_persistent_context" in done.stderr
