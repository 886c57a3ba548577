"""The source of the interpreters for tests: messages of .ci/debian_unstable.py if it cannot provide them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

CI = Path(__file__).parents[2] / ".ci"


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH, empty; this machine's cache is hidden."""
    monkeypatch.syspath_prepend(str(CI))
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    import debian_unstable

    monkeypatch.setattr(debian_unstable, "FOLDER", tmp_path / "cache" / "pythons")
    return folder


def from_unstable() -> list[Any]:
    """Returns the result on a machine without other interpreters."""
    import pythons

    return pythons.from_unstable([])


def test_a_system_without_apt_continues_with_a_message(
    tools: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert from_unstable() == []
    said = capsys.readouterr().err
    assert said == "CPython 3.14 and 3.15 left out: this is no Debian: apt-get was not found\n"


def test_a_system_with_another_apt_continues_with_a_message(
    tools: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import debian_unstable

    fake(tools, "")
    monkeypatch.setattr(debian_unstable, "KEYRINGS", [tools / "debian.gpg"])
    assert from_unstable() == []
    assert "left out: this is no Debian: " in capsys.readouterr().err


def test_without_a_network_apts_error_is_shown(
    tools: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import debian_unstable

    monkeypatch.setattr(debian_unstable, "KEYRINGS", [tools])
    fake(
        tools,
        'for one; do [ "$one" != update ] || { echo "E: no way there" >&2; exit 100; }; done\n',
    )
    assert from_unstable() == []
    said = capsys.readouterr().err
    assert "CPython 3.14 and 3.15 left out: apt-get failed: E: no way there\n" in said
    # No partial folder, and only the lock beside it.
    assert [path.name for path in debian_unstable.FOLDER.parent.iterdir()] == ["pythons.lock"]


def test_an_existing_interpreter_is_not_installed_again(tools: Path) -> None:
    import debian_unstable

    binaries = debian_unstable.FOLDER / "usr" / "bin"
    binaries.mkdir(parents=True)
    (binaries / "python3.15").touch()
    (debian_unstable.FOLDER / debian_unstable.STAMP).write_text(
        json.dumps(debian_unstable.recipe())
    )
    assert debian_unstable.interpreters() == {"3.15": str(binaries / "python3.15")}


def test_a_failed_installation_leaves_nothing_behind(tools: Path) -> None:
    import debian_unstable

    with pytest.raises(
        debian_unstable.Unavailable, match="this is no Debian: apt-get was not found"
    ):
        debian_unstable.programs(["curl"])
    assert [path.name for path in debian_unstable.FOLDER.parent.iterdir()] == ["curl.lock"]


def test_a_program_that_is_there_is_not_fetched_again(tools: Path) -> None:
    import debian_unstable

    libraries = debian_unstable.FOLDER.with_name("curl") / "usr" / "lib" / "a-machine"
    libraries.mkdir(parents=True)
    for name in ("libc.so.6", "ld-linux-a.so.2"):
        (libraries / name).touch()
    folder, *starts = debian_unstable.programs(["curl"])
    assert folder == debian_unstable.FOLDER.with_name("curl")
    assert starts == [libraries / "ld-linux-a.so.2", "--library-path", libraries]


def fake(tools: Path, script: str) -> None:
    """Makes programs with apt's names, which print one mirror and run `script`."""
    for name in ("apt-get", "apt-cache", "apt-config", "dpkg-deb"):
        program = tools / name
        program.write_text(f"#!/bin/sh\n{script}echo a-mirror\n")
        program.chmod(0o755)
