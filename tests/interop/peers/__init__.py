"""The implementations that the interoperability tests run as processes: how each is started.

Every peer has the command line of `examples.interop` (role, `--testcase`, folders; the requests come
in the environment) and its exit status, 127 for a case that it cannot play. Beside the public
runner's cases they know two of this project's own, `datagram` and `closecodes` (see `probe.py`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["OURS", "PEERS", "Peer", "Unavailable", "version_of"]

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PROBES = ("datagram", "closecodes")


class Unavailable(Exception):
    """The peer cannot be had on this machine; the message says why."""


@dataclass(frozen=True)
class Peer:
    """One implementation."""

    name: str
    words: Callable[[str], list[str]]
    """The command for a TESTCASE, up to the role. Raises `Unavailable`."""

    def command(self, role: str, test_case: str) -> list[str]:
        """The command line up to its options."""
        return [*self.words(test_case), role]

    def missing(self) -> str | None:
        """Why the peer cannot be run here, or None."""
        try:
            self.words("handshake")
        except Unavailable as exc:
            return str(exc)
        return None


def _ours(backend: str) -> Callable[[str], list[str]]:
    def words(test_case: str) -> list[str]:
        module = ["examples.interop"]
        if test_case in PROBES:
            module = ["tests.interop.peers.python", "uringcore"]
        # The option goes before the role, which is a word by itself.
        return [sys.executable, "-m", *module, "--backend", backend]

    return words


def _library(name: str) -> Callable[[str], list[str]]:
    def words(test_case: str) -> list[str]:
        return [str(python_with(name)), "-m", "tests.interop.peers.python", name]

    return words


@cache
def python_with(library: str) -> Path:
    """An interpreter that has the library: this one, or the peers' environment.

    The environment is made once, by the newest CPython here: aiopquic needs 3.12.
    """
    if library == "aioquic" and _has(Path(sys.executable), library):
        return Path(sys.executable)
    python = ROOT / ".venv-interop" / "bin" / "python"
    if not python.exists():
        base = os.environ.get("INTEROP_PYTHON") or _newest_python()
        subprocess.run([base, "-m", "venv", str(python.parents[1])], check=True)
    if not _has(python, library):
        requirement = {"aioquic": "aioquic>=1.2"}.get(library, library)
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
def quic_go() -> Path:
    """The quic-go endpoint, built where Go is installed."""
    go = shutil.which("go")
    if go is None:
        raise Unavailable("Go is not installed")
    program = _built() / "quicgo"
    _run([go, "build", "-mod=readonly", "-o", str(program), "."], HERE.parent / "quicgo")
    return program


@cache
def quinn() -> Path:
    """The quinn endpoint, built where Cargo is installed."""
    cargo = shutil.which("cargo")
    if cargo is None:
        raise Unavailable("Cargo is not installed")
    target = _built() / "quinn"
    environment = {**os.environ, "CARGO_TARGET_DIR": str(target)}
    _run([cargo, "build", "--locked", "--quiet"], HERE.parent / "quinn", environment)
    return target / "debug" / "quinn_interop"


def version_of(name: str) -> str:
    """The peer's version, of its package or of the file that pins it; ours is this tree's."""
    if name == "quic-go":
        return _pinned(HERE.parent / "quicgo" / "go.mod", "github.com/quic-go/quic-go v")
    if name == "quinn":
        return _pinned(HERE.parent / "quinn" / "Cargo.lock", 'name = "quinn"\nversion = "')
    if name.startswith(OURS):
        return ""
    code = f"from importlib.metadata import version; print(version({name!r}))"
    asked = subprocess.run(
        [str(python_with(name)), "-c", code], capture_output=True, text=True, check=True
    )
    return asked.stdout.strip()


def _pinned(path: Path, before: str) -> str:
    _, _, rest = path.read_text().partition(before)
    return rest.split()[0].strip('"') if rest else ""


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


OURS = "uringcore"
PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer(OURS, _ours("uring")),
        Peer("uringcore-epoll", _ours("epoll")),
        Peer("aioquic", _library("aioquic")),
        Peer("qh3", _library("qh3")),
        Peer("aiopquic", _library("aiopquic")),
        Peer("quic-go", lambda test_case: [str(quic_go())]),
        Peer("quinn", lambda test_case: [str(quinn())]),
    )
}
