"""aioquic's published examples, taken from its source distribution, with only their imports changed."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import pytest

from tests.support.child_processes import bound
from tests.support.third_party_programs import Unavailable, may_fetch, once, run

VERSION = "1.7.2"
CACHE = Path.home() / ".cache" / "uringcore" / "aioquic"
# Each pattern matches a whole import statement, or its beginning; nothing else is touched.
IMPORTS = [
    (re.compile(r"^from aioquic(?=[. ])", re.MULTILINE), "from uringcore"),
    (re.compile(r"^import aioquic$", re.MULTILINE), "import uringcore as aioquic"),
]
# An example that prefers uvloop gets uringcore's loop here; otherwise it would run on stock asyncio.
LOOP = (re.compile(r"^    import uvloop$", re.MULTILINE), "    import uringcore as uvloop")


@once
def archive():
    """Returns aioquic's source distribution, downloaded once for all interpreters. Raises `Unavailable`."""
    path = CACHE / f"aioquic-{VERSION}.tar.gz"
    if not path.exists():
        may_fetch("aioquic's source distribution")
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as unfinished:
            # `--no-binary` names aioquic alone, so that its build dependencies may be wheels.
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            run([*command, "--no-binary", "aioquic", "--dest", unfinished, f"aioquic=={VERSION}"])
            (Path(unfinished) / path.name).replace(path)
    return path


def unpacked(target):
    """Unpacks the examples below ``target`` and returns their directory. Skips the test if they were not
    fetched.
    """
    try:
        path = archive()
    except Unavailable as reason:
        pytest.skip(str(reason))
    with tarfile.open(path) as tar:
        members = [m for m in tar.getmembers() if f"aioquic-{VERSION}/examples/" in m.name]
        tar.extractall(target, members=members, filter="data")
    return Path(target) / f"aioquic-{VERSION}" / "examples"


def rewritten(source, target, *, loop):
    """A copy of the examples that imports uringcore."""
    shutil.copytree(source, target)
    for path in target.glob("*.py"):
        text = path.read_text()
        for pattern, replacement in [*IMPORTS, LOOP] if loop else IMPORTS:
            text = pattern.sub(replacement, text)
        path.write_text(text)
    return target


def _is_bound(port):
    """Returns true if a UDP socket has ``port``. Read from /proc, because a bind() of our own would take the
    port from the server.
    """
    tables = [path for path in map(Path, ("/proc/net/udp", "/proc/net/udp6")) if path.exists()]
    rows = [row.split() for table in tables for row in table.read_text().splitlines()[1:]]
    return any(int(row[1].rpartition(":")[2], 16) == port for row in rows)


@contextlib.contextmanager
def running(directory, script, *arguments, port):
    """Runs an example's server in a process of its own until the block ends; yields its output."""
    log = directory / f"{script}-{port}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            bound([sys.executable, script, *map(str, arguments), "--port", str(port)]),
            cwd=directory,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            end = time.monotonic() + 30
            while not _is_bound(port):
                if process.poll() is not None or time.monotonic() > end:
                    pytest.fail(f"{script} did not start:\n{log.read_text()}")
                time.sleep(0.05)
            yield log
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def written_trace(directory, limit=60.0):
    """Returns the one trace in ``directory`` once it is complete. aioquic creates the file under its final
    name, and its server writes it after the client has exited.
    """
    end = time.monotonic() + limit
    while True:
        paths = list(Path(directory).glob("*.qlog"))
        try:
            (document,) = [json.loads(path.read_text()) for path in paths]
        except ValueError as exc:
            if time.monotonic() > end:
                raise AssertionError(f"no complete trace in {paths}") from exc
            time.sleep(0.05)
            continue
        (trace,) = document["traces"]
        return trace


def run_client(directory, script, *arguments):
    """Runs an example's client to its end and returns its output."""
    done = subprocess.run(
        [sys.executable, script, *map(str, arguments)],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
