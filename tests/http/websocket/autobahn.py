"""`python -m tests.http.websocket.autobahn` runs the Autobahn test suite against `--http native`.

    make test-autobahn                                          all cases, on both backends: half an hour
    make test-autobahn AUTOBAHN="--backend epoll 1.* 12.1.*"    some of them

The suite needs Python 2.7 with pip, which is looked for in PATH and among pyenv's interpreters. Its packages
come from PyPI into the user's cache; the interpreter is not changed. It speaks HTTP/1.1 alone:
test_websocket_cases.py has its cases over all versions of HTTP.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.server.harness import Server
from tests.support.third_party_programs import Unavailable, fetch_from_now_on, run

VERSION = "25.10.1"
# The newest releases for Python 2.7 that the suite runs with.
PINS = ("Twisted==19.10.0", "autobahn==0.10.9", "cryptography==3.3.2", "pyOpenSSL==19.1.0")
FOLDER = Path.home() / ".cache" / "uringcore" / f"autobahn-{VERSION}"
APPLICATION = "tests.http.websocket.echo_application:app"
SECONDS = 7200
PROGRAM = """
import site, sys

site.addsitedir(sys.argv.pop(1))
from autobahntestsuite import wstest

wstest.run()
"""
# Non-strict: a connection failed before the application had answered an earlier message. Informational:
# the case has no expectation.
PASSES = {"OK", "NON-STRICT", "INFORMATIONAL"}


def main() -> int:
    """Runs the cases; returns 1 if one fails, 2 if the suite cannot be had."""
    parser = argparse.ArgumentParser(prog="python -m tests.http.websocket.autobahn")
    parser.add_argument("cases", nargs="*", default=["*"], help="patterns such as 9.*; all without")
    parser.add_argument(
        "--backend", action="append", choices=("uring", "epoll"), help="both without"
    )
    options = parser.parse_args()
    fetch_from_now_on()
    try:
        python = suite()
    except Unavailable as reason:
        print(f"The Autobahn test suite is not available: {reason}", file=sys.stderr)
        return 2
    failed = 0
    for backend in options.backend or ("uring", "epoll"):
        with tempfile.TemporaryDirectory() as folder:
            failed += report(backend, results(python, Path(folder), backend, options.cases))
    return 1 if failed else 0


def suite() -> Path:
    """Returns the Python 2.7 that has the suite. Raises :class:`Unavailable`."""
    python = python2()
    if not FOLDER.exists():
        FOLDER.parent.mkdir(parents=True, exist_ok=True)
        # A download that is cut off leaves no folder of that name.
        with tempfile.TemporaryDirectory(dir=FOLDER.parent) as folder:
            new = Path(folder) / "packages"
            install = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
            packages = (f"autobahntestsuite=={VERSION}", *PINS)
            run([python, *install, "--target", new, *packages], env=bare_environment())
            new.rename(FOLDER)
    return python


def python2() -> Path:
    """Returns an interpreter with pip."""
    beside_others = sorted((Path.home() / ".pyenv" / "versions").glob("2.7*/bin/python2.7"))
    found = [Path(path) for path in (shutil.which("python2.7"),) if path] + beside_others
    for path in found:
        asked = [path, "-m", "pip", "--version"]
        if (
            subprocess.run(
                asked, capture_output=True, env=bare_environment(), check=False, timeout=60
            ).returncode
            == 0
        ):
            return path
    raise Unavailable("it needs Python 2.7 with pip, in PATH or in ~/.pyenv/versions")


def bare_environment() -> dict[str, str]:
    """Returns the environment without what is meant for this interpreter."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def results(
    python: Path, folder: Path, backend: str, cases: list[str]
) -> dict[str, dict[str, object]]:
    """Runs the cases and returns the report of each."""
    server = Server(
        folder,
        (None, None),
        *("--http", "native", "--no-http3", "--log-level", "info"),
        backend=backend,
        app=APPLICATION,
        http3=False,
    )
    try:
        specification = {
            "outdir": str(folder / "reports"),
            "servers": [{"agent": backend, "url": f"ws://127.0.0.1:{server.port}/"}],
            "cases": cases,
            "exclude-cases": [],
            "exclude-agent-cases": {},
        }
        (folder / "specification.json").write_text(json.dumps(specification))
        command = [python, "-c", PROGRAM, FOLDER, "-m", "fuzzingclient", "-s", "specification.json"]
        environment = bare_environment()
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            check=False,
            timeout=SECONDS,
        )
        assert done.returncode == 0, done.returncode
        server.check_log()
    finally:
        server.kill()
    return json.loads((folder / "reports" / "index.json").read_text())[backend]


def report(backend: str, found: dict[str, dict[str, object]]) -> int:
    """Prints how the cases ended; returns the number of failed ones."""
    counts = collections.Counter(str(case["behavior"]) for case in found.values())
    listed = ", ".join(f"{count} {behavior}" for behavior, count in sorted(counts.items()))
    print(f"Autobahn {VERSION} on {backend}: {len(found)} cases, {listed}")
    failed = 0
    for number in sorted(found, key=lambda it: [int(part) for part in it.split(".")]):
        ends = (str(found[number]["behavior"]), str(found[number]["behaviorClose"]))
        if not PASSES.issuperset(ends):
            failed += 1
            print(f"  {number}: {ends[0]}, closing {ends[1]}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
