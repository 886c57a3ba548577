"""tests/README.md lists every room of tests once: each folder of `tests`, and each Rust crate with tests."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "tests" / "README.md"
# | [`name`](name) or `src/name` | tests | seconds | content | needs |
ROW = re.compile(
    r"^\| (?:\[`(\w+)`\]\((\w+)\)|`(src/[\w/]+)`) \| ([\d,]+) \| ([\d,]+) \| (.+) \|(.*)\|$"
)


def rows(text: str) -> list[re.Match[str]]:
    return [found for line in text.splitlines() if (found := ROW.match(line))]


def folders() -> list[str]:
    """Folders with tests, or with files that tests share, without caches and build output."""
    return sorted({path.relative_to(ROOT / "tests").parts[0] for path in ROOT.glob("tests/*/*.py")})


def members() -> list[str]:
    """The folders of the workspace's crates."""
    listed = re.search(r"^members = \[(.*?)\]", (ROOT / "Cargo.toml").read_text(), re.M | re.S)
    assert listed is not None
    return sorted(re.findall(r'"([^"]+)"', listed[1]))


def is_tested(member: str) -> bool:
    """True if `cargo test` runs the crate's tests."""
    return "\ntest = false\n" not in (ROOT / member / "Cargo.toml").read_text()


def crates() -> list[str]:
    """The members of the workspace in which `cargo test` finds tests."""
    return [member for member in members() if is_tested(member)]


def test_every_room_has_its_row() -> None:
    found = rows(PAGE.read_text())
    assert sorted(row[1] for row in found if row[1]) == folders()
    assert sorted(row[3] for row in found if row[3]) == crates()


def test_a_crate_without_tests_has_none_that_never_run() -> None:
    untested = [member for member in members() if not is_tested(member)]
    assert untested == ["src/py"]
    for path in (ROOT / untested[0]).rglob("*.rs"):
        assert "#[test]" not in path.read_text(), path


def test_every_row_leads_to_its_room_and_has_figures() -> None:
    for row in rows(PAGE.read_text()):
        assert row[1] == row[2]
        assert int(row[4].replace(",", "")) > 0, row[0]


def test_a_row_is_read_with_and_without_needs() -> None:
    text = (
        "| room | tests | seconds | content | needs |\n"
        "| [`loop`](loop) | 1,200 | 0 | the loop | |\n"
        "| `src/io` | 3 | 1 | the driver | root |\n"
    )
    first, second = rows(text)
    assert (first[1], first[4], first[7]) == ("loop", "1,200", " ")
    assert (second[3], second[6], second[7]) == ("src/io", "the driver", " root ")
