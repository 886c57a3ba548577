"""Counts of machine instructions by valgrind's callgrind, which are valid on a busy machine.

This module runs a group of rows (`programs/counted.py`) and reads the files that callgrind wrote at its
marks. instructions.py compares the counts.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.environment import HERE, ROOT
from benchmarks.harness.results import Spread

MARK_SOURCE = HERE / "native" / "callgrind_mark.c"
LIMIT_SECONDS = 900.0
# The order of sets and the loop's time of polling before it sleeps must not differ between two runs.
FIXED = {"PYTHONHASHSEED": "0", "URINGCORE_BUSY_POLL_US": "0"}

_MARK = re.compile(r"^desc: Trigger: Client Request: (\d+) (.+)$", re.MULTILINE)
_TOTALS = re.compile(r"^totals: (\d+)$", re.MULTILINE)


class CountFailure(Exception):
    """A group of rows failed; the message contains its stderr."""


@dataclass(frozen=True)
class Mark:
    """The instructions counted while a row ran `count` times."""

    row: str
    count: int
    instructions: int

    @classmethod
    def read(cls, text: str) -> Mark | None:
        """The mark of one of callgrind's files, or None if the file's instructions belong to no row."""
        mark, totals = _MARK.search(text), _TOTALS.search(text)
        if mark is None or totals is None:
            return None
        return cls(mark[2], int(mark[1]), int(totals[1]))


@dataclass(frozen=True)
class Sends:
    """How often a row sent, per operation."""

    row: str
    count: int
    syscalls: float
    quic_datagrams_sent: float

    @classmethod
    def read(cls, line: str) -> Sends:
        """Parse one line of the program's output."""
        return cls(**json.loads(line))


def unavailable() -> str | None:
    """The reason why this machine cannot count instructions, or None."""
    if shutil.which("valgrind") is None:
        return "valgrind is not installed (on Debian and Ubuntu: apt-get install valgrind)"
    if shutil.which("cc") is None:
        return "cc is not installed: the marks between the rows are a C library"
    return None


def version() -> str:
    """The version of valgrind."""
    done = subprocess.run(["valgrind", "--version"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def count(python: Path, variables: Mapping[str, str], group: str) -> dict[str, Spread]:
    """The instructions of each row of `group` per operation. See `files`."""
    marks = [Mark.read(text) for text in files(python, variables, group)]
    return per_unit([mark for mark in marks if mark is not None])


def files(python: Path, variables: Mapping[str, str], group: str) -> list[str]:
    """The texts that callgrind wrote at each mark of `group`, in order.

    `python` must be the interpreter itself and no script that starts it. Raises `CountFailure`.
    """
    with tempfile.TemporaryDirectory() as folder:
        _run(_counting(python, group, folder), {**variables, **FIXED})
        # Each mark has written a file: out.1, out.2 and so on, in this order.
        written = sorted(Path(folder).glob("out.*"), key=lambda path: int(path.suffix[1:]))
        return [path.read_text() for path in written]


def sends(python: Path, variables: Mapping[str, str], group: str) -> list[tuple[Sends, Sends]]:
    """How often each row of `group` sends, without valgrind and with it. Raises `CountFailure`."""
    with tempfile.TemporaryDirectory() as folder:
        commands = (_program(python, group), _counting(python, group, folder))
        texts = [_run([*one, "--sends"], {**variables, **FIXED}) for one in commands]
    plain, counted = ([Sends.read(line) for line in text.splitlines()] for text in texts)
    return list(zip(plain, counted, strict=True))


def _program(python: Path, group: str) -> list[str]:
    return [str(python), "-m", "benchmarks.programs.counted", "--group", group]


def _counting(python: Path, group: str, folder: str) -> list[str]:
    library = Path(folder) / "callgrind_mark.so"
    _run(["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(MARK_SOURCE)], {})
    valgrind = ["valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={folder}/out"]
    return [*valgrind, *_program(python, group), "--marks", str(library)]


def per_unit(marks: list[Mark]) -> dict[str, Spread]:
    """The instructions per operation. Marks come in pairs, few and many; common costs cancel out."""
    found: dict[str, list[float]] = defaultdict(list)
    for few, many in zip(marks[::2], marks[1::2], strict=True):
        assert few.row == many.row
        units = many.count - few.count
        found[few.row].append((many.instructions - few.instructions) / units)
    spreads = {row: Spread.of(values) for row, values in found.items()}
    return {row: spread for row, spread in spreads.items() if spread is not None}


def _run(command: list[str], variables: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise CountFailure(f"{' '.join(command)}: no end after {late.timeout} s") from None
    if done.returncode != 0:
        raise CountFailure(
            f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()[-4000:]}"
        )
    return done.stdout
