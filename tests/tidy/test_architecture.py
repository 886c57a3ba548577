"""What ARCHITECTURE.md and CONTRIBUTING.md name has to be there: files, folders, Rust modules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = ["ARCHITECTURE.md", "CONTRIBUTING.md"]

PATH = re.compile(r"(?<![\w./])(?:src|python|tests|examples|benchmarks)/[\w./]*\w")
# `room::module::name`, from any folder on, and perhaps an item of the module's at the end.
NAME = re.compile(r"(?<![\w:])[a-z]\w*(?:::\w+)+")
# Of the compiler's tools.
FOREIGN = {"clippy"}


def modules() -> dict[str, str]:
    """The Rust files by `room::module`, a folder's own file by the folder's name, with their text."""
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
