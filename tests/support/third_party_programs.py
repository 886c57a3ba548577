"""Third-party programs for tests: permission to fetch them, and their builds.

Nothing is fetched while tests run, because that may take longer than a test's time limit: `make` runs `python
-m tests.fetch` before. A missing program is `Unavailable`, and its tests are skipped; a failed build is an
error. The modules that use a program define its source.
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
    """The program is not available on this machine, or was not fetched; the message has the reason."""


def fetch_from_now_on() -> None:
    """Allows fetching, for a process in which no test runs."""
    global _fetches
    _fetches = True


def may_fetch(what: str) -> None:
    """Raises :class:`Unavailable` unless fetching is allowed."""
    if not _fetches:
        raise Unavailable(f"{what} is not there: `python -m tests.fetch` fetches it")


def once(find: Callable[..., Found]) -> Callable[..., Found]:
    """Returns a function that caches its result for its arguments, also an :class:`Unavailable`."""

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
    """Builds the Go program in a folder, if Go and the modules are available."""
    go = _tool("go")
    proxy = {} if _fetches else {"GOPROXY": "off"}
    run([go, "mod", "download"], cwd=folder, env={**os.environ, **proxy})
    program = _built(folder) / "program"
    # Other processes may build or run it as well: each replaces the whole file at once.
    new = program.with_suffix(f".{os.getpid()}")
    _build([go, "build", "-mod=readonly", "-o", str(new), "."], folder)
    return new.replace(program)


@once
def in_rust(folder: Path, program: str) -> Path:
    """Builds the Rust program in a folder, if Cargo and the crates are available."""
    cargo = _tool("cargo")
    offline = [] if _fetches else ["--offline"]
    run([cargo, "fetch", "--locked", "--quiet", *offline], cwd=folder)
    target = _built(folder)
    _build([cargo, "build", "--locked", "--quiet", "--target-dir", str(target)], folder)
    return target / "debug" / program


def run(command: Sequence[str | Path], **options: Any) -> str:
    """Runs a command that fetches and returns its output. Raises :class:`Unavailable` with its errors."""
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
    """Returns the output folder of that folder's program; several folders have one name."""
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
