"""Programs of Debian's that tests talk to: the system's own, or its packages unpacked in the user's cache.

Nothing of the system is changed and no rights are needed: what a package would start stays unstarted.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["Missing", "Program", "program"]

FOLDER = Path.home() / ".cache" / "uringcore" / "debian"


class Missing(Exception):
    """The program cannot be had; the message says why."""


class Program:
    """An executable, and the root folder that it was unpacked in."""

    def __init__(self, path: Path, root: Path) -> None:
        self.path = str(path)
        self.root = root

    @property
    def environment(self) -> dict[str, str]:
        """In which it finds its libraries."""
        if self.root == Path("/"):
            return dict(os.environ)
        folders = [str(folder) for folder in self.root.glob("usr/lib/*-linux-gnu")]
        return {**os.environ, "LD_LIBRARY_PATH": ":".join(folders)}


def program(name: str, *packages: str) -> Program:
    """The program `name`, of `packages` where the system has not got it. Raises :class:`Missing`."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    found = shutil.which(name, path=path)
    if found is not None:
        return Program(Path(found), Path("/"))
    root = _unpacked(packages or (name,))
    for folder in ("usr/sbin", "usr/bin"):
        if (root / folder / name).exists():
            return Program(root / folder / name, root)
    raise Missing(f"Debian's {' '.join(packages)} have no {name}")


def _unpacked(packages: tuple[str, ...]) -> Path:
    """The folder with the files of these packages, and of all that they need and the system lacks."""
    root = FOLDER / "-".join(packages)
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        # Tests run side by side; whoever is first fetches for all.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if root.exists():
            return root
        for tool in ("apt-get", "dpkg-deb"):
            if shutil.which(tool) is None:
                raise Missing(f"{packages[0]} is not installed, and this is no Debian: no {tool}")
        with tempfile.TemporaryDirectory(dir=FOLDER) as work:
            new = Path(work, "root")
            new.mkdir()
            for file in _download(Path(work), packages):
                _run(["dpkg-deb", "--extract", str(file), str(new)])
            new.rename(root)
    return root


def _download(work: Path, packages: tuple[str, ...]) -> Iterator[Path]:
    archives = work / "archives"
    (archives / "partial").mkdir(parents=True)
    (work / "lists" / "partial").mkdir(parents=True)
    options = [
        *("-o", f"Dir::Cache={work}", "-o", f"Dir::Cache::archives={archives}"),
        *("-o", "Debug::NoLocking=true", "-o", "APT::Install-Recommends=false"),
        *("-o", "APT::Sandbox::User=root"),
    ]
    install = ["--yes", "--download-only", "install", *packages]
    try:
        _run(["apt-get", "-qq", *options, *install])
    except Missing:
        # The system's lists may be old, or never have been fetched.
        options += ["-o", f"Dir::State::lists={work / 'lists'}"]
        _run(["apt-get", "-qq", *options, "update"])
        _run(["apt-get", "-qq", *options, *install])
    return archives.glob("*.deb")


def _run(command: list[str]) -> None:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Missing(f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}")
