"""``running``: a program of Debian's in the foreground, which listens on a TCP port of this machine."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.support.child_processes import bound
from tests.support.debian_packages import Program, program
from tests.support.third_party_programs import Unavailable

__all__ = ["debian", "running"]

SECONDS = 60


def debian(name: str) -> Program:
    """Returns the program; without it the test is skipped."""
    try:
        return program(name)
    except Unavailable as why:
        pytest.skip(str(why))


@contextlib.contextmanager
def running(
    command: Sequence[str], environment: Mapping[str, str], port: int, log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs the command from the time at which it listens on `port` until the end of the block."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            bound(command), env=environment, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 5).close()
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        finally:
            process.kill()
            process.wait()
