"""Programs that are fetched or built for tests: missing ones and failing ones."""

import shutil

import pytest

from tests.support import debian_packages, third_party_programs
from tests.support.third_party_programs import Unavailable, in_go, may_fetch, once


def test_a_missing_program_is_looked_up_once():
    asked = []

    @once
    def find(name):
        asked.append(name)
        raise Unavailable(f"no {name}")

    for _ in range(2):
        with pytest.raises(Unavailable, match="no program"):
            find("program")
    assert asked == ["program"]


def test_nothing_is_fetched_while_tests_run(tmp_path, monkeypatch):
    monkeypatch.setattr(debian_packages, "FOLDER", tmp_path)
    monkeypatch.setattr(debian_packages, "PACKAGES", {"no-such-program": ("no-such-program",)})
    monkeypatch.setattr(debian_packages, "run", lambda *command: pytest.fail(f"{command} was run"))
    with pytest.raises(Unavailable, match=r"no-such-program is not there: `python -m tests.fetch`"):
        debian_packages.program("no-such-program")
    assert list(tmp_path.iterdir()) == []


def test_a_process_without_tests_may_fetch(monkeypatch):
    monkeypatch.setattr(third_party_programs, "_fetches", False)
    third_party_programs.fetch_from_now_on()
    may_fetch("anything")


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A Go module whose program is built in a private folder."""
    if shutil.which("go") is None:
        pytest.skip("Go is not installed")
    monkeypatch.setenv("CARGO_TARGET_DIR", str(tmp_path / "target"))
    folder = tmp_path / "module"
    folder.mkdir()
    (folder / "go.mod").write_text("module example.org/program\n")
    return folder


def test_a_program_that_does_not_build_is_an_error(module):
    """It is not reported as missing: its tests would be skipped without notice."""
    (module / "main.go").write_text("package main\n\nfunc main() { mistake() }\n")
    with pytest.raises(RuntimeError, match=r"does not build[\s\S]*undefined: mistake"):
        in_go(module)


def test_a_program_whose_modules_are_not_there_is_absent(module, monkeypatch, tmp_path):
    monkeypatch.setenv("GOMODCACHE", str(tmp_path / "modules"))
    (module / "go.mod").write_text("module example.org/program\n\nrequire example.org/x v1.0.0\n")
    (module / "main.go").write_text('package main\n\nimport _ "example.org/x"\n\nfunc main() {}\n')
    with pytest.raises(Unavailable, match="go mod download"):
        in_go(module)
