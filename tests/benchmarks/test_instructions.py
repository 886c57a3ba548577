"""Instruction counts: their parsing, comparison and recording, and the command's exit status."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import instructions as command
from benchmarks.harness import callgrind, counted_rooms, instructions
from benchmarks.harness.callgrind import Mark
from benchmarks.harness.environment import ROOT
from benchmarks.harness.instructions import Build
from benchmarks.harness.results import Spread
from benchmarks.programs import counted, micro
from benchmarks.servers.loops import new_loop

VERSION = ".".join(map(str, sys.version_info[:2]))
BUILD = Build(sys.version, "release", "valgrind-3.19.0", "a processor")
Command = Callable[..., int]


def spread(value: float) -> Spread:
    return Spread(value, value, value)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs the command line, with given counts instead of valgrind's and a baseline of its own."""
    monkeypatch.setattr(instructions, "PATH", tmp_path / "instructions.json")
    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setattr(callgrind, "unavailable", lambda: None)
    monkeypatch.setattr(
        command, "_ask", lambda *rest: (Path(sys.executable), BUILD, Path("package/__init__.py"))
    )

    def run(*arguments: str, **counts: float) -> int:
        rows = {row: spread(value) for row, value in counts.items()}
        monkeypatch.setattr(callgrind, "count", lambda *rest: rows)
        monkeypatch.setattr(sys, "argv", ["instructions.py", *arguments])
        return command.main()

    return run


def test_equal_counts_pass(run: Command) -> None:
    assert run("--record", chain=2000.0, sleep=6000.0) == 0
    assert run(chain=2000.0, sleep=6000.0) == 0


def test_one_row_that_is_worse_fails(run: Command, capsys: pytest.CaptureFixture[str]) -> None:
    run("--record", chain=2000.0, sleep=6000.0)
    assert run(chain=2099.0, sleep=6000.0) == 0
    assert "WORSE" not in capsys.readouterr().out
    assert run(chain=2101.0, sleep=6000.0) == command.WORSE
    marked = [line.split()[0] for line in capsys.readouterr().out.splitlines() if "WORSE" in line]
    # Once in each group.
    assert marked == ["chain"] * len(counted.DEFAULT_GROUPS)


def test_the_percentage_is_the_callers(run: Command) -> None:
    run("--record", chain=2000.0)
    assert run("--percent", "1", chain=2030.0) == command.WORSE
    assert run("--percent", "2", chain=2030.0) == 0


def test_fewer_instructions_and_new_rows_pass_and_lost_rows_do_not(run: Command) -> None:
    run("--record", chain=2000.0, sleep=6000.0)
    assert run(chain=1000.0, sleep=6000.0, later=10.0) == 0
    assert run(chain=2000.0) == command.WORSE


def test_without_a_baseline_there_is_nothing_to_compare(
    run: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(chain=2000.0) == command.CANNOT
    assert f"no baseline for CPython {VERSION}" in capsys.readouterr().err


def test_counts_of_another_profile_are_not_compared(
    run: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("--record", chain=2000.0)
    other = Build(BUILD.interpreter, "dev-opt", BUILD.valgrind, BUILD.processor)
    monkeypatch.setattr(command, "_ask", lambda *rest: (Path(), other, Path()))
    assert run(chain=2000.0) == command.CANNOT
    assert "profile release" in capsys.readouterr().err


def test_a_group_that_does_not_end_is_no_comparison(
    run: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("--record", chain=2000.0)

    def count(*rest: object) -> None:
        raise callgrind.CountFailure("no end after 900 s")

    monkeypatch.setattr(callgrind, "count", count)
    monkeypatch.setattr(sys, "argv", ["instructions.py"])
    assert command.main() == command.CANNOT
    assert "uringcore-uring: no end after 900 s" in capsys.readouterr().err


def test_recording_keeps_the_other_versions(tmp_path: Path) -> None:
    path = tmp_path / "instructions.json"
    old = Build("3.8.1 (main)", "release", "valgrind-3.19.0", "a processor")
    instructions.save(path, old, "then", "abc", {"quic": {"row": spread(7.04)}})
    instructions.save(path, BUILD, "now", "def", {"quic": {"row": spread(8.0)}})
    found = instructions.load(path, "3.8")
    assert found is not None
    assert found.build == old
    assert found.groups == {"quic": {"row": 7.0}}
    assert instructions.load(path, "3.9") is None


def test_without_valgrind_the_error_names_the_package(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.instructions"],
        cwd=ROOT,
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == command.CANNOT
    assert "valgrind is not installed" in done.stderr


def test_marks_are_read_from_callgrinds_files() -> None:
    text = "part: 2\ndesc: Trigger: Client Request: 250 UDP echo, 1 KiB\n\nfn=(1)\n\ntotals: 4321\n"
    assert Mark.read(text) == Mark("UDP echo, 1 KiB", 250, 4321)
    assert Mark.read("part: 1\ndesc: Trigger: Client Request: \ntotals: 99\n") is None


def test_the_instructions_of_a_row_are_given_to_their_rooms() -> None:
    def dump(count: int, quinn: int) -> str:
        lines = [
            *("part: 2", f"desc: Trigger: Client Request: {count} hello", "events: Ir", ""),
            *(
                "ob=(1) /x/_uringcore.cpython-311-x86_64-linux-gnu.so",
                "fl=(1) /w/src/py/asgi/application_task.rs",
            ),
            *("fn=(1) step", "12 5", "+2 7"),
            # An inlined function, and one of C.
            *("fi=(2) /c/registry/src/index/quinn-proto-0.11.19/src/x.rs", f"* {quinn}"),
            *("fe=(1)", "20 3", "cob=(2) /lib/libc.so.6", "cfn=(2) malloc", "calls=1 0", "20 999"),
            *("", "ob=(2)", "fl=(3) ???", "fn=(2)", "0 11", "", f"totals: {26 + quinn}", ""),
        ]
        return "\n".join(lines)

    empty = "part: 1\ndesc: Trigger: Client Request: \ntotals: 99\n"
    assert counted_rooms.rooms(dump(1, 4)) == {"our py": 15, "quinn-proto": 4, "allocation": 11}
    found = counted_rooms.per_unit([empty, dump(2, 10), empty, dump(12, 30)])
    assert found == {"hello": {"quinn-proto": 2.0}}
    assert "quinn-proto" in counted_rooms.table(found)


def test_set_up_and_tear_down_of_a_row_cancel_out() -> None:
    marks = [Mark("row", count, 5000 + 7 * count) for count in (50, 250, 50, 250)]
    assert callgrind.per_unit(marks) == {"row": Spread(7.0, 7.0, 7.0)}


def test_every_row_of_the_scheduling_table_without_a_thread_is_counted() -> None:
    loop = new_loop("asyncio")
    try:
        assert set(counted.WITH_THREADS) < set(micro.Rows(loop).all())
    finally:
        loop.close()


@pytest.mark.measuring
@pytest.mark.parametrize("group", ["asyncio", *counted.DEFAULT_GROUPS])
def test_the_counted_rows_do_their_work_and_show_how_often_they_send(group: str) -> None:
    command = [sys.executable, "-m", "benchmarks.programs.counted", "--group", group]
    done = subprocess.run(
        [*command, "--sends", "--repeats", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert (done.returncode, done.stderr) == (0, "")
    rows = [callgrind.Sends.read(line) for line in done.stdout.splitlines()]
    if group == counted.H3:
        # A response leaves in a datagram, and several share one or the call.
        assert all(one.quic_datagrams_sent > 0 for one in rows)
        assert {one.row for one in rows} == {title for title, *_ in counted.H3_ROWS}
    elif group == "uringcore-epoll":
        calls = {one.row: one.syscalls for one in rows}
        # A wait and a send, or a few more if an echo is large.
        assert all(calls[title] >= 1 for title, *_ in counted.ECHOES)


def test_the_committed_baseline_has_every_group() -> None:
    found = instructions.load(instructions.PATH, "3.11")
    assert found is not None
    assert found.build.profile == "release"
    assert list(found.groups) == list(counted.DEFAULT_GROUPS)


def test_the_sends_of_a_group_are_shown_beside_each_other(
    run: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few, many, counting = (
        callgrind.Sends("hello", count, calls, 0.5)
        for count, calls in ((50, 3.0), (250, 2.0), (250, 2.01))
    )
    monkeypatch.setattr(callgrind, "sends", lambda *rest: [(few, few), (many, counting)])
    assert run("--sends", "--groups", "h3") == 0
    found = [line.split() for line in capsys.readouterr().out.splitlines() if "hello" in line]
    assert found == [["hello", "2.00", "2.01", "0.50", "0.50"]]
