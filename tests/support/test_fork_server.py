"""A forked process has what an interpreter of its own would have, and ends like it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.server.conftest import certificate
from tests.server.harness import ForkedServer, Server, environment
from tests.support.fork_server import ForkServer, forks

__all__ = ["certificate"]


@pytest.fixture
def forking() -> ForkServer:
    found = forks(environment())
    assert found is not None
    return found


def test_a_command_has_its_status_and_its_streams(forking: ForkServer) -> None:
    status, out, errors = forking.run(["--version"], timeout=60)
    assert (status, errors) == (0, b"")
    assert out.startswith(b"uringcore ")
    status, out, errors = forking.run(["get", "no-url"], timeout=60)
    assert (status, out) == (3, b"")
    assert errors.startswith(b"uringcore get: ")


def facts(server: Server) -> tuple[list[str], dict[str, str], str]:
    """The descriptors of a server's process by kind, its treatment of signals, and its folder."""
    process = Path(f"/proc/{server.process.pid}")
    targets = [os.readlink(one) for one in (process / "fd").iterdir()]
    kinds = sorted(re.sub(r"\d+|/.*/(?=server.log)", "", target) for target in targets)
    lines = (line.split(":\t") for line in (process / "status").read_text().splitlines())
    signals = {name: value for name, value in lines if re.match("Sig(Blk|Ign|Cgt)", name)}
    return kinds, signals, os.readlink(process / "cwd")


@pytest.mark.parametrize("how", ["asked", "killed"])
def test_a_server_is_like_one_that_a_user_starts(
    certificate: tuple[str, str], tmp_path: Path, how: str
) -> None:
    found = []
    for kind in (Server, ForkedServer):
        server = kind(tmp_path, certificate, backend="epoll")
        assert server.get("/").content == b"hello"
        seen = facts(server)
        sig = signal.SIGTERM if how == "asked" else signal.SIGKILL
        found.append((*seen, server.stop(sig)))
        assert server.process.poll() == found[-1][-1]
        server.kill()
    assert found[0] == found[1]


def test_the_limit_of_a_wait(certificate: tuple[str, str], tmp_path: Path) -> None:
    server = ForkedServer(tmp_path, certificate, backend="epoll")
    with pytest.raises(subprocess.TimeoutExpired):
        server.process.wait(0.01)
    server.kill()
    assert server.process.returncode == -signal.SIGKILL


def test_another_environment_needs_an_interpreter(forking: ForkServer) -> None:
    assert forks({**environment(), "PYTEST_CURRENT_TEST": "another"}) is forking
    assert forks({**environment(), "SSL_CERT_FILE": "a file"}) is None


def lives(pid: int) -> bool:
    """False for a zombie, too, whose command line is empty."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False


def test_processes_end_with_their_fork_server(tmp_path: Path) -> None:
    forking = ForkServer(environment())
    with (tmp_path / "log").open("wb") as log:
        process = forking.start(["tests.server.application:app", "--port", "0"], log)
    forking.close()
    deadline = time.monotonic() + 60
    while lives(process.pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)
