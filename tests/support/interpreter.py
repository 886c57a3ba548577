"""Which of the interpreters that are tested here runs the tests.

What takes minutes and does not depend on the interpreter is done on one alone, which is not always the
same, so that runs side by side end at about the same time.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def is_default_interpreter() -> bool:
    """True also where nothing tells which one is the default."""
    return _has_role("default")


def is_oldest_interpreter() -> bool:
    """True also where nothing tells which one is the oldest."""
    return _has_role("oldest")


def is_newest_interpreter() -> bool:
    """True also where nothing tells which one is the newest."""
    return _has_role("newest")


@cache
def _has_role(role: str) -> bool:
    command = [sys.executable, str(ROOT / ".ci" / "pythons.py"), role]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    if not found:
        return True
    version = "import sys; print(sys.version_info[:2])"
    asked = subprocess.run([found, "-c", version], capture_output=True, text=True, check=True)
    return asked.stdout.strip() == str(tuple(sys.version_info[:2]))
