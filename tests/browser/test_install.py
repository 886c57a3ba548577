"""The messages of .ci/browsers.py if the browsers cannot be installed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / ".ci" / "browsers.py"


def install(folder):
    """Returns its status and output if only the programs in a folder are installed."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM)],
        env={**os.environ, "PATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    return done.returncode, done.stderr


def add_program(folder, name, script="exit 0"):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_nothing_is_done_where_all_is_there(tmp_path):
    for name in ("chromium", "firefox-esr", "certutil"):
        add_program(tmp_path, name)
    assert install(tmp_path) == (0, "")


def test_a_system_other_than_debian_names_the_packages_to_install(tmp_path):
    add_program(tmp_path, "chromium")
    status, words = install(tmp_path)
    assert status == 1
    assert words.startswith("browsers.py: this is no Debian: install firefox-esr, libnss3-tools (")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run apt")
def test_errors_of_apt_are_shown(tmp_path):
    add_program(tmp_path, "apt-get", "echo E: no network; exit 100")
    status, words = install(tmp_path)
    assert status == 1
    assert words.endswith("browsers.py: apt-get update failed: E: no network\n")
