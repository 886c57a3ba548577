"""The server of the file tables sends the files that the load generator compares."""

from __future__ import annotations

import sys
import urllib.request

import pytest

from benchmarks.harness.cases import CASES
from benchmarks.harness.peers import PEERS
from benchmarks.harness.process import Server
from benchmarks.servers import http_files
from benchmarks.servers.static_files import FOLDER

PATHS = {case.load[case.load.index("--path") + 1] for case in CASES if "static" in case.tags}


def test_every_peer_has_a_command() -> None:
    assert {peer.name for peer in PEERS["files_http1"]} == set(http_files.COMMANDS)


@pytest.mark.parametrize("name", ["uringcore-uring", "uringcore-epoll"])
def test_our_server_serves_every_file_of_the_tables(name: str) -> None:
    command = [sys.executable, "-m", "benchmarks.servers.http_files", "--server", name]
    with Server(name, command, {}) as server:
        for path in PATHS:
            url = f"http://127.0.0.1:{server.port}{path}"
            with urllib.request.urlopen(url, timeout=20) as response:
                body = response.read()
            assert body == (FOLDER / path.rpartition("/")[2]).read_bytes()
