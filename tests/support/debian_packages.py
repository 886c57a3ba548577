"""Debian's programs that tests use: the system's own, or packages unpacked in the user's cache.

The system is not changed and no rights are needed: services of a package are not started.
third_party_programs.py decides if a package may be fetched.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.support.third_party_programs import Unavailable, may_fetch, once, run

__all__ = ["PACKAGES", "Program", "program"]

FOLDER = Path.home() / ".cache" / "uringcore" / "debian"
PACKAGES = {
    "nginx": ("nginx", "libnginx-mod-stream"),
    "haproxy": ("haproxy",),
    "brotli": ("brotli",),
    "zstd": ("zstd",),
    "nghttp": ("nghttp2-client",),
    "h2load": ("nghttp2-client",),
}
"""The packages of each program."""


class Program:
    """An executable, and the root folder that it was unpacked in."""

    def __init__(self, path: Path, root: Path) -> None:
        self.path = str(path)
        self.root = root

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which it finds its libraries."""
        if self.root == Path("/"):
            return dict(os.environ)
        folders = [str(folder) for folder in self.root.glob("usr/lib/*-linux-gnu")]
        return {**os.environ, "LD_LIBRARY_PATH": ":".join(folders)}


@once
def program(name: str) -> Program:
    """Returns the system's program, or one from its packages. Raises :class:`Unavailable`."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    found = shutil.which(name, path=path)
    if found is not None:
        return Program(Path(found), Path("/"))
    root = _unpacked(PACKAGES[name])
    for folder in ("usr/sbin", "usr/bin"):
        if (root / folder / name).exists():
            return Program(root / folder / name, root)
    raise Unavailable(f"Debian's {' '.join(PACKAGES[name])} have no {name}")


def _unpacked(packages: tuple[str, ...]) -> Path:
    """Returns the folder with the files of these packages and of their missing dependencies."""
    root = FOLDER / "-".join(packages)
    if root.exists():
        return root
    may_fetch(packages[0])
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        # The first process fetches for all.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if root.exists():
            return root
        for tool in ("apt-get", "dpkg-deb"):
            if shutil.which(tool) is None:
                raise Unavailable(
                    f"{packages[0]} is not installed, and this is no Debian: no {tool}"
                )
        with tempfile.TemporaryDirectory(dir=FOLDER) as work:
            new = Path(work, "root")
            new.mkdir()
            for file in _download(Path(work), packages):
                run(["dpkg-deb", "--extract", str(file), str(new)])
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
        run(["apt-get", "-qq", *options, *install])
    except Unavailable:
        # The system's package lists may be old or missing.
        options += ["-o", f"Dir::State::lists={work / 'lists'}"]
        run(["apt-get", "-qq", *options, "update"])
        run(["apt-get", "-qq", *options, *install])
    return archives.glob("*.deb")
