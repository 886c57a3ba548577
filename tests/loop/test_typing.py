"""What type checkers see of the package: each public name, no other, and the loop's type."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from tests.support.type_checkers import ROOT, mypy, pyright

# Packages that load names of theirs when a program first asks for one, with a misspelt name.
LAZY = {
    "uringcore": "rnu",
    "uringcore.quic": "conect",
    "uringcore.server": "Sever",
}

PROGRAM = """
import asyncio
from typing import Literal

import uringcore

async def main() -> Literal["uring", "epoll"]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, uringcore.UringEventLoop)
    return loop.backend

uringcore.run(main(), backend="epoll")
uringcore.new_event_loop("uring").close()
"""

CHECKERS = [mypy, pyright]

# What either says of a name that a module has not.
MISSING = re.compile(r"error: .*(no attribute|reportAttributeAccessIssue)")


def lazy_packages() -> set[str]:
    """The packages with a `__getattr__` of their own."""
    python = ROOT / "python"
    return {
        ".".join(path.parent.relative_to(python).parts)
        for path in python.rglob("__init__.py")
        if re.search(r"^ *def __getattr__\(name", path.read_text(), re.MULTILINE)
    }


def check(checker, folder: Path, text: str) -> tuple[int, str]:
    program = folder / "program.py"
    program.write_text(text)
    status, said = checker(folder, program)
    return int(status), str(said)


def test_each_package_that_loads_names_late_is_checked_here():
    assert lazy_packages() == LAZY.keys()


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_misspelt_name_is_an_error(checker, tmp_path):
    lines = [f"import {package}\nprint({package}.{name})\n" for package, name in LAZY.items()]
    lines += [f"from {package} import {name}\n" for package, name in LAZY.items()]
    status, said = check(checker, tmp_path, "".join(lines))
    assert status == 1
    for name in LAZY.values():
        lines = [line for line in said.splitlines() if f'"{name}"' in line]
        assert sum(MISSING.search(line) is not None for line in lines) == 2, said


@pytest.mark.parametrize("checker", CHECKERS)
def test_each_public_name_has_a_type(checker, tmp_path):
    lines = [f"import {package}" for package in LAZY]
    for package in LAZY:
        # CPython 3.15 is the last with policies: `__all__` leaves the name out where it has no value.
        names = importlib.import_module(package).__all__
        lines += [f"print({package}.{name})" for name in names]
    status, said = check(checker, tmp_path, "\n".join(lines) + "\n")
    assert status == 0, said


@pytest.mark.parametrize("checker", CHECKERS)
def test_the_backend_is_one_of_two_words(checker, tmp_path):
    status, said = check(checker, tmp_path, PROGRAM)
    assert status == 0, said
    status, said = check(checker, tmp_path, PROGRAM.replace('backend="epoll"', 'backend="epol"'))
    assert status == 1
    assert "epol" in said


def test_the_first_program_of_the_readme_passes(tmp_path):
    programs = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    program = tmp_path / "program.py"
    program.write_text(programs[0])
    loose = ("--allow-untyped-defs", "--allow-untyped-calls", "--check-untyped-defs")
    status, said = mypy(tmp_path, program, flags=loose)
    assert status == 0, said
