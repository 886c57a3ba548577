"""The programs of one process, and the C server, do what their tables describe."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.harness import syscalls
from benchmarks.harness.environment import HERE
from benchmarks.harness.process import Server
from benchmarks.programs import idle, start_up

OURS = ["asyncio", "uringcore-uring", "uringcore-epoll"]
MESSAGE = os.urandom(4 << 20)


@pytest.fixture
def c_epoll(tmp_path: Path) -> Iterator[Server]:
    program = str(tmp_path / "c_epoll")
    source = str(HERE / "native" / "c_epoll.c")
    subprocess.run(
        ["cc", "-Wall", "-Wextra", "-Werror", "-o", program, source], check=True, timeout=100
    )
    with Server("c_epoll", [program], {}) as server:
        yield server


def test_the_c_program_waits_for_a_client_that_does_not_read(c_epoll: Server) -> None:
    with socket.create_connection(("127.0.0.1", c_epoll.port)) as client:
        sender = threading.Thread(target=client.sendall, args=(MESSAGE,))
        sender.start()
        # More data is in flight than any socket buffer holds: the server has to keep some and wait.
        sender.join(0.2)
        reply = bytearray()
        while len(reply) < len(MESSAGE):
            piece = client.recv(1 << 20)
            assert piece
            reply += piece
        sender.join()
        assert reply == MESSAGE
        idle.exchange(client, idle.MESSAGE)


def test_the_c_program_outlives_a_client_that_breaks_off(c_epoll: Server) -> None:
    with socket.create_connection(("127.0.0.1", c_epoll.port)) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.sendall(MESSAGE[:100_000])
    with socket.create_connection(("127.0.0.1", c_epoll.port)) as client:
        idle.exchange(client, idle.MESSAGE)


@pytest.mark.parametrize("peer", OURS)
def test_idle_connections_are_opened_and_echo(peer: str) -> None:
    command = [sys.executable, "-m", "benchmarks.servers.echo", "--loop", peer]
    with Server(peer, [*command, "--style", "protocol"], {}) as server:
        found = idle.samples(server, 600)
    assert list(found) == ["accepted", "after an echo of 1 KiB"]
    # Each connection includes a Python protocol object.
    assert found["accepted"] > 0.1


def test_private_memory_grows_by_what_is_written() -> None:
    before = idle.private_bytes(os.getpid())
    grown = b"\1" * (64 << 20)
    assert idle.private_bytes(os.getpid()) - before > len(grown) * 0.9


def test_a_start_measures_time_and_peak_memory() -> None:
    wall, cpu, small = start_up.one_start("")
    assert wall > 0
    assert cpu > 0
    assert start_up.one_start("x = b'1' * (64 << 20)")[2] > small + 60


@pytest.mark.parametrize("peer", OURS)
def test_a_run_of_nothing_and_an_idle_loop_have_their_rows(
    peer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_up, "IDLE_SECONDS", 1)
    rows = start_up.starts("run of nothing", start_up.RUN_NOTHING.format(peer=peer), 2)
    assert list(rows) == [f"run of nothing, {what}" for what in ("wall ms", "CPU ms", "peak MiB")]
    assert all(len(samples) == 2 for samples in rows.values())
    rows = start_up.idle(peer)
    assert rows["idle, CPU µs/s"][0] > 0
    if syscalls.unavailable() is None:
        # One wait a second and the loop's work for it, but no polling.
        assert 1 <= rows["idle, system calls/s"][0] < 10


def test_micro_rows_do_their_work() -> None:
    from benchmarks.programs.micro import Rows

    loop = asyncio.SelectorEventLoop()
    try:
        for row in Rows(loop).all().values():
            row(3)
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()
