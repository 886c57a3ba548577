"""A virtual environment for each project, with the project's release, its tests' requirements, and
our wheel.

Each is made once and kept; only our own wheel is installed again when the tree has changed. One
environment for all would have to reconcile seven projects' requirements.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

from tests.ecosystem.projects import INSIDE, PYTEST, Project
from tests.ecosystem.sources import HOME, ROOT, Missing

STAMP = "ecosystem.json"
RENAMING = "aioquic_renamed"


def wheel(python: str, version: str) -> Path:
    """Return our wheel for the interpreter `python`, built if the tree has changed since the last
    one.
    """
    folder = HOME / version / "uringcore"
    folder.parent.mkdir(parents=True, exist_ok=True)
    command = [python, str(ROOT / ".ci" / "venv.py"), "--venv", str(folder)]
    command += ["--python", python, "--profile", "dev-opt"]
    if subprocess.run(command).returncode:
        raise Missing("uringcore could not be built")
    return next((folder / "wheel").glob("*.whl"))


def environment(project: Project, python: str, version: str, ours: Path) -> Path:
    """Return the interpreter of the environment of `project`."""
    folder = HOME / version / project.name
    inside = folder / "bin" / "python"
    extras = f"[{project.extras}]" if project.extras else ""
    release = [f"{project.release}{extras}=={project.version}"] if project.on_pypi else []
    wanted = [*release, *PYTEST, *project.requirements]
    stamp = {
        "wanted": wanted,
        "wheel": hashlib.sha256(ours.read_bytes()).hexdigest(),
        "renaming": hashlib.sha256((INSIDE / f"{RENAMING}.py").read_bytes()).hexdigest(),
    }
    found = _stamp(folder)
    if found.get("wanted") != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        _run([python, "-m", "venv", str(folder)], f"an environment for {project.name}")
        _pip(inside, *wanted)
    if found != stamp:
        _pip(inside, "--force-reinstall", "--no-deps", str(ours))
        if project.aioquic:
            packages = next((folder / "lib").glob("python*/site-packages"))
            shutil.copy(INSIDE / f"{RENAMING}.py", packages)
            (packages / f"{RENAMING}.pth").write_text(f"import {RENAMING}\n")
        (folder / STAMP).write_text(json.dumps(stamp))
    return inside


def _stamp(folder: Path) -> dict[str, object]:
    try:
        found = json.loads((folder / STAMP).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _pip(python: Path, *arguments: str) -> None:
    command = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    _run([*command, *arguments], "pip install " + " ".join(arguments))


def _run(command: list[str], what: str) -> None:
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise Missing(f"{what} failed:\n{done.stdout.rstrip()}")
