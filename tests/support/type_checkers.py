"""mypy and pyright over programs, as users run them. Both come with the development environment alone.

A run takes ten seconds, most of it independent of the programs: a test passes all of its programs, right and
wrong ones, and reads the messages about each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import uringcore

ROOT = Path(__file__).parents[2]


def mypy(folder: Path, *paths: Path, flags: tuple[str, ...] = ()) -> tuple[int, str]:
    """Returns mypy's exit status and output. ``folder`` has its cache."""
    pytest.importorskip("mypy", reason="mypy is part of the development environment alone")
    common = ("--strict", "--follow-imports=silent", f"--cache-dir={folder}")
    return _run("mypy", *common, *flags, *map(str, paths))


def pyright(folder: Path, *paths: Path) -> tuple[int, str]:
    """Returns pyright's exit status and output in strict mode. ``folder`` has its settings."""
    pytest.importorskip("pyright", reason="pyright is part of the development environment alone")
    # pyright would read settings that are missing here from files in other folders.
    settings = {
        "include": [os.path.relpath(path, folder) for path in paths],
        "extraPaths": [str(Path(uringcore.__file__).parents[1])],
        "pythonVersion": "3.10",
        "typeCheckingMode": "strict",
    }
    project = folder / "pyrightconfig.json"
    project.write_text(json.dumps(settings))
    return _run("pyright", "--pythonpath", sys.executable, "--project", str(project))


def errors(said: str, program: Path) -> list[str]:
    """The lines about errors in one program."""
    return [line for line in said.splitlines() if f"/{program.name}:" in line and "error:" in line]


def completeness() -> dict[str, Any]:
    """pyright's report on the types of the package's public symbols (``--verifytypes``)."""
    pytest.importorskip("pyright", reason="pyright is part of the development environment alone")
    # This mode takes the interpreter from PATH, and neither from a flag nor from settings.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    where = {"PATH": path, "PYTHONPATH": str(Path(uringcore.__file__).parents[1])}
    arguments = ("--verifytypes", "uringcore", "--ignoreexternal", "--outputjson")
    _, said = _run("pyright", *arguments, **where)
    report: dict[str, Any] = json.loads(said[said.index("{") :])["typeCompleteness"]
    return report


def _run(checker: str, *arguments: str, **environment: str) -> tuple[int, str]:
    command = [sys.executable, "-m", checker, *arguments]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return done.returncode, done.stdout + done.stderr
