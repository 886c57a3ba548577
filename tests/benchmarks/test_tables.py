"""The rows and peers of the tables, the effect of a failure on a run, and the report's text."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness import (
    areas,
    figures,
    interpreters,
    machine,
    provenance,
    report,
    results,
    rounds,
    summary,
    tables,
)
from benchmarks.harness import matrix as matrices
from benchmarks.harness.cases import CASES, LONE, Case, select
from benchmarks.harness.environment import C_PROGRAMS, GO_PROGRAMS, PROGRAMS, ROOT, Environment
from benchmarks.harness.figures import CaseFigures, MatrixFigures
from benchmarks.harness.matrix import MATRICES, MatrixResult, run_matrix
from benchmarks.harness.peers import PEERS, Peer
from benchmarks.harness.process import BenchmarkFailure
from benchmarks.harness.results import CaseResult, PeerResult
from benchmarks.harness.round_plan import Plan
from benchmarks.servers.http3 import SERVERS
from benchmarks.servers.loops import AIOFASTNET, LOOPS, OURS, STREAM_LOOPS, new_loop

PLAN = Plan(rounds=2, seconds=0.1, warmup=0.0, counted_rounds=0, keep_going=False)
MACHINE: dict[str, Any] = {"python": "3.13.0", "taken": "2026-01-01 00:00 UTC", "commit": "abc"}
HARDWARE = {"processor": "one", "cores": 2, "memory_gib": 24, "virtual": True, "kernel": "6.18"}


def case_of(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


def matrix_of(name: str) -> matrices.Matrix:
    return next(matrix for matrix in MATRICES if matrix.name == name)


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """An environment in which everything is installed, so that the test does not depend on the
    machine.
    """
    for module in (rounds, matrices):
        monkeypatch.setattr(module.machine, "facts", lambda environment: MACHINE)
    native = tmp_path / "native"
    native.mkdir()
    for program in (*PROGRAMS, *C_PROGRAMS, *GO_PROGRAMS):
        (native / program).touch()
    packages = dict.fromkeys((*LOOPS, "aiofastnet", "pip", "uringcore"), "1.0")
    return Environment(Path("python"), native, tmp_path, packages=packages)


def test_echoes_have_every_size_and_number_of_connections() -> None:
    names = {case.name for case in CASES}
    for family in ("tcp_echo", "buffered_echo", "streams_echo", "sock_echo", "tls_echo"):
        assert {f"{family}_{size}k_c{count}" for size in (1, 10, 100) for count in (1, 100)} < names
    assert {f"udp_echo_{size}k_c{count}" for size in (1, 8) for count in (1, 100)} < names
    load = case_of("tls_echo_100k_c100").load
    assert load[load.index("--size") + 1] == "102400"


def test_a_tag_selects_the_echoes_of_one_size() -> None:
    cases, tables = select(["10k"])
    assert len(cases) == 10
    assert tables == []
    assert [table.name for table in select(["idle"])[1]] == ["idle", "start"]
    idle = [case.name for case in select(["idle"])[0]]
    assert idle == ["h3_idle", "h1_idle", "h2_idle"]


def test_every_loop_stands_in_every_loop_table() -> None:
    for case in CASES:
        if "loop" in case.tags:
            sleeping = [f"{name}, busy_poll_us=0" for name in OURS]
            loops = LOOPS if "udp" in case.tags else STREAM_LOOPS
            named = [*loops, *(sleeping if case.family.endswith(LONE) else ())]
            assert [peer.name for peer in PEERS[case.family] if peer.kind != "limit"] == named
    for matrix in MATRICES:
        if "loop" in matrix.tags:
            loops = STREAM_LOOPS if matrix.name == "idle" else LOOPS
            assert [column.name for column in matrix.columns] == list(loops)


@pytest.mark.parametrize("family", ["tcp_echo", "tls_echo", "slow_upload_tls"])
def test_aiofastnet_lies_over_uvloop(environment: Environment, family: str) -> None:
    peer = next(peer for peer in PEERS[family] if peer.name == AIOFASTNET)
    assert peer.absent(environment) is None
    del environment.packages["uvloop"]
    assert peer.absent(environment) == "uvloop: not installed"
    assert AIOFASTNET not in [peer.name for peer in PEERS["udp_echo"]]


@pytest.mark.parametrize("family", ["tcp_echo", "buffered_echo", "streams_echo", "sock_echo"])
def test_the_c_program_stands_beside_every_tcp_echo(family: str) -> None:
    assert [peer.name for peer in PEERS[family] if peer.kind == "limit"] == ["c-epoll"]


def test_a_loop_without_what_the_table_needs_is_absent_with_the_reason(
    environment: Environment,
) -> None:
    def why(family: str, name: str) -> str | None:
        return next(peer for peer in PEERS[family] if peer.name == name).absent(environment)

    assert why("tls_echo", "rloop") == "it serves no TLS"
    assert why("udp_echo", "zloop") == "its create_datagram_endpoint raises NotImplementedError"
    assert why("tcp_echo", "zloop") is None
    del environment.packages["zloop"]
    environment.refused["zloop"] = "its wheels need a newer interpreter"
    assert why("tcp_echo", "zloop") == "its wheels need a newer interpreter"


def test_every_server_stands_in_every_http3_table() -> None:
    servers = [*SERVERS, "quinn + h3"]
    tables = {case.name: case for case in CASES if "h3" in case.tags}
    for case in tables.values():
        assert [peer.name for peer in PEERS[case.family]][: len(servers)] == servers
    for application in ("h3", "h3_fastapi"):
        requests = {"hello", "hello_c1000", "100k", "post_100k"}
        assert {f"{application}_{name}" for name in requests} < set(tables)
    assert {"h3_upload", "h3_download", "h3_idle", "h3_hello_quicgo"} < set(tables)
    for name, case in tables.items():
        others = [peer.name for peer in PEERS[case.family]][len(servers) :]
        if "fastapi" in case.tags:
            assert others == [case.baseline] == ["in process"]
        elif case.memory:
            assert others == [case.baseline] == ["our QUIC alone"]
        else:
            assert others == [], name


def test_a_server_is_absent_without_the_framework_that_it_would_serve(
    environment: Environment,
) -> None:
    bare, fastapi = (
        next(peer for peer in PEERS[family] if peer.name == "uringcore-uring")
        for family in ("h3_bare", "h3_fastapi")
    )
    assert bare.absent(environment) is None
    assert fastapi.absent(environment) == "fastapi: not installed"
    environment.packages["fastapi"] = "1.0"
    assert fastapi.absent(environment) is None


def visit_that_tells(
    environment: Environment, monkeypatch: pytest.MonkeyPatch, name: str, plan: Plan
) -> dict[str, list[list[str]]]:
    """Returns the load's command lines by peer, and does not run them; "" is the key for rows
    without a server.
    """
    loads: dict[str, list[list[str]]] = {}
    running = [""]

    class Server:
        port, pid = 1234, 5678

        def __init__(self, name: str, command: list[str], extra: Any) -> None:
            running[0] = name

        def __enter__(self) -> Server:
            return self

        def __exit__(self, *error: object) -> None:
            running[0] = ""

    def run_load(command: list[str], limit: float, core: int) -> dict[str, float]:
        assert core == (1 if running[0] else 0)
        loads.setdefault(running[0], []).append(command)
        return dict.fromkeys(("requests", "bytes", "seconds", "private_bytes"), 1.0)

    monkeypatch.setattr(rounds, "Server", Server)
    monkeypatch.setattr(rounds, "run_load", run_load)
    for peer in PEERS[case_of(name).family]:
        for package in (peer.package, peer.application):
            environment.packages.setdefault(package or "", "1.0")
    rounds.run_case(case_of(name), environment, plan)
    return loads


def option(command: list[str], name: str) -> str:
    """Returns the value of an option."""
    return command[command.index(name) + 1]


def test_the_application_without_a_server_is_called_where_a_server_would_run(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = visit_that_tells(environment, monkeypatch, "h3_fastapi_100k", PLAN)
    assert len(loads[""]) == len(loads["weft"]) == PLAN.rounds
    assert loads[""][0][1:3] == ["-m", "benchmarks.programs.in_process"]
    assert option(loads[""][0], "--path") == option(loads["weft"][0], "--path") == "/100k"


def test_a_table_without_its_load_generator_has_a_note(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    (environment.native / "quicgo_load").unlink()
    environment.refused["quicgo_load"] = "go is not installed"
    assert visit_that_tells(environment, monkeypatch, "h3_hello_quicgo", PLAN) == {}
    result = rounds.run_case(case_of("h3_hello_quicgo"), environment, PLAN)
    assert {peer.absent for peer in result.peers.values()} == {"quicgo_load: go is not installed"}


@pytest.mark.parametrize(("quick", "size"), [(False, 1 << 30), (True, 64 << 20)])
def test_a_large_body_is_smaller_in_a_quick_run_and_travels_three_times_at_most(
    quick: bool, size: int, environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = replace(PLAN, rounds=7, quick=quick)
    loads = visit_that_tells(environment, monkeypatch, "h3_upload", plan)
    assert {option(command, "--bytes") for command in loads["peregrine"]} == {str(size)}
    assert len(loads["peregrine"]) == 3
    assert option(loads["our QUIC alone"][0], "--mode") == "upload"
    assert loads["our QUIC alone"][0][0].endswith("quic_load")


def test_a_table_of_a_transfer_shows_its_size_and_memory() -> None:
    sample = {"bytes": 2.0**30, "seconds": 2.0, "server_cpu_ns": 1e9, "server_grown_bytes": 2.0**21}
    peers = {
        "weft": PeerResult(samples=[sample]),
        "uringcore-uring": PeerResult(samples=[{**sample, "server_cpu_ns": 8e8}]),
        "quinn + h3": PeerResult(samples=[{**sample, "server_cpu_ns": 5e8}]),
        "our QUIC alone": PeerResult(
            samples=[{"bytes": 2.0**30, "seconds": 1.0, "server_cpu_ns": 4e8}]
        ),
    }
    text = section("h3_download", peers, rounds=3, amount="1,073,741,824 bytes")
    head = cells(text, "peer")
    ours = dict(zip(head, cells(text, "uringcore-uring"), strict=True))
    assert ours["× our QUIC alone"] == "0.50"
    assert ours["memory MiB"] == "2.00"
    assert (ours["CPU ÷ best other"], ours["CPU ÷ quinn + h3"]) == ("0.80", "1.60")
    assert cells(text, "our QUIC alone")[head.index("memory MiB")] == "–"
    assert "3 rounds of 1,073,741,824 bytes, CPython" in text


def test_a_peer_that_failed_is_no_rival() -> None:
    def peer(cpu_us: float, failed: str | None = None) -> PeerResult:
        sample = {"requests": 1000.0, "seconds": 1.0, "server_cpu_ns": cpu_us * 1e6}
        return PeerResult(failed=failed, samples=[sample])

    peers = {"weft": peer(1, "ended by itself"), "peregrine": peer(20), "uringcore-uring": peer(10)}
    text = section("h3_hello", peers)
    head = cells(text, "peer")
    assert cells(text, "uringcore-uring")[head.index("CPU ÷ best other")] == "0.50"


def test_idle_connections_are_shown_in_kilobytes_each() -> None:
    sample = {"requests": 1000.0, "private_bytes": 4e7, "seconds": 1.0}
    assert case_of("h3_idle").unit.rate_of(sample) == 40.0


def test_a_machine_names_its_tables() -> None:
    hardware = {"cores": 2, "memory_gib": 24, "virtual": True, "kernel": "6.18"}
    facts = {**MACHINE, **hardware, "versions": {}, "native_versions": {}}
    one, other = {**facts, "processor": "one"}, {**facts, "processor": "other"}
    taken = [("TCP echo", one), ("UDP echo", other), ("HTTP/3 hello", one), ("HTTP/3 hello", one)]
    first, second = provenance.tables(taken)
    assert cells(first, "its tables")[1] == "TCP echo; HTTP/3 hello"
    assert cells(second, "its tables")[1] == "UDP echo"


@pytest.mark.parametrize(
    ("heaps", "said"),
    [
        (["warm", "warm"], ""),
        (["warm", None], ", some with cold heaps"),
        ([None, None], ", with cold heaps"),
    ],
)
def test_a_table_of_servers_with_cold_heaps_has_a_note(heaps: list[str | None], said: str) -> None:
    """Measurements taken before servers were warmed all had cold heaps."""
    machines = [{**MACHINE, "profile": "guided", "heap": heap} for heap in heaps]
    assert provenance.stamps(machines).partition("commit abc")[2] == said


def test_a_result_records_that_its_servers_were_warm(tmp_path: Path) -> None:
    facts = machine.facts(Environment(Path("python"), tmp_path, tmp_path))
    assert "cold heaps" not in provenance.stamp(facts)


@pytest.mark.parametrize("seconds", ["0.9", "-1", "0"])
def test_a_window_of_less_than_a_second_is_refused(seconds: str) -> None:
    command = [sys.executable, str(ROOT / "benchmarks/run.py"), "--list", "--seconds", seconds]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 2
    assert f"argument --seconds: {seconds} is less than 1 second" in done.stderr


def test_an_unknown_loop_is_refused() -> None:
    with pytest.raises(ValueError, match="no loop is called 'libev'"):
        new_loop("libev")


Visit = Callable[..., None]


def visit_that_fails(name: str) -> tuple[Visit, list[str]]:
    """A visit in which `name` fails, and the list of visited names."""
    visited: list[str] = []

    def visit(case: Case, peer: Peer, *rest: Any) -> None:
        visited.append(peer.name)
        if peer.name == name:
            raise BenchmarkFailure("no reply on any connection for 5s")

    return visit, visited


def test_a_foreign_peer_that_fails_is_left_out_and_the_run_goes_on(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    visit, visited = visit_that_fails("blazio")
    monkeypatch.setattr(rounds, "_visit", visit)
    result = rounds.run_case(case_of("tcp_echo_1k_c1"), environment, PLAN)
    assert result.peers["blazio"].failed == "no reply on any connection for 5s"
    assert visited.count("blazio") == 1
    assert visited.count("uringcore-uring") == visited.count("c-epoll") == PLAN.rounds


@pytest.mark.parametrize("name", ["uringcore-epoll", "c-epoll"])
def test_a_failure_of_ours_ends_the_run(
    name: str, environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "_visit", visit_that_fails(name)[0])
    with pytest.raises(BenchmarkFailure):
        rounds.run_case(case_of("tcp_echo_1k_c1"), environment, PLAN)


@pytest.mark.parametrize("name", ["zloop", "uringcore-uring"])
def test_a_column_that_fails_ends_the_run_only_if_it_is_ours(
    name: str, environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def visit(matrix: matrices.Matrix, column: matrices.Column, *rest: Any) -> Any:
        if column.name == name:
            raise BenchmarkFailure("killed by signal 11")
        return {"accepted": [1.0, 3.0]}

    monkeypatch.setattr(matrices, "_visit", visit)
    if name == "uringcore-uring":
        with pytest.raises(BenchmarkFailure):
            run_matrix(matrix_of("idle"), environment, PLAN)
        return
    result = run_matrix(matrix_of("idle"), environment, PLAN)
    assert result.absent == {name: "failed: killed by signal 11"}
    assert result.rates["asyncio"] == {"accepted": [1.0, 3.0, 1.0, 3.0]}


def case_figures(
    name: str, peers: dict[str, PeerResult], *, rounds: int = 3, amount: str | None = None
) -> CaseFigures:
    """The figures of a case that was measured on this file's machine."""
    result = CaseResult(name, MACHINE, rounds, 1.0, amount, peers)
    return CaseFigures.of(case_of(name), result)


def section(name: str, peers: dict[str, PeerResult], **options: Any) -> str:
    """The table of a case."""
    return tables.section(case_of(name), case_figures(name, peers, **options))


def matrix_section(name: str, rates: dict[str, dict[str, list[float]]]) -> str:
    """The table of a matrix."""
    result = MatrixResult(name, MACHINE, 1, 0.1, rates)
    return tables.matrix_section(matrix_of(name), MatrixFigures.of(result))


def cells(text: str, name: str) -> list[str]:
    """Returns the row of a table that begins with `name`."""
    line = next(line for line in text.splitlines() if line.startswith(f"| {name} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_table_compares_processor_time_with_the_best_other_loop_and_c() -> None:
    def peer(cpu_us: float) -> PeerResult:
        sample = {"requests": 1000.0, "seconds": 1.0, "server_cpu_ns": cpu_us * 1e6}
        return PeerResult(samples=[sample])

    peers = {
        "asyncio": peer(20),
        "uvloop": peer(10),
        "rloop": peer(8),
        "zloop": PeerResult(failed="a reply differs\nand more"),
        "uringcore-uring": peer(6),
        "c-epoll": peer(5),
    }
    text = section("tcp_echo_1k_c1", peers)
    assert cells(text, "peer")[-2:] == ["CPU ÷ best other", "CPU ÷ c-epoll"]
    assert cells(text, "uringcore-uring")[-2:] == ["0.75", "1.20"]
    assert cells(text, "rloop")[-2:] == ["0.80", "1.60"]
    assert cells(text, "c-epoll")[-2:] == ["0.62", "1.00"]
    assert "- zloop failed: a reply differs\n" in text


@pytest.mark.parametrize(
    ("name", "against", "share"),
    [("micro", "best other", "2.00"), ("idle", "best other", "6.00"), ("start", "uvloop", "4.00")],
)
def test_a_matrix_shows_the_ratio_to_its_rival(name: str, against: str, share: str) -> None:
    rates = {"asyncio": 2.0, "uvloop": 3.0, "rloop": 6.0, "uringcore-epoll": 12.0}
    text = matrix_section(name, {column: {"row": [rate]} for column, rate in rates.items()})
    assert f"uringcore-epoll ÷ {against} |" in text
    assert cells(text, "row")[-1] == share


def test_other_interpreters_are_shown_in_ratios(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(figures, "FIGURES", tmp_path / "figures")
    older = MACHINE | {"python": "3.11.7"}
    peers = {
        name: PeerResult(samples=[{"requests": 1000.0, "seconds": 1.0, "server_cpu_ns": us * 1e6}])
        for name, us in {"uvloop": 10, "uringcore-uring": 6, "c-epoll": 5}.items()
    }
    peers["uringcore-epoll"] = PeerResult("", "a reply differs", peers["uvloop"].samples)
    CaseResult("tcp_echo_1k_c1", older, 1, 1.0, None, peers).save(beside=True)
    rates = {"uvloop": {"chain": [2.0]}, "uringcore-epoll": {"chain": [3.0]}}
    MatrixResult("micro", older, 1, 0.1, rates).save(beside=True)
    CaseResult("h3_hello", MACHINE | {"python": "3.14.1"}, 1, 1.0).save(beside=True)
    assert CaseResult.load("tcp_echo_1k_c1") is None, "the committed tables are unchanged"
    figures.collect()
    assert figures.read("tcp") == {}

    (older_one,) = interpreters.results()
    text = older_one.section()
    assert text.startswith("## On CPython 3.11\n")
    assert cells(text, "TCP echo, 1 KiB, 1 connection")[1:] == ["0.60", "–", "1.20", "–"]
    assert cells(text, "chain")[1:] == ["–", "1.50"]
    assert older_one.machines() == [older, older]


def test_a_zero_baseline_has_no_multiple() -> None:
    """An example is stalls: a baseline of zero has no multiple."""
    rates = {"uringcore-uring": {"stalls": [0.0]}, "uringcore-epoll": {"stalls": [3.0]}}
    text = matrix_section("relay", rates)
    assert [cell.partition(".")[0] for cell in cells(text, "stalls")[1:]] == ["0", "3"]


def test_a_program_that_is_bound_to_one_core_binds_its_server_to_another() -> None:
    """The binding holds even if the program started on the load's core."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("needs a machine with several cores")
    program = (
        "import os, subprocess, sys\n"
        "from benchmarks.harness.process import pin\n"
        f"pin({cores[1]})\n"
        "print(*os.sched_getaffinity(0), flush=True)\n"
        "ask = [sys.executable, '-c', 'import os; print(*os.sched_getaffinity(0))']\n"
        f"subprocess.run(ask, preexec_fn=lambda: pin({cores[0]}), check=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == [str(cores[1]), str(cores[0])]


def test_every_headline_and_chart_names_a_table() -> None:
    names = {table.name for table in (*CASES, *MATRICES)}
    for area in areas.on_page():
        wanted = {key.partition(": ")[0] for key in area.headline} | area.charts
        assert wanted <= names, area.name


def test_the_overview_marks_a_table_in_which_ours_is_behind() -> None:
    def peer(requests: float, cpu_us: float) -> PeerResult:
        sample = {"requests": requests, "seconds": 1.0, "server_cpu_ns": cpu_us * requests * 1000}
        return PeerResult(samples=[sample])

    case = case_of("tcp_echo_10k_c1")
    area = areas.area_of(case)
    assert case.name not in area.headline
    peers = {"uvloop": peer(1000, 10), "rloop": peer(900, 5), "c-epoll": peer(2000, 4)}
    behind = {**peers, "uringcore-uring": peer(2000, 6)}
    rows = summary.of_case(area, case, case_figures(case.name, behind))
    (row,) = summary.chosen(area, rows)
    text = "\n".join(summary.table(area, [row]))
    ratios = ["2.00", "2.00 (uvloop)", "6.00 µs/request", "0.60", "1.20 (rloop) ▼", "1.50"]
    assert cells(text, case.title)[3:] == ratios
    level = {**peers, "uringcore-uring": peer(980, 5.1)}
    rows = summary.of_case(area, case, case_figures(case.name, level))
    assert rows
    assert summary.chosen(area, rows) == []


def test_the_overview_does_not_count_a_lower_bound_as_a_rival() -> None:
    """Blocking calls do less work than asynchronous ones, and do not count as a rival."""
    matrix = matrix_of("files")
    medians = {"aiofiles on asyncio": 2.0, "uringcore-uring": 4.0, "blocking": 9.0}
    rates = {column: {"write 4 KiB": [median]} for column, median in medians.items()}
    result = MatrixResult("files", MACHINE, 1, 0.1, rates)
    (row,) = summary.of_matrix(areas.area_of(matrix), matrix, MatrixFigures.of(result))
    assert row.measure.best == "aiofiles on asyncio"
    assert not row.behind


def test_machines_name_the_tables_of_each_area() -> None:
    one, other = MACHINE | HARDWARE, MACHINE | HARDWARE | {"processor": "other"}
    tcp = [("TCP echo", one), ("TCP upload", one), ("TCP download", other)]
    text = "\n".join(provenance.by_area([("TCP", tcp), ("UDP", [("UDP echo", other)])]))
    first, second = text.splitlines()[2:4]
    assert first.endswith("| **TCP**, all but download |")
    assert second.endswith("| **TCP**: download<br>**UDP** |")


def test_the_report_writes_every_page_and_removes_old_charts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "FIGURES", tmp_path / "figures")
    machine = MACHINE | HARDWARE | {"versions": {}, "native_versions": {}}
    peers = {
        name: PeerResult(samples=[{"requests": rate, "seconds": 1.0, "server_cpu_ns": 1e9}])
        for name, rate in {"uvloop": 1000.0, "uringcore-uring": 2000.0}.items()
    }
    peers = {
        name: PeerResult(samples=[one.samples[0] | {"p50_us": 1.0}]) for name, one in peers.items()
    }
    case = case_of("tcp_echo_1k_c100")
    figures.keep_case(case, CaseResult(case.name, machine, 1, 1.0, None, peers))
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    stale = tmp_path / report.CHARTS / "stale.svg"
    stale.parent.mkdir(parents=True)
    stale.touch()
    report.write(tmp_path)
    assert not stale.exists()
    assert "(charts/tcp_echo_1k_c100.svg)" in (tmp_path / "docs/benchmarks/tcp.md").read_text()
    assert (tmp_path / report.CHARTS / "tcp_echo_1k_c100.svg").exists()
    page = (tmp_path / "BENCHMARK.md").read_text()
    assert "## [TCP](docs/benchmarks/tcp.md)" in page
    assert "| **TCP** |" in page
    text = readme.read_text()
    assert text.startswith("before\n") and text.endswith("after\n")
    assert "| uvloop | 2.00× | uvloop | 2.00× | 0.50× |" in text
    readme.write_text("no markers")
    with pytest.raises(SystemExit, match="no place for the figures"):
        report.write(tmp_path)


def test_pages_show_every_chart_that_is_kept() -> None:
    shown = {
        name
        for page in (ROOT / report.FULL).glob("*.md")
        for name in re.findall(r"\(charts/(\w+\.svg)\)", page.read_text())
    }
    assert shown == {path.name for path in (ROOT / report.CHARTS).iterdir()}
