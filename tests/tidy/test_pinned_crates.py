"""Crates whose undocumented behaviour this tree relies on are pinned to one release, with the reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENTRY = re.compile(r'([\w-]+) = (?:\{ version = )?"([^"]+)"')
EXACT = re.compile(r"=\d+\.\d+\.\d+")

# crate: the code that relies on undocumented behaviour of the crate. The comment above the pin names it.
PINNED = {
    "pyo3": "src/py/capi/class_with_dict.rs",
    "quinn-proto": "src/quic/workarounds",
    "rustls": "src/quic/workarounds",
}


def dependencies() -> dict[str, tuple[str, str]]:
    """Returns the version of each external crate of the workspace, and the comment above it. A comment
    above a pinned crate also applies to the pinned crates directly below it."""
    text = (ROOT / "Cargo.toml").read_text().split("[workspace.dependencies]\n")[1].split("\n\n")[0]
    found: dict[str, tuple[str, str]] = {}
    comment = ""
    is_in_comment = False
    for line in text.splitlines():
        if line.startswith("#"):
            comment = f"{comment}\n{line}" if is_in_comment else line
            is_in_comment = True
            continue
        is_in_comment = False
        if entry := ENTRY.match(line):
            crate, version = entry.groups()
            comment = comment if EXACT.fullmatch(version) else ""
            found[crate] = (version, comment)
    return found


@pytest.mark.parametrize("crate", PINNED)
def test_a_crate_whose_undocumented_behaviour_matters_is_pinned_with_a_reason(crate: str) -> None:
    version, comment = dependencies()[crate]
    assert EXACT.fullmatch(version), f"{crate} may change under a build: write ={version}"
    assert (ROOT / PINNED[crate]).exists()
    assert PINNED[crate] in comment


def test_no_other_crate_is_pinned() -> None:
    pinned = {crate for crate, (version, _) in dependencies().items() if "=" in version}
    assert pinned == PINNED.keys()


@pytest.mark.parametrize("crate", PINNED)
def test_the_lock_file_has_the_pinned_release(crate: str) -> None:
    lock = (ROOT / "Cargo.lock").read_text()
    locked = re.findall(rf'name = "{crate}"\nversion = "([^"]+)"', lock)
    assert locked == [dependencies()[crate][0].removeprefix("=")]


def test_no_crate_of_the_workspace_requires_another_release() -> None:
    manifests = sorted((ROOT / "src").glob("*/Cargo.toml"))
    assert manifests
    for path in manifests:
        for line in path.read_text().splitlines():
            if re.split(r"[.\s=]", line)[0] in PINNED:
                assert "workspace = true" in line, f"{path.parent.name}: {line}"
