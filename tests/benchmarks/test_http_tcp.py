"""The applications of the HTTP/1.1 and HTTP/2 tables send the responses that the load generator compares."""

from __future__ import annotations

import subprocess
import sys
import urllib.request

import pytest

from benchmarks.harness.cases import CASES
from benchmarks.harness.process import Server
from benchmarks.servers.http3 import APPLICATIONS
from benchmarks.servers.http_tcp import OURS

LOADS = {case.load for case in CASES if case.name.startswith("h1_") and "--path" in case.load}


def option(load: tuple[str, ...], name: str) -> str | None:
    return load[load.index(name) + 1] if name in load else None


def serving(application: str, version: int) -> Server:
    arguments = ("--server", OURS[0], "--application", application, "--http", str(version))
    command = [sys.executable, "-m", "benchmarks.servers.http_tcp", *arguments]
    return Server(OURS[0], command, {})


@pytest.mark.parametrize("application", APPLICATIONS)
def test_every_compared_answer_is_that_of_the_application(application: str) -> None:
    with serving(application, 1) as server:
        assert server.processes == [server.pid]
        for load in LOADS:
            content, answer = option(load, "--content"), option(load, "--answer")
            request = urllib.request.Request(
                f"http://127.0.0.1:{server.port}{option(load, '--path')}",
                data=None if content is None else content.encode(),
                headers={"content-type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=20) as response:
                body = response.read()
            assert len(body) == int(option(load, "--size") or len(body))
            assert answer is None or body == answer.encode()


@pytest.mark.parametrize("mode", ["hello", "numbers", "json", "download", "upload"])
def test_the_client_of_the_counted_rows_gets_its_responses_over_http2(mode: str) -> None:
    with serving("bare", 2) as server:
        command = [sys.executable, "-m", "benchmarks.programs.http2_client", str(server.port)]
        done = subprocess.run(
            [*command, mode, "4"], input=b"9\n5\n", capture_output=True, check=False, timeout=60
        )
    assert (done.returncode, done.stdout) == (0, b".."), done.stderr
