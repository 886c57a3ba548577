"""Reports for other projects are listed in their index, and refer to the releases that this tree uses."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
REPORTS = ROOT / "docs" / "upstream"
INDEX = (REPORTS / "README.md").read_text()


def test_the_index_has_each_report_once() -> None:
    listed = re.findall(r"^\| \[[\w-]+\]\(([\w-]+\.md)\)", INDEX, re.MULTILINE)
    assert sorted(listed) == sorted({path.name for path in REPORTS.glob("*.md")} - {"README.md"})


def test_each_report_has_the_parts_that_a_maintainer_needs() -> None:
    for path in REPORTS.glob("*.md"):
        if path.name in ("README.md", "aiofastnet.md"):
            continue
        headings = re.findall(r"^##+ (.*)$", path.read_text(), re.MULTILINE)
        wanted = [
            "Title",
            "Text",
            "Reproduction",
            "Cause",
            "Suggested change",
            "Effect in practice",
        ]
        assert headings == wanted, path.name


def test_reports_for_quinn_proto_are_about_the_release_in_use() -> None:
    """After an upgrade: `python .ci/upstream.py`, and the line numbers."""
    lock = (ROOT / "Cargo.lock").read_text()
    (version,) = re.findall(r'name = "quinn-proto"\nversion = "([^"]+)"', lock)
    for path in REPORTS.glob("quinn-proto-*.md"):
        assert f"about quinn-proto {version}." in path.read_text(), path.name
    assert f"quinn-proto-{version}`" in INDEX


def test_each_workaround_is_a_report_or_a_gap() -> None:
    workarounds = {path.stem for path in (ROOT / "src" / "quic" / "workarounds").glob("*.rs")} - {
        "mod"
    }
    assert workarounds <= set(re.findall(r"`(\w+)`", INDEX))
