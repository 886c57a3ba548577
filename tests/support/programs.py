"""Programs of other projects that tests play with: whether they may be fetched, and how they are built.

Nothing is fetched while tests run, for a test has less time than that may take: `make` has `python -m
tests.fetch` do it before. What is not there is `Unavailable`, and its tests are skipped; what does not build
is a fault of ours. Where each program comes from is the business of those who play with it.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

__all__ = [
    "Unavailable",
    "fetch_from_now_on",
    "in_go",
    "in_rust",
    "may_fetch",
    "once",
    "run",
]

ROOT = Path(__file__).parents[2]
FETCH_SECONDS, BUILD_SECONDS = 600, 600
Found = TypeVar("Found")
_fetches = False


class Unavailable(Exception):
    """The program cannot be had on this machine, or was not fetched; the message says why."""


def fetch_from_now_on() -> None:
    """For a process in which no test runs."""
    global _fetches
    _fetches = True


def may_fetch(what: str) -> None:
    """Raises :class:`Unavailable` where it may not."""
    if not _fetches:
        raise Unavailable(f"{what} is not there: `python -m tests.fetch` fetches it")


def once(find: Callable[..., Found]) -> Callable[..., Found]:
    """A function that is asked once for the same arguments, also if it says :class:`Unavailable`."""

    @functools.cache
    def outcome(*arguments: Any) -> Found | Unavailable:
        try:
            return find(*arguments)
        except Unavailable as reason:
            return reason

    @functools.wraps(find)
    def ask(*arguments: Any) -> Found:
        found = outcome(*arguments)
        if isinstance(found, Unavailable):
            raise Unavailable(*found.args)
        return found

    return ask


@once
def in_go(folder: Path) -> Path:
    """The program that is written in Go in a folder, built where Go and the modules are there."""
    go = _tool("go")
    proxy = {} if _fetches else {"GOPROXY": "off"}
    run([go, "mod", "download"], cwd=folder, env={**os.environ, **proxy})
    program = _built(folder) / "program"
    # Others may build it too, and others run it: each puts the same whole file in its place.
    new = program.with_suffix(f".{os.getpid()}")
    _build([go, "build", "-mod=readonly", "-o", str(new), "."], folder)
    return new.replace(program)


@once
def in_rust(folder: Path, program: str) -> Path:
    """The program that is written in Rust in a folder, built where Cargo and the crates are there."""
    cargo = _tool("cargo")
    offline = [] if _fetches else ["--offline"]
    run([cargo, "fetch", "--locked", "--quiet", *offline], cwd=folder)
    target = _built(folder)
    _build([cargo, "build", "--locked", "--quiet", "--target-dir", str(target)], folder)
    return target / "debug" / program


def run(command: Sequence[str | Path], **options: Any) -> str:
    """What a command prints that fetches; raises :class:`Unavailable` with its complaints."""
    options.setdefault("stdin", subprocess.DEVNULL)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=FETCH_SECONDS, **options
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(str(error)) from None
    if done.returncode:
        words = " ".join(map(str, command))
        raise Unavailable(f"{words} failed: {done.stderr.strip()[-500:]}")
    return done.stdout


def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise Unavailable(f"{name} is not installed")
    return path


def _built(folder: Path) -> Path:
    """Where that folder's program goes: more than one has its name."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    place = target / "programs" / f"{folder.name}-{zlib.crc32(os.fsencode(folder)):08x}"
    place.mkdir(parents=True, exist_ok=True)
    return place


def _build(command: list[str], folder: Path) -> None:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS
    )
    if done.returncode:
        raise RuntimeError(f"{folder} does not build:\n{done.stderr.strip()}")
