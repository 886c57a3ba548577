"""The role of the running interpreter among the tested ones.

Tests that take minutes and do not depend on the interpreter run on one of them. Different tests use different
interpreters, so that concurrent runs end at about the same time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def is_default_interpreter() -> bool:
    """True also if the roles are unknown."""
    return _has_role("default")


def is_oldest_interpreter() -> bool:
    """True also if the roles are unknown."""
    return _has_role("oldest")


def is_newest_interpreter() -> bool:
    """True also if the roles are unknown."""
    return _has_role("newest")


def only_on_default(items: Iterable[pytest.Item], folder: Path, reason: str) -> None:
    """Skips the tests of this folder, except on the default interpreter."""
    if is_default_interpreter():
        return
    for item in items:
        if item.path.is_relative_to(folder):
            item.add_marker(pytest.mark.skip(reason=reason))


def ask_once() -> None:
    """Finds the roles, once for this process and its children, because that runs every interpreter."""
    if ROLES in os.environ:
        return
    command = [sys.executable, str(ROOT / ".ci" / "pythons.py"), "roles"]
    found = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=100
    ).stdout.split("\n")
    here = "{}.{}".format(*sys.version_info[:2])
    roles = [line.split() for line in found if line]
    os.environ[ROLES] = " ".join(role for role, version in roles if version == here)
    if not roles:
        os.environ[ROLES] = "oldest default newest"


def _has_role(role: str) -> bool:
    ask_once()
    return role in os.environ[ROLES].split()


ROLES = "URINGCORE_TEST_ROLES"
