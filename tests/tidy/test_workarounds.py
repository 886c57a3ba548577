"""Each workaround for a gap of a library has an entry in the instructions for upgrades of that library."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORKAROUNDS = ROOT / "src" / "quic" / "workarounds"
# One to a few of them stand in a row, each in backquotes.
NAMES = re.compile(r"`(\w+)`")


def files() -> list[str]:
    return sorted(path.stem for path in WORKAROUNDS.glob("*.rs") if path.stem != "mod")


def test_each_workaround_has_a_row_in_the_table_for_upgrades() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text.split("## Upgrading quinn-proto and rustls\n")[1].split("\n## ")[0]
    rows = re.findall(r"^ *\| (`.*?) \|", section, re.MULTILINE)
    assert sorted(name for row in rows for name in NAMES.findall(row)) == files()


def test_each_workaround_has_a_line_on_top_of_their_module() -> None:
    text = (WORKAROUNDS / "mod.rs").read_text()
    assert sorted(re.findall(r"^//! - `(\w+)`: ", text, re.MULTILINE)) == files()
