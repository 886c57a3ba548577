"""The package as type checkers see it: each public name, no other, and the loop's type."""

from __future__ import annotations

import importlib
import re

import pytest

from tests.support.type_checkers import ROOT, errors, mypy, pyright

pytestmark = pytest.mark.lint
# Packages that load names on first use, each with a misspelt name.
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

# Both checkers' messages about a missing name of a module.
MISSING = re.compile(r"error: .*(no attribute|reportAttributeAccessIssue)")


def lazy_packages() -> set[str]:
    """The packages with a `__getattr__` of their own."""
    python = ROOT / "python"
    return {
        ".".join(path.parent.relative_to(python).parts)
        for path in python.rglob("__init__.py")
        if re.search(r"^ *def __getattr__\(name", path.read_text(), re.MULTILINE)
    }


def test_each_package_that_loads_names_late_is_checked_here():
    assert lazy_packages() == LAZY.keys()


def misspelt() -> str:
    """Uses each misspelt name in two ways."""
    lines = [f"import {package}\nprint({package}.{name})\n" for package, name in LAZY.items()]
    lines += [f"from {package} import {name}\n" for package, name in LAZY.items()]
    return "".join(lines)


def every_name() -> str:
    """Uses each public name."""
    lines = [f"import {package}" for package in LAZY]
    for package in LAZY:
        # CPython 3.15 is the last with policies: `__all__` leaves the name out where it has no value.
        names = importlib.import_module(package).__all__
        lines += [f"print({package}.{name})" for name in names]
    return "\n".join(lines) + "\n"


def first_of_readme() -> str:
    """A program without annotations, which is checked nevertheless."""
    programs = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return f"# mypy: allow-untyped-defs, allow-untyped-calls, check-untyped-defs\n{programs[0]}"


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_names_have_types_and_mistakes_are_errors(checker, tmp_path):
    """Right: public names, the loop's backend, README's first program. Wrong: misspelt names and backends."""
    texts = {
        "names": every_name(),
        "backend": PROGRAM,
        "readme": first_of_readme(),
        "misspelt": misspelt(),
        "other_backend": PROGRAM.replace('backend="epoll"', 'backend="epol"'),
    }
    if checker is pyright:
        # The output has no such line for a single file.
        del texts["readme"]
    programs = {name: tmp_path / f"{name}.py" for name in texts}
    for name, text in texts.items():
        programs[name].write_text(text)
    status, said = checker(tmp_path, *programs.values())
    assert status == 1, said
    found = {name: errors(said, program) for name, program in programs.items()}
    for name in LAZY.values():
        lines = [line for line in found["misspelt"] if f'"{name}"' in line]
        assert sum(MISSING.search(line) is not None for line in lines) == 2, said
    assert found.pop("misspelt")
    (line,) = found.pop("other_backend")
    assert "epol" in line
    assert not any(found.values()), said
