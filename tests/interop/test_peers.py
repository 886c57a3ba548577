"""One program on aioquic and on uringcore: 1 MiB each way on 20 streams, HTTP/3 GET and POST, both
roles.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable

import pytest

from tests.interop.conftest import Command
from tests.interop.endpoint import GREETING, MODES, Library, serving
from tests.loop.harness import BACKENDS, Runner
from tests.support.interpreter_roles import is_newest_interpreter

pytestmark = pytest.mark.skipif(
    not is_newest_interpreter(),
    reason="most of the time is aioquic's own, so it runs once, on the newest interpreter",
)
Starter = Callable[[Command], "subprocess.Popen[str]"]
SECONDS = 90.0


@pytest.fixture(params=BACKENDS)
def run(request: pytest.FixtureRequest) -> Runner:
    return Runner(request.param)


def _port(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.startswith("READY "):
        process.kill()
        pytest.fail(f"the peer says {line!r}; {process.communicate()[1]}")
    return int(line.split()[1])


@pytest.mark.parametrize("mode", sorted(MODES))
def test_our_client(
    run: Runner,
    peer: Command,
    start_peer: Starter,
    certificate: tuple[str, str],
    mode: str,
) -> None:
    cert, key = certificate
    server = start_peer([*peer, "server", "--cert", cert, "--key", key])
    port = _port(server)
    run(MODES[mode](Library("uringcore"), port, cert), timeout=SECONDS)
    server.terminate()
    _, err = server.communicate(timeout=20)
    assert server.returncode == 0, err
    assert "Traceback" not in err
    assert run.complaints.contexts == []


@pytest.mark.parametrize("mode", sorted(MODES))
def test_our_server(
    run: Runner,
    peer: Command,
    start_peer: Starter,
    certificate: tuple[str, str],
    mode: str,
) -> None:
    cert, key = certificate

    async def main() -> tuple[str, str, int]:
        loop = asyncio.get_running_loop()
        async with serving(Library("uringcore"), cert, key) as port:
            # Twice: the server must work after a connection as before it.
            for _ in range(2):
                arguments = ["client", "--port", str(port), "--ca", cert, "--mode", mode]
                client = start_peer([*peer, *arguments])
                out, err = await loop.run_in_executor(None, client.communicate)
                if client.returncode != 0:
                    break
            return out, err, client.returncode

    out, err, status = run(main(), timeout=SECONDS)
    assert status == 0, err
    assert out.startswith("OK ")
    assert run.complaints.contexts == []


def test_our_http3_client(
    run: Runner, peer: Command, start_peer: Starter, certificate: tuple[str, str]
) -> None:
    from uringcore.http3._unpooled_connection import connect

    cert, key = certificate
    server = start_peer([*peer, "server", "--cert", cert, "--key", key])
    port = _port(server)

    async def main() -> None:
        async with connect(f"https://localhost:{port}/", cafile=cert) as client:
            response = await client.get("/")
            assert response.status == 200
            assert await response.read() == GREETING

    run(main(), timeout=SECONDS)
    assert run.complaints.contexts == []
