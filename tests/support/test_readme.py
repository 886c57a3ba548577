"""README's programs run as they are printed.

But for the ports, the directory, and what a fragment leaves out.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from tests.server.harness import Server
from tests.support.children import bound
from tests.support.interpreter import is_default_interpreter
from tests.support.ports import free_port
from uringcore.asyncio import connect
from uringcore.devcert import DevelopmentCertificate
from uringcore.quic.configuration import QuicConfiguration

README = Path(__file__).parents[2] / "README.md"
PROGRAMS = re.findall(r"^## (.*?)$|^```python\n(.*?)^```$", README.read_text(), re.M | re.S)

# The last program is a fragment: this stands for the rest of it.
REST = """
import uringcore
from uringcore.asyncio import QuicConnectionProtocol, serve
from uringcore.devcert import DevelopmentCertificate
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.events import StreamDataReceived

configuration = QuicConfiguration(is_client=False, alpn_protocols=["h3", "echo"])
configuration.load_cert_chain(*DevelopmentCertificate.make().write("."))


class Echo(QuicConnectionProtocol):
    def quic_event_received(self, event):
        if isinstance(event, StreamDataReceived):
            self._quic.send_stream_data(event.stream_id, event.data, event.end_stream)
            self.transmit()


class Http3(QuicConnectionProtocol):
    pass
"""


def _programs() -> dict[str, list[str]]:
    """The programs below each heading."""
    found: dict[str, list[str]] = {}
    heading = ""
    for title, program in PROGRAMS:
        if title:
            heading = title
        else:
            found.setdefault(heading, []).append(program)
    return found


def _replaced(program: str, old: str, new: str) -> str:
    assert old in program, f"{old!r} is no longer in README's program: change this test with it"
    return program.replace(old, new)


@contextmanager
def _running(program: str, directory: Path):
    """A server, which is asked to end."""
    path, output = directory / "program.py", directory / "output"
    path.write_text(program)
    with output.open("wb") as file:
        # A group of its own, so that none of its processes can outlive the test.
        process = subprocess.Popen(
            bound([sys.executable, path]),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
        process.terminate()
        process.wait(timeout=60)
        assert "Traceback" not in output.read_text(), output.read_text()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _printed(program: str, directory: Path) -> str:
    path = directory / "program.py"
    path.write_text(program)
    process = subprocess.run(
        [sys.executable, path],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def _until(attempt, process: subprocess.Popen[bytes]):
    """What ``attempt`` returns when the server is there."""
    end = time.monotonic() + 60
    while True:
        try:
            return attempt()
        except ConnectionError:
            assert process.poll() is None and time.monotonic() < end, "no server"
            time.sleep(0.05)


def test_every_program_is_run():
    counts = {heading: len(programs) for heading, programs in _programs().items()}
    assert counts == {
        "The loop in a minute": 1,
        "Files in a minute": 1,
        "QUIC without events": 1,
        "QUIC in a minute": 2,
        "A client in a minute": 2,
    }


def test_the_loop_in_a_minute(tmp_path):
    (program,) = _programs()["The loop in a minute"]
    port = free_port()
    program = _replaced(program, "8888", str(port))

    def echoed():
        with closing(socket.create_connection(("127.0.0.1", port), timeout=60)) as client:
            client.sendall(b"hello")
            client.shutdown(socket.SHUT_WR)
            return client.makefile("rb").read()

    with _running(program, tmp_path) as process:
        assert _until(echoed, process) == b"hello"


def test_files_in_a_minute(tmp_path):
    (program,) = _programs()["Files in a minute"]
    assert _printed(program, tmp_path) == "one\ntwo\n8 b'two'\n"


@pytest.mark.parametrize("heading", ["QUIC without events", "QUIC in a minute"])
def test_quic_in_a_minute(tmp_path, heading):
    program = _programs()[heading][0]
    program = _replaced(program, "4433", str(free_port()))
    program = _replaced(program, '"/tmp"', '"."')
    assert _printed(program, tmp_path) == "b'hello'\n"


def test_a_client_in_a_minute(tmp_path):
    pool, transport = _programs()["A client in a minute"]
    certificate = DevelopmentCertificate.make().write(tmp_path)
    server = Server(tmp_path, certificate)
    try:
        program = _replaced(pool, "https://example.org", server.url)
        program = _replaced(program, "Pool()", "Pool(verify=False)")
        assert _printed(program, tmp_path) == "200 b'hello'\nb'one two'\n"
        program = _replaced(transport, "https://example.org", server.url)
        # The machine may be busy: what is shown is the choice, not how soon it falls back.
        patient = "AsyncHTTP3Transport(verify=False, fallback_delay=30.0)"
        program = _replaced(program, "AsyncHTTP3Transport()", patient)
        assert _printed(program, tmp_path) == "HTTP/1.1 hello\nHTTP/3 hello\n"
    finally:
        server.kill()


@pytest.mark.skipif(not is_default_interpreter(), reason="once is enough: it starts five processes")
def test_a_server_on_each_core(tmp_path):
    program = _programs()["QUIC in a minute"][1]
    port = free_port()
    program = REST + _replaced(program, "4433", str(port))

    async def echoed():
        configuration = QuicConfiguration(alpn_protocols=["echo"], verify_mode=ssl.CERT_NONE)
        async with connect("127.0.0.1", port, configuration=configuration) as client:
            reader, writer = await client.create_stream()
            writer.write(b"hello")
            writer.write_eof()
            return await reader.read()

    with _running(program, tmp_path) as process:
        assert _until(lambda: asyncio.run(echoed()), process) == b"hello"
    assert process.returncode == 0, "the group ends its processes and itself"
