"""Files, folders and modules on the pages about the code exist, and the tables there are complete."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.tidy.test_rooms import FORBIDDEN

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    *("ARCHITECTURE.md", "CONTRIBUTING.md", "tests/README.md"),
    *("docs/limits.md", "docs/known-limits.md"),
]
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
BYTES_MAX = 25 * 1024
GLOSSARY_MAX = 40

PATH = re.compile(r"(?<![\w./])(?:src|python|tests|examples|benchmarks)/[\w./]*\w")
# `room::module::name`, from any folder on, and optionally an item of the module at the end.
NAME = re.compile(r"(?<![\w:])[a-z]\w*(?:::\w+)+")
# Names of the compiler's tools.
FOREIGN = {"clippy"}


def modules() -> dict[str, str]:
    """Returns the text of the Rust files by `room::module`; a folder's own file has the folder's name."""
    found: dict[str, str] = {}
    for path in (ROOT / "src").rglob("*.rs"):
        parts = path.relative_to(ROOT / "src").with_suffix("").parts
        found["::".join(parts[:-1] if parts[-1] in ("mod", "lib") else parts)] = path.read_text()
    return found


def is_there(name: str, files: dict[str, str]) -> bool:
    def ends_with(tail: str) -> list[str]:
        return [file for file in files if f"::{file}".endswith(f"::{tail}")]

    parent, _, item = name.rpartition("::")
    declared = re.compile(rf"\b(?:fn|struct|enum|trait|type|const|mod|use)\b[^;]*\b{item}\b")
    return bool(ends_with(name)) or any(declared.search(files[file]) for file in ends_with(parent))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_file_and_module_that_is_named_is_there(document: str) -> None:
    text, files = (ROOT / document).read_text(), modules()
    missing = {path for path in PATH.findall(text) if not (ROOT / path).exists()}
    names = {name for name in NAME.findall(text) if name.partition("::")[0] not in FOREIGN}
    assert names or document != "ARCHITECTURE.md"
    missing |= {name for name in names if not is_there(name, files)}
    assert not missing


def rows(heading: str) -> list[list[str]]:
    """Returns the cells of the first table below a heading, without its header."""
    section = ARCHITECTURE.read_text().split(f"\n{heading}\n")[1].split("\n#")[0]
    lines = re.findall(r"^\|(.*)\|$", section.split("\n\n**")[0], re.MULTILINE)
    assert len(lines) > 2, f"no table below {heading}"
    return [[cell.strip() for cell in line.split("|")] for line in lines[2:]]


def quoted(cell: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", cell))


def test_the_page_is_short() -> None:
    assert len(ARCHITECTURE.read_bytes()) <= BYTES_MAX, "details belong into the heads of modules"


def test_the_glossary_is_short_and_sorted() -> None:
    on_connect_data = [word for word, _ in rows("## Glossary")]
    assert len(on_connect_data) <= GLOSSARY_MAX
    assert on_connect_data == sorted(on_connect_data)


def dependencies(crate: str) -> set[str]:
    """Crates of this tree that a crate depends on, by their folders."""
    manifest = (ROOT / "src" / crate / "Cargo.toml").read_text()
    section = manifest.split("\n[dependencies]\n")[1].split("\n[")[0]
    return set(re.findall(r"^uringcore-(\w+)\b", section, re.MULTILINE))


def test_dependencies_of_the_protocol_crates_are_those_of_their_manifests() -> None:
    said = {
        name: quoted(cells[-1]) for cells in rows("### The protocols") for name in quoted(cells[0])
    }
    crates = {path.parent.name for path in (ROOT / "src").glob("*/Cargo.toml")}
    assert said.keys() == crates - {"io", "engine", "py"}
    assert said == {crate: dependencies(crate) for crate in said}


def test_the_engine_depends_on_one_protocol_crate() -> None:
    assert dependencies("engine") == {"io", "quic"}


def test_imports_of_packages_are_those_that_their_test_forbids() -> None:
    table = rows("### `python/uringcore`")
    said = {name: quoted(cells[-1]) for cells in table for name in quoted(cells[0])}
    assert {name: forbidden for name, forbidden in said.items() if forbidden} == FORBIDDEN
    package = ROOT / "python" / "uringcore"
    assert {path.parent.name for path in package.glob("*/__init__.py")} <= said.keys()


def test_every_folder_of_the_bindings_has_a_row() -> None:
    said = set().union(*(quoted(cells[0]) for cells in rows("### `src/py`")))
    assert {path.name for path in (ROOT / "src" / "py").iterdir() if path.is_dir()} <= said


OPTION_CLASSES = [
    ("server/_http3_limits.py", "HTTP3Limits"),
    ("server/_http3_limits.py", "SessionLimits"),
    ("quic/limits.py", "ServerLimits"),
]


@pytest.mark.parametrize(("path", "name"), OPTION_CLASSES)
def test_every_limit_that_is_an_option_is_on_the_page_of_limits(path: str, name: str) -> None:
    tree = ast.parse((ROOT / "python" / "uringcore" / path).read_text())
    (found,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    fields = {
        node.target.id
        for node in found.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    page = (ROOT / "docs" / "limits.md").read_text()
    assert fields
    assert {field for field in fields if f"`{field}`" not in page} == set()
