"""The servers that suites need: a real Redis and a real PostgreSQL, on private addresses.

Redis runs beside the suite, in a folder of its own that is removed with it. asyncpg's suite starts
PostgreSQL itself (it makes clusters with settings of their own); from here it gets the path of the
programs and, under root, a user id that is not 0.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.ecosystem.sources import Missing

START_SECONDS = 20.0
_USUAL_REDIS_PORT = 6379


@dataclass(frozen=True)
class Service:
    """The settings with which a suite finds its server."""

    version: str = ""
    prefix: tuple[str, ...] = ()
    """Words before the command that runs the suite."""
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)


@contextlib.contextmanager
def service(name: str | None) -> Iterator[Service]:
    """Start the server called `name` and stop it at the end; without a name, nothing.

    Raises `Missing` if this machine has no such server.
    """
    if name is None:
        yield Service()
    elif name == "redis":
        with _redis() as found:
            yield found
    else:
        yield _postgresql()


@contextlib.contextmanager
def _redis() -> Iterator[Service]:
    program = shutil.which("redis-server")
    if program is None:
        raise Missing("redis-server was not found (on Debian: apt-get install redis-server)")
    with tempfile.TemporaryDirectory(prefix="ecosystem-redis-") as folder:
        # Part of redis-py's suite uses the default port and ignores its options.
        port = _free_port(_USUAL_REDIS_PORT)
        command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", folder]
        command += ["--save", "", "--appendonly", "no", "--enable-debug-command", "yes"]
        with (Path(folder) / "log").open("w+") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
            try:
                _wait_for(port, process, log)
                yield Service(
                    version=_first_line([program, "--version"]),
                    arguments=(f"--redis-url=redis://127.0.0.1:{port}/0",),
                )
            finally:
                process.terminate()
                process.wait(10)


def _postgresql() -> Service:
    programs = _postgresql_programs()
    prefix: tuple[str, ...] = ()
    if os.geteuid() == 0:
        # PostgreSQL rejects root. In a user namespace root's files stay readable under another id,
        # unlike with a second account of the machine.
        prefix = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
        if subprocess.run([*prefix, "true"], capture_output=True).returncode:
            raise Missing(
                "PostgreSQL does not run as root, and this machine forbids user namespaces; "
                "run the suite as another user"
            )
    return Service(
        version=_first_line([str(programs / "postgres"), "--version"]),
        prefix=prefix,
        environment={"PGINSTALLATION": str(programs)},
    )


def _postgresql_programs() -> Path:
    """Return the folder with initdb, pg_ctl and postgres: of the newest installed version."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3])
    )
    if found:
        return found[-1].parent
    program = shutil.which("initdb")
    if program is None:
        raise Missing("PostgreSQL was not found (on Debian: apt-get install postgresql)")
    return Path(program).resolve().parent


def _free_port(wanted: int) -> int:
    """Return `wanted`, or another port if that is in use."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", wanted))
        except OSError:
            sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def _wait_for(port: int, process: subprocess.Popen[bytes], log: object) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise Missing(f"redis-server ended with status {process.returncode}")
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        time.sleep(0.05)
    raise Missing(f"redis-server does not answer after {START_SECONDS} s")


def _first_line(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True).stdout.split("\n", 1)[0]
