"""Tests that wait for programs: each says how long, so that a test fails where a program hangs.

`tests/ecosystem` has a runner with times of its own. Also here: how the package waits.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]


def endless(source: str) -> Iterator[int]:
    """The lines in which a program is run without a time limit."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or ast.unparse(node.func) != "subprocess.run":
            continue
        # `**options` may have it.
        if not any(keyword.arg in ("timeout", None) for keyword in node.keywords):
            yield node.lineno


def test_every_program_has_its_time() -> None:
    found = [
        f"{path.relative_to(TESTS)}:{line}"
        for path in sorted(TESTS.rglob("*.py"))
        if not path.is_relative_to(TESTS / "ecosystem")
        for line in endless(path.read_text())
    ]
    assert found == []


def test_one_without_it_is_found() -> None:
    assert list(endless("import subprocess\nsubprocess.run(['x'])\nsubprocess.run(timeout=1)")) == [
        2
    ]


def test_the_package_waits_by_what_lets_cancellations_through() -> None:
    """`asyncio.wait_for` does not, before CPython 3.12: `uringcore._within` says how."""
    package = TESTS.parent / "python" / "uringcore"
    found = [
        f"{path.relative_to(package)}:{node.lineno}"
        for path in sorted(package.rglob("*.py"))
        if path.name != "_within.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("asyncio.wait_for")
    ]
    assert found == []
