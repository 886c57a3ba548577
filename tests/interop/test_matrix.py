"""The quick cases of the interoperability table, as part of the ordinary test run.

`make test-interop` plays all cases with all peers. The wire is the same under every interpreter, so
this runs on the default one only.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from functools import cache

import pytest

from tests.interop.peers import OURS, PEERS, ROOT
from tests.interop.runner.cases import CASES
from tests.interop.runner.play import PASSED, UNSUPPORTED, play

QUICK = [name for name, case in CASES.items() if case.quick]


@cache
def _is_default_interpreter() -> bool:
    command = [sys.executable, str(ROOT / ".ci" / "pythons.py"), "default"]
    default = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    if not default:
        return True
    version = "import sys; print(sys.version_info[:2])"
    asked = subprocess.run([default, "-c", version], capture_output=True, text=True, check=True)
    return asked.stdout.strip() == str(tuple(sys.version_info[:2]))


def _pairs() -> list[tuple[str, str]]:
    others = ("aioquic", "quic-go")
    return [
        (OURS, OURS),
        ("uringcore-epoll", "uringcore-epoll"),
        *((OURS, other) for other in others),
        *((other, OURS) for other in others),
    ]


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize(("server", "client"), _pairs(), ids=lambda name: name)
def test_case(name, server, client, tmp_path):
    if not _is_default_interpreter():
        pytest.skip("the cases are played on the default interpreter")
    for peer in (server, client):
        missing = PEERS[peer].missing()
        if missing is not None:
            pytest.skip(missing)
    outcome = asyncio.run(play(CASES[name], PEERS[server], PEERS[client], tmp_path / "run"))
    says = {"server": server, "client": client}.get(outcome.by, OURS)
    if outcome.verdict == UNSUPPORTED and not says.startswith(OURS):
        pytest.skip(outcome.reason)
    assert outcome.verdict == PASSED, outcome.reason
