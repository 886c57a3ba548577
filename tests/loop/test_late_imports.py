"""A running loop imports nothing: all modules that its operations need are loaded when it is made."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.loop.harness import BACKENDS, LOOPS

_PROGRAM = "tests.loop.blocked_imports"
# CPython's own, which asyncio imports at the first call.
_ASYNCIO_IMPORTS_LATE = {"concurrent.futures.thread", "encodings.idna"}
# Optional modules: the colours of a traceback (3.15), and the text of a ResourceWarning.
_FOR_TEXTS = {"_colorize", "tracemalloc"}
# asyncio fails without threads, and without the codec of a certificate's name.
_ASYNCIO_FAILS = {"executor", "names", "tls", "tls_refused", "start_tls", "sendfile_over_tls"}


def _run_shut(name: str, certificate: tuple[Path, Path]) -> dict[str, Any]:
    command = [sys.executable, "-m", _PROGRAM, name, *map(str, certificate)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=120)
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


@pytest.mark.parametrize("name", BACKENDS)
def test_every_operation_runs_without_the_import_system(
    name: str, certificate: tuple[Path, Path]
) -> None:
    report = _run_shut(name, certificate)
    assert set(report["tried"]) <= _FOR_TEXTS
    assert report["failures"] == {}


def test_asyncio_runs_the_operations_with_few_imports(certificate: tuple[Path, Path]) -> None:
    """The operations are valid: asyncio's own loop fails only in those that it imports modules for."""
    report = _run_shut("stock", certificate)
    assert set(report["tried"]) <= _ASYNCIO_IMPORTS_LATE | _FOR_TEXTS
    assert set(report["failures"]) <= _ASYNCIO_FAILS


_QUIC_ENDPOINT = """
import asyncio, sys, uringcore
from uringcore.quic.configuration import QuicConfiguration

class Shut:
    def find_spec(self, name, path=None, target=None):
        raise ImportError(name)

async def main(loop):
    configuration = QuicConfiguration(is_client=False, alpn_protocols=["test"])
    configuration.load_cert_chain(*sys.argv[2:])
    sys.meta_path[:] = [Shut()]
    transport, _ = await loop.create_quic_endpoint(
        None, local_addr=("127.0.0.1", 0), configuration=configuration
    )
    transport.close()

loop = uringcore.new_event_loop(sys.argv[1])
loop.run_until_complete(main(loop))
loop.close()
"""


@pytest.mark.parametrize("name", BACKENDS)
def test_a_loop_opens_quic_endpoints_without_the_import_system(
    name: str, certificate: tuple[Path, Path]
) -> None:
    """If the program imported QUIC's configuration before it made its loop."""
    command = [sys.executable, "-c", _QUIC_ENDPOINT, name, *map(str, certificate)]
    subprocess.run(command, check=True, timeout=60)


# The first connection of a process that can read no more files. `{confine}` takes the access away.
_FIRST_CONNECTION = """
import asyncio, os, resource, socket, sys
from tests.loop.harness import Echo, Recorder, factory, listen

async def main(loop):
    server, address = await listen(Echo)
    with socket.socket() as client:
        client.setblocking(False)
        {confine}
        await loop.sock_connect(client, address)
        await loop.sock_sendall(client, b"hello")
        assert await loop.sock_recv(client, 5) == b"hello"

loop = factory(sys.argv[1])()
# At EMFILE the accept after the last one fails, and says so.
loop.set_exception_handler(lambda loop, context: print(context, file=sys.stderr))
loop.run_until_complete(asyncio.wait_for(main(loop), 20))
loop.close()
print("served")
"""

_CONFINED = {
    "chroot": "os.chroot(sys.argv[2])",
    # One descriptor is left, for the accepted connection, and none for a file.
    "EMFILE": (
        "os.closerange(max(client.fileno(), server.sockets[0].fileno()) + 1, 200);"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (client.fileno() + 2, 4096));"
        "assert os.dup(0) == client.fileno() + 1; os.close(client.fileno() + 1)"
    ),
}


@pytest.mark.parametrize("how", _CONFINED)
@pytest.mark.parametrize("name", LOOPS)
def test_the_first_connection_is_served_where_no_file_can_be_read(
    name: str, how: str, tmp_path: Path
) -> None:
    if how == "chroot" and os.geteuid() != 0:
        pytest.skip("chroot() needs root")
    code = _FIRST_CONNECTION.format(confine=_CONFINED[how])
    command = [sys.executable, "-c", code, name, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "served\n", done.stderr
