"""Whether the tests run on the interpreter that is the default here.

What takes minutes and does not depend on the interpreter is done on that one alone.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@cache
def is_default_interpreter() -> bool:
    """True also where nothing tells which one is the default."""
    command = [sys.executable, str(ROOT / ".ci" / "pythons.py"), "default"]
    default = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    if not default:
        return True
    version = "import sys; print(sys.version_info[:2])"
    asked = subprocess.run([default, "-c", version], capture_output=True, text=True, check=True)
    return asked.stdout.strip() == str(tuple(sys.version_info[:2]))
