"""The examples run as their first lines describe."""

import subprocess
import sys

import pytest

from tests.server.harness import ROOT, environment
from tests.support import io_uring_probe


@pytest.mark.parametrize("backend", ["uring", "epoll", None])
@pytest.mark.parametrize(
    ("script", "said"),
    [("echo_loop.py", "1000 echoes on "), ("quic_echo.py", "echoed on 10 streams")],
)
def test_example(script, said, backend):
    if backend == "uring" and (reason := io_uring_probe.why_not()):
        pytest.skip(reason)
    env = environment() | ({"URINGCORE_BACKEND": backend} if backend else {})
    done = subprocess.run(
        [sys.executable, f"examples/{script}"],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert said in done.stdout
