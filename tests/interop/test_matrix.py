"""The quick cases of the interoperability table, as part of the ordinary test run.

`make test-interop` plays all cases with all peers. The wire is the same under every interpreter, so
this runs on the default one only.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.interop.peers import OURS, PEERS
from tests.interop.runner.cases import CASES
from tests.interop.runner.play import PASSED, UNSUPPORTED, play
from tests.support.interpreter import is_default_interpreter

pytestmark = pytest.mark.wire

# Server and client, by table. That of all peers is `make test-interop`.
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
        # In aioquic's shape: replies on a stream that the library itself has opened, too.
        ("aioquic", "uringcore_h3"),
    ],
}
QUICK = [(name, *pair) for name, case in CASES.items() if case.quick for pair in PAIRS[case.table]]


@pytest.mark.parametrize(("name", "server", "client"), QUICK)
def test_case(name, server, client, tmp_path):
    if not is_default_interpreter():
        pytest.skip("the cases are played on the default interpreter")
    for peer in (server, client):
        missing = PEERS[peer].missing(name)
        if missing is not None:
            pytest.skip(missing)
    outcome = asyncio.run(play(CASES[name], PEERS[server], PEERS[client], tmp_path / "run"))
    says = {"server": server, "client": client}.get(outcome.by, OURS)
    if outcome.verdict == UNSUPPORTED and not says.startswith(OURS):
        pytest.skip(outcome.reason)
    assert outcome.verdict == PASSED, outcome.reason
