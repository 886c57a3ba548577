"""Each Python package and each Rust room begins with a table of its files, and the table is complete."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "python" / "uringcore"
SRC = ROOT / "src"

# | ``name``, ``name`` | what it is |
PYTHON_ROW = re.compile(r"^\| (``[\w`, ]+``) \|", re.MULTILINE)
PYTHON_NAME = re.compile(r"``(\w+)``")
# //! | `name`, `folder/` | what it is |
RUST_ROW = re.compile(r"^//! \| (\[?`[\w/]+/?`\]?(?:, \[?`[\w/]+/?`\]?)*) \|", re.MULTILINE)
# //! - `name`, `name`: what they are; `name`: what it is.
RUST_ITEM = re.compile(r"^//! - (`\w+`.*(?:\n//!   .*)*)", re.MULTILINE)
RUST_ITEM_NAMES = re.compile(r"(?:^|[;.,] )(\[?`\w+`\]?(?:, `\w+`)*)(?=: )")
RUST_NAME = re.compile(r"`(\w+)/?`")


def packages() -> list[Path]:
    return sorted(path.parent for path in PACKAGE.rglob("__init__.py"))


def modules_of(package: Path) -> set[str]:
    """Returns the modules and packages directly in a package, without caches and the built extension."""
    files = {path.stem for path in package.iterdir() if path.suffix in (".py", ".pyi")}
    folders = {path.parent.name for path in package.glob("*/__init__.py")}
    return (files | folders) - {"__init__"}


def named_in_docstring(text: str) -> list[str]:
    docstring = ast.get_docstring(ast.parse(text)) or ""
    return [name for row in PYTHON_ROW.findall(docstring) for name in PYTHON_NAME.findall(row)]


def rooms() -> Iterator[tuple[Path, Path]]:
    """Yields each folder of Rust files except tests, with the file that declares its modules."""
    for folder in sorted({path.parent for path in SRC.rglob("*.rs")}):
        if "tests" in folder.relative_to(SRC).parts:
            continue
        heads = [folder / "lib.rs", folder / "mod.rs", folder.with_suffix(".rs")]
        yield folder, next(head for head in heads if head.exists())


def modules_in(folder: Path) -> set[str]:
    files = {path.stem for path in folder.glob("*.rs")}
    folders = {path.parent.name for path in folder.glob("*/*.rs")}
    return (files | folders) - {"lib", "mod", "build", "tests"}


def named_in_head(text: str) -> list[str]:
    head = "".join(line + "\n" for line in text.splitlines() if line.startswith("//!"))
    groups = RUST_ROW.findall(head)
    for item in RUST_ITEM.findall(head):
        groups += RUST_ITEM_NAMES.findall(item.replace("\n//!  ", ""))
    return [name for group in groups for name in RUST_NAME.findall(group)]


@pytest.mark.parametrize(
    "package", packages(), ids=lambda path: str(path.relative_to(PACKAGE.parent))
)
def test_a_packages_docstring_lists_each_of_its_modules_once(package: Path) -> None:
    named = named_in_docstring((package / "__init__.py").read_text())
    assert sorted(named) == sorted(modules_of(package))


@pytest.mark.parametrize(
    ("folder", "head"),
    [pytest.param(*room, id=str(room[1].relative_to(SRC))) for room in rooms()],
)
def test_the_head_of_a_rust_room_lists_each_of_its_modules_once(folder: Path, head: Path) -> None:
    assert sorted(named_in_head(head.read_text())) == sorted(modules_in(folder))


def test_the_checker_reads_each_form_of_an_entry() -> None:
    assert named_in_docstring(
        '"""Head.\n\n| ``a``, ``b_c`` | two |\n| ``d`` | one, ``e`` |\n"""'
    ) == [
        "a",
        "b_c",
        "d",
    ]
    head = (
        "//! | `a`, `b/` | two, `z` |\n"
        "//! | [`c`] | one |\n"
        "//!\n"
        "//! - `d`: of RFC 9000, see `z`; `e`, `f`: with\n"
        "//!   more. `g`: the last.\n"
        "//! - Prose about `z`: nothing.\n"
    )
    assert named_in_head(head) == ["a", "b", "c", "d", "e", "f", "g"]
