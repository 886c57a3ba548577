"""The programs that measure whole servers do what their tables describe, on this project's own
server.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import uringcore
from benchmarks.harness.matrix import MATRICES
from benchmarks.programs import first_byte, http1, relay, worker_reload, workers
from benchmarks.programs.certificate import write as write_certificate
from benchmarks.programs.deployed import CERTIFICATES, NATIVE, SERVERS, Deployed, spent
from uringcore.quic import ClientConfig
from uringcore.webtransport import connect_webtransport


@pytest.fixture(autouse=True)
def certificate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_certificate(tmp_path)
    monkeypatch.setenv(CERTIFICATES, str(tmp_path))
    monkeypatch.setenv(NATIVE, str(tmp_path))


def test_http1_has_requests_and_large_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "BIG", 3 << 20)
    with Deployed("uringcore-epoll", core=None) as server:
        rows = uringcore.run(http1.measure(server, 0.2))
    assert len(rows) == 10
    for name, (count, wall, cpu) in rows.items():
        assert count > 0, name
        assert wall > 0, name
        assert cpu > 0, name


def test_no_client_is_refused_while_workers_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_reload, "ROUNDS", 1)
    with Deployed("uringcore-epoll", workers=2, tls=True, core=None) as server:
        rows = uringcore.run(worker_reload.measure(server, http3=True))
    for protocol in ("HTTP/1.1", "HTTP/3"):
        assert rows[f"{protocol}, answered of 1,000 attempts"] == [1000]


def test_first_bytes_come_by_a_delaying_proxy_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_byte, "SAMPLES", 1)
    with Deployed("uringcore-epoll", tls=True, core=None) as server:
        rows = uringcore.run(first_byte.measure(server, linked=False))
    assert list(rows) == ["HTTP/3", "HTTP/3, resumed", "HTTP/3, 0-RTT"]


def test_each_core_has_a_load_and_the_requests_of_all_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commands = []

    def run(command: list[str], limit: float) -> str:
        commands.append(command)
        return json.dumps({"requests": 1000, "seconds": 2.0, "server_cpu_ns": 4 * 10**9})

    monkeypatch.setattr(workers, "run", run)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2})

    class Server:
        port = 1

        def cpu_ns(self) -> dict[int, int]:
            return {7: 0, 8: 0}

    rows = workers.rows_of(Server(), "hello", (), 1.0)  # type: ignore[arg-type]
    rates = {name.partition(", ")[2]: took[0] / took[1] for name, took in rows.items()}
    assert rates == {
        "requests/s": 1500,
        "requests a second of the server's processor time": 750,
    }
    assert len(commands) == 3
    assert all(command[command.index("--processes") + 1] == "7,8" for command in commands)


def test_the_relay_serves_with_the_certificate_of_the_benchmarks() -> None:
    async def watch(port: int) -> None:
        cafile = relay.authority()
        url = f"https://localhost:{port}/watch"
        config = ClientConfig(authorities=cafile)
        async with connect_webtransport(url, config) as session:
            assert session.path == "/watch"

    with relay.Relay("epoll", core=None) as server:
        uringcore.run(watch(server.port))


def test_each_step_of_the_relay_reports_received_data_and_delays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = {
        "p50_us": 1500.0,
        "p99_us": 4000.0,
        "megabits": 1500.0,
        "due_megabits": 20.0,
        "groups": 800,
        "groups_reset": 3,
        "groups_missing": 1,
        "stalls": 2,
        "server_cpu_share": 0.75,
        "load_cpu_share": 0.5,
    }
    commands = []

    def run(command: list[str], limit: float) -> str:
        commands.append(command)
        return json.dumps(told)

    monkeypatch.setattr(relay, "run", run)
    step = (20_000_000, 100, 250)
    server = relay.Relay("epoll", core=None)
    server.pid = 7
    rows = relay.rows_of(step, relay.step_of(server, step, 1.0))
    assert rows == {
        "20 Mbit/s to 100, p50 ms": [1.5],
        "20 Mbit/s to 100, p99 ms": [4.0],
        "20 Mbit/s to 100, Mbit/s out": [1500.0],
        "20 Mbit/s to 100, share of the bytes that came": [0.75],
        "20 Mbit/s to 100, groups of 1,000 dropped or missing": [5.0],
        "20 Mbit/s to 100, stalls over 100 ms": [2],
        "20 Mbit/s to 100, relay's share of its core": [0.75],
        "20 Mbit/s to 100, load's share of its core": [0.5],
    }
    assert commands[0][commands[0].index("--watchers") + 1] == "100"
    assert commands[0][0] == "setpriv"
    steps = {
        name for step in relay.STEPS for name in relay.rows_of(step, {**told, "subscribers": 1})
    }
    chart = next(matrix.chart for matrix in MATRICES if matrix.name == "relay")
    assert steps.issuperset(chart)


def test_the_busiest_process_stands_first() -> None:
    assert spent({1: 0, 2: 0}, {1: 10**9, 2: 2 * 10**9}) == [2.0, 1.0]


def test_a_process_that_ends_meanwhile_has_no_figure() -> None:
    with pytest.raises(RuntimeError, match="1 ended while it was measured"):
        spent({1: 0, 2: 0}, {1: 10**9, 3: 0})


TALKATIVE = """
import socket, sys, time
port = int(sys.argv[sys.argv.index("--port") + 1])
listening = socket.create_server(("127.0.0.1", port))
print("Application startup complete", flush=True)
for number in range(LINES):
    print("line", number, flush=True)
print("the last", flush=True)
time.sleep(600)
"""
DYING = "print('Application startup complete', flush=True)"


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], str]:
    """A server given as text: the name of its column."""

    def make(text: str) -> str:
        (tmp_path / "told_server.py").write_text(text)
        places = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, places)))
        monkeypatch.setitem(SERVERS, "told", ("told_server",))
        return "told"

    return make


def test_a_log_that_is_read_while_it_is_written_keeps_every_line(
    program: Callable[[str], str],
) -> None:
    with Deployed(program(TALKATIVE.replace("LINES", "100_000")), core=None) as server:
        while "the last" not in server.log():
            pass
        lines = server.log().splitlines()
    assert lines[1:-1] == [f"line {number}" for number in range(100_000)]


def test_a_server_that_ends_before_it_answers_is_reported(program: Callable[[str], str]) -> None:
    with pytest.raises(RuntimeError, match="does not serve"), Deployed(program(DYING), core=None):
        pass
