"""The examples run as their first lines describe."""

import subprocess
import sys

import pytest

from tests.server.harness import ROOT, environment


@pytest.mark.parametrize("backend", ["uring", "epoll", None])
@pytest.mark.parametrize(
    ("script", "said"),
    [("echo_loop.py", "1000 echoes on "), ("quic_echo.py", "echoed on 10 streams")],
)
def test_example(script, said, backend):
    if backend == "uring":
        import uringcore

        try:
            uringcore.new_event_loop(backend="uring").close()
        except (OSError, RuntimeError) as exc:
            pytest.skip(f"io_uring is not available here: {exc}")
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
