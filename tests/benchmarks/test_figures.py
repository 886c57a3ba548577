"""The committed figures: what a run replaces, and that the committed pages are made of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness import areas, figures, matrix, profile, report, results
from benchmarks.harness.cases import CASES, Case
from benchmarks.harness.environment import ROOT
from benchmarks.harness.figures import CaseFigures, MatrixFigures
from benchmarks.harness.matrix import MATRICES, MatrixResult
from benchmarks.harness.profile import CaseProfile, PeerProfile
from benchmarks.harness.results import CaseResult, PeerResult, Spread

MACHINE: dict[str, Any] = {"python": "3.13.0", "taken": "2026-01-01 00:00 UTC", "commit": "abc"}
LINES_MAX = 2_500


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results and figures of the test's own."""
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(figures, "FIGURES", tmp_path / "figures")


def case_of(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


def matrix_of(name: str) -> matrix.Matrix:
    return next(one for one in MATRICES if one.name == name)


def peer(*requests: float) -> PeerResult:
    sample = {"seconds": 2.0, "server_cpu_ns": 1e9, "p50_us": 3.0, "p99_us": 4.0}
    return PeerResult(samples=[{**sample, "requests": one} for one in requests])


def result(name: str, peers: dict[str, PeerResult]) -> CaseResult:
    return CaseResult(name, MACHINE, 3, 2.0, None, peers)


def test_a_run_replaces_its_tables_and_leaves_the_others() -> None:
    small, large = case_of("tcp_echo_1k_c1"), case_of("tcp_echo_10k_c1")
    for case in (small, large):
        figures.keep_case(case, result(case.name, {"uvloop": peer(10, 20, 40)}))
    before = figures.path_of("tcp").read_text()
    figures.keep_case(small, result(small.name, {"uvloop": peer(80)}))
    after = figures.path_of("tcp").read_text()
    pairs = list(zip(before.splitlines(), after.splitlines(), strict=True))
    assert sum(old != new for old, new in pairs) == 1, "the line of one peer"
    assert list(figures.read("tcp")) == [large.name, small.name]


def test_figures_are_medians_and_spreads_of_each_quantity() -> None:
    case = case_of("tcp_echo_1k_c1")
    peers = {
        "uvloop": peer(20, 10, 40),
        "rloop": PeerResult(failed="a reply differs\nand more", samples=peer(1).samples),
        "zloop": PeerResult(absent="not installed"),
    }
    figures.keep_case(case, result(case.name, peers))
    found = CaseFigures.load("tcp", case.name)
    assert found is not None
    assert (found.machine, found.rounds, found.seconds) == (MACHINE, 3, 2.0)
    assert found.peers["uvloop"].spread("rate") == Spread(10.0, 5.0, 20.0)
    assert found.peers["uvloop"].spread("cpu_us") == Spread(50_000.0, 25_000.0, 100_000.0)
    assert found.peers["uvloop"].spread("p99_us") == Spread(4.0, 4.0, 4.0)
    assert found.peers["uvloop"].spread("memory_mib") is None
    assert found.peers["rloop"].failed == "a reply differs"
    assert found.peers["rloop"].spreads == {}
    assert found.peers["zloop"].absent == "not installed"


def test_a_matrix_has_figures_too() -> None:
    rates = {"uvloop": {"one": [3.0, 1.0, 2.0], "none": []}, "uringcore-uring": {"two": [5.0]}}
    absent = {"rloop": "failed: killed\nby signal 11"}
    figures.keep_matrix(matrix_of("micro"), MatrixResult("micro", MACHINE, 3, 0.1, rates, absent))
    found = MatrixFigures.load("loop", "micro")
    assert found is not None
    assert found.rows == ["one", "two"]
    assert found.spread("uvloop", "one") == Spread(2.0, 1.0, 3.0)
    assert found.spread("uvloop", "two") is None
    assert found.absent == {"rloop": "failed: killed"}


def test_all_results_are_collected() -> None:
    """Cases, matrices and profiles are collected; results of another interpreter have a page of their own."""
    result("tcp_echo_1k_c1", {"uvloop": peer(10)}).save()
    older = MACHINE | {"python": "3.11.7"}
    MatrixResult("micro", older, 1, 0.1, {"uvloop": {"one": [1.0]}}).save(beside=True)
    shares = PeerProfile(1.0, 10, {"CPython": 0.5}, [("CPython", "eval", 0.25)], {"syscalls": 2.0})
    CaseProfile("quic_ping", MACHINE, {"quinn": shares}).save()
    assert figures.collect() + profile.collect() == 3
    assert list(figures.read("tcp")) == ["tcp_echo_1k_c1"]
    assert figures.read("loop") == {}
    assert figures.pythons_beside() == ["3.11"]
    assert list(figures.read("cpython-3.11")) == ["micro"]
    kept = CaseProfile.load("quic_ping")
    assert kept is not None
    assert kept.peers["quinn"] == PeerProfile(1.0, 10, {"CPython": 0.5}, [], {"syscalls": 2.0})


def test_results_older_than_the_committed_table_are_skipped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    case, table = case_of("tcp_echo_1k_c1"), matrix_of("micro")
    result(case.name, {"uvloop": peer(10)}).save()
    MatrixResult(table.name, MACHINE, 1, 0.1, {"uvloop": {"one": [1.0]}}).save()
    shares = PeerProfile(1.0, 10, {"CPython": 0.5}, [], {"syscalls": 2.0})
    CaseProfile("quic_ping", MACHINE, {"quinn": shares}).save()
    newer = MACHINE | {"taken": "2026-01-01 00:01 UTC"}
    figures.keep_case(case, CaseResult(case.name, newer, 3, 2.0, None, {"uvloop": peer(20)}))
    figures.keep_matrix(table, MatrixResult(table.name, newer, 1, 0.1, {"uvloop": {"one": [2.0]}}))
    CaseProfile("quic_ping", newer, {"quinn": shares}).keep()
    before = {path.name: path.read_text() for path in figures.FIGURES.iterdir()}
    assert figures.collect() + profile.collect() == 0
    assert {path.name: path.read_text() for path in figures.FIGURES.iterdir()} == before
    said = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in said] == [
        "skipped tcp/tcp_echo_1k_c1",
        "skipped loop/micro",
        "skipped profile/quic_ping",
    ]
    # A result of the same minute counts as new.
    CaseResult(case.name, newer, 3, 2.0, None, {"uvloop": peer(40)}).save()
    assert figures.collect() == 1


def test_no_figures_are_no_table() -> None:
    assert CaseFigures.load("tcp", "tcp_echo_1k_c1") is None
    assert MatrixFigures.load("loop", "micro") is None
    assert CaseProfile.load("quic_ping") is None


# Committed pages


def pages(root: Path) -> dict[str, str]:
    """The generated files below `root`: their paths and texts."""
    full = root / report.FULL
    found = [root / report.PAGE, root / "README.md", *full.glob("*.md"), *full.rglob("*.svg")]
    return {str(path.relative_to(root)): path.read_text() for path in found}


def test_the_committed_pages_are_those_of_the_committed_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "FIGURES", ROOT / "benchmarks" / "figures")
    shutil.copy(ROOT / "README.md", tmp_path)
    report.write(tmp_path)
    assert pages(tmp_path) == pages(ROOT)


def test_the_committed_figures_are_few_and_each_belongs_to_a_table() -> None:
    names = {one.name for one in (*CASES, *MATRICES)}
    committed = sorted((ROOT / "benchmarks" / "figures").glob("*.json"))
    lines = 0
    for path in committed:
        text = path.read_text()
        lines += text.count("\n")
        tables = json.loads(text)
        assert set(tables) <= names, path.name
        if path.stem in {area.name for area in areas.AREAS}:
            of = {one.name: areas.area_of(one).name for one in (*CASES, *MATRICES)}
            assert {of[name] for name in tables} == {path.stem}
    assert 0 < lines <= LINES_MAX
