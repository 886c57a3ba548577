"""The quick cases of the interoperability table, as part of the ordinary test run.

`make test-interop` runs all cases with all peers. The wire does not depend on the interpreter, so
this runs on the default one only.
"""

from __future__ import annotations

import asyncio
import dataclasses
import sys

import pytest

from tests.interop.peers import OURS, PEERS, Peer
from tests.interop.runner.case_run import FAILED, PASSED, UNSUPPORTED, play
from tests.interop.runner.cases import CASES
from tests.support.child_processes import wait_gone
from tests.support.interpreter_roles import is_default_interpreter

pytestmark = [
    pytest.mark.wire,
    pytest.mark.skipif(
        not is_default_interpreter(), reason="the packets do not depend on the interpreter"
    ),
]

# Server and client, by table. `make test-interop` runs the table of all peers.
PAIRS = {
    "quic": [
        (OURS, OURS),
        ("uringcore-epoll", "uringcore-epoll"),
        (OURS, "aioquic"),
        (OURS, "quic-go"),
        ("aioquic", OURS),
        ("quic-go", OURS),
    ],
    "web": [(OURS, "curl"), (OURS, "quic-go"), ("nginx", OURS)],
    "webtransport": [
        (OURS, "aioquic"),
        (OURS, "webtransport-go"),
        ("aioquic", OURS),
        ("webtransport-go", OURS),
        # Through aioquic's API: includes replies on a stream that the library itself has opened.
        ("aioquic", "uringcore_h3"),
    ],
}
QUICK = [(name, *pair) for name, case in CASES.items() if case.quick for pair in PAIRS[case.table]]


@pytest.mark.parametrize(("name", "server", "client"), QUICK)
def test_case(name, server, client, tmp_path):
    for peer in (server, client):
        missing = PEERS[peer].missing(name)
        if missing is not None:
            pytest.skip(missing)
    outcome = asyncio.run(play(CASES[name], PEERS[server], PEERS[client], tmp_path / "run"))
    says = {"server": server, "client": client}.get(outcome.by, OURS)
    if outcome.verdict == UNSUPPORTED and not says.startswith(OURS):
        pytest.skip(outcome.reason)
    assert outcome.verdict == PASSED, outcome.reason


def client(program):
    """Returns a client with this program text."""
    return Peer("the test's", lambda test_case: [sys.executable, "-c", program], ("client",))


def test_a_case_that_ends_early_leaves_no_process_and_no_file(tmp_path):
    """The server is a grandchild process, with a folder of its own."""
    lacks = client("raise SystemExit(127)")
    outcome = asyncio.run(play(CASES["web-trailers"], PEERS[OURS], lacks, tmp_path / "run"))
    assert outcome.verdict == UNSUPPORTED
    wait_gone(tmp_path)
    assert not list((tmp_path / "run").glob("interop-*/*"))


def test_a_client_without_requests_ends_the_case_at_its_time_limit(tmp_path):
    case = dataclasses.replace(CASES["web-goaway"], seconds=2.0)
    sleeps = client("import time; time.sleep(600)")
    outcome = asyncio.run(play(case, PEERS[OURS], sleeps, tmp_path / "run"))
    assert (outcome.verdict, outcome.reason) == (FAILED, "nothing was held back in 2 s")


@pytest.mark.parametrize("case", ["handshake", "datagram", "web-get", "wt-echo"])
def test_ours_plays_every_case_on_the_backend_of_its_name(case):
    for name, backend in ((OURS, "uring"), ("uringcore-epoll", "epoll")):
        assert f"URINGCORE_BACKEND={backend}" in PEERS[name].words(case)
