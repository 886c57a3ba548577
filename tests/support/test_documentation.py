"""The programs of README.md and docs run as printed, and their links have targets.

Tests change the ports and hosts of programs, and add the missing parts of fragments.
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
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

import uringcore
from tests.server.harness import Server
from tests.support.certificates import Authority
from tests.support.child_processes import bound
from tests.support.free_ports import free_port
from tests.support.interpreter_roles import is_default_interpreter
from uringcore import quic
from uringcore.asyncio import connect
from uringcore.devcert import DevelopmentCertificate
from uringcore.quic.configuration import QuicConfiguration

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))))
OTHER_PAGES = (
    *("ARCHITECTURE.md", "BENCHMARK.md", "CHANGELOG.md", "CONTRIBUTING.md", "tests/README.md"),
    *(f"docs/benchmarks/{path.name}" for path in sorted((ROOT / "docs/benchmarks").glob("*.md"))),
)
"""Pages with links, and without programs that are run."""
PARTS = re.compile(r"^## (.*?)$|^```python\n(.*?)^```$", re.M | re.S)

Program = tuple[str, str, int]
"""The page, the heading and the number of a program below it."""


def _programs() -> dict[Program, str]:
    found: dict[Program, str] = {}
    for page in PAGES:
        heading, number = "", 0
        for title, program in PARTS.findall((ROOT / page).read_text()):
            if title:
                heading, number = title, 0
            else:
                found[page, heading, number] = program
                number += 1
    return found


PROGRAMS = _programs()

# The missing part of the fragment about several processes.
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


def _replaced(program: str, old: str, new: str) -> str:
    assert old in program, f"{old!r} is no longer in the program: change this test with it"
    return program.replace(old, new)


@contextmanager
def _running(program: str | list[str], directory: Path):
    """Runs a server, given as a program's text or a command line, and ends it by SIGTERM."""
    path, output = directory / "program.py", directory / "output"
    if isinstance(program, str):
        path.write_text(program)
        program = [sys.executable, str(path)]
    with output.open("wb") as file:
        # A separate process group, so that none of its processes can outlive the test.
        process = subprocess.Popen(
            bound(program),
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
    """Repeats ``attempt`` until the server accepts, and returns its result."""
    end = time.monotonic() + 60
    while True:
        try:
            return attempt()
        except (ConnectionError, URLError):
            assert process.poll() is None and time.monotonic() < end, "no server"
            time.sleep(0.05)


LOOPS = [("README.md", "A loop", 0), ("docs/loop.md", "", 0)]
FILES = {
    ("README.md", "Files", 0): "one\ntwo\n",
    ("docs/files.md", "", 0): "one\ntwo\n8 b'two'\n",
}
QUIC = [
    ("README.md", "QUIC", 0),
    ("docs/quic.md", "", 0),
    ("docs/aioquic.md", "", 0),
    ("docs/webtransport.md", "", 0),
]
PORT_GROUP = ("docs/aioquic.md", "Servers in production", 0)
TYPED_PORT_GROUP = ("docs/quic.md", "Servers in production", 0)
APPLICATION = ("README.md", "A server", 0)
SERVER = ("docs/server.md", "From a program", 0)
STATIC_FILES = ("docs/server.md", "Files", 0)
CLIENT = ("docs/client.md", "`uringcore.http3.Client`", 0)
SHORT_CLIENT = ("README.md", "A client", 0)
HTTPX = ("docs/client.md", "httpx", 0)
AIOFASTNET = ("docs/aiofastnet.md", "", 0)


def test_every_program_is_run():
    run = [
        *LOOPS,
        *FILES,
        *QUIC,
        PORT_GROUP,
        TYPED_PORT_GROUP,
        APPLICATION,
        SERVER,
        STATIC_FILES,
        CLIENT,
        SHORT_CLIENT,
        HTTPX,
        AIOFASTNET,
    ]
    assert PROGRAMS.keys() == set(run)


@pytest.mark.parametrize("page", [*PAGES, *OTHER_PAGES])
def test_no_page_installs_from_the_index(page):
    """The package of that name on the index belongs to another author."""
    assert not re.search(r"pip install[^\n]*[\s'\"]uringcore\b(?!-)", (ROOT / page).read_text())


def test_readme_is_short():
    assert len((ROOT / "README.md").read_bytes()) <= 8 * 1024


@pytest.mark.parametrize("page", [*PAGES, *OTHER_PAGES])
def test_links_lead_somewhere(page):
    path = ROOT / page
    for target, _, anchor in re.findall(
        r"\]\((?!https?:)([^)#\s]*)(#([^)\s]+))?\)", path.read_text()
    ):
        found = (path.parent / target).resolve() if target else path
        assert found.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", found.read_text(), re.M)
            anchors = {re.sub(r"[^\w\- ]", "", text).lower().replace(" ", "-") for text in headings}
            assert anchor in anchors, f"{target}#{anchor}"


@pytest.mark.parametrize("program", LOOPS)
def test_a_loop(tmp_path, program):
    port = free_port()

    def echoed():
        with closing(socket.create_connection(("127.0.0.1", port), timeout=60)) as client:
            client.sendall(b"hello")
            client.shutdown(socket.SHUT_WR)
            return client.makefile("rb").read()

    with _running(_replaced(PROGRAMS[program], "8888", str(port)), tmp_path) as process:
        assert _until(echoed, process) == b"hello"


@pytest.mark.parametrize(("program", "printed"), FILES.items())
def test_files(tmp_path, program, printed):
    assert _printed(PROGRAMS[program], tmp_path) == printed


@pytest.mark.parametrize("program", QUIC)
def test_quic_and_webtransport(tmp_path, program):
    text = _replaced(PROGRAMS[program], "4433", str(free_port()))
    assert _printed(text, tmp_path) == "b'hello'\n"


def test_an_application_is_served_by_the_command_of_readme(tmp_path):
    pytest.importorskip("fastapi")
    (tmp_path / "app.py").write_text(PROGRAMS[APPLICATION])
    serve, get = re.findall(r"^    (uringcore .*)$", (ROOT / "README.md").read_text(), re.M)
    port = str(free_port())
    command = [sys.executable, "-m", *_replaced(serve, "8443", port).split()]
    with _running(command, tmp_path) as process:
        fetch = [sys.executable, "-m", *_replaced(get, "8443", port).split()]

        def fetched():
            done = subprocess.run(
                fetch, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
            )
            if done.returncode:
                raise ConnectionError(done.stderr)
            return done

        done = _until(fetched, process)
        assert done.stdout == '{"message":"Hello"}'
        assert "HTTP/3 200" in done.stderr


def test_the_mounted_folder(tmp_path):
    ask = """
from fastapi.testclient import TestClient

print(TestClient(app).get("/assets/a.txt").text, end="")
"""
    (tmp_path / "a.txt").write_text("content\n")
    assert _printed(PROGRAMS[STATIC_FILES] + ask, tmp_path) == "content\n"


def test_a_server_in_a_program(tmp_path):
    port = free_port()

    def fetched():
        context = ssl._create_unverified_context()
        with urlopen(f"https://localhost:{port}/", context=context, timeout=60) as response:
            return response.read()

    with _running(_replaced(PROGRAMS[SERVER], "8443", str(port)), tmp_path) as process:
        assert _until(fetched, process) == b"hello"


def test_a_client(tmp_path):
    certificate = DevelopmentCertificate.make().write(tmp_path)
    server = Server(tmp_path, certificate)
    try:
        for program, printed in (
            (CLIENT, "200 b'hello'\nb'one two'\n"),
            (SHORT_CLIENT, "200 b'hello'\n"),
        ):
            text = _replaced(PROGRAMS[program], "https://example.org", server.url)
            text = _replaced(text, "Client()", "Client(verify=False)")
            assert _printed(text, tmp_path) == printed
        text = _replaced(PROGRAMS[HTTPX], "https://example.org", server.url)
        # A busy machine may connect slowly: this tests the choice, not the time of the fallback.
        patient = "AsyncHTTP3Transport(verify=False, fallback_delay=30.0)"
        text = _replaced(text, "AsyncHTTP3Transport()", patient)
        assert _printed(text, tmp_path) == "HTTP/1.1 hello\nHTTP/3 hello\n"
    finally:
        server.kill()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="asyncio.Runner is new in CPython 3.11")
def test_aiofastnets_transports(tmp_path):
    pytest.importorskip("aiofastnet")
    main = "async def main():\n    print('ran')\n\n\n"
    assert _printed(main + PROGRAMS[AIOFASTNET], tmp_path) == "ran\n"


@pytest.mark.skipif(not is_default_interpreter(), reason="once is enough: it starts five processes")
def test_a_server_on_each_core(tmp_path):
    port = free_port()
    program = REST + _replaced(PROGRAMS[PORT_GROUP], "4433", str(port))

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


@pytest.mark.skipif(not is_default_interpreter(), reason="once is enough: it starts five processes")
def test_a_typed_server_on_each_core(tmp_path):
    names = ("example.org", "example.net")
    authority = Authority(tmp_path)
    for name in names:
        authority.issue(tmp_path, name, name)
    port = free_port()
    program = _replaced(PROGRAMS[TYPED_PORT_GROUP], "4433", str(port))
    program = _replaced(program, "/run/echo/", f"{tmp_path}/")

    @asynccontextmanager
    async def connecting(name):
        config = quic.ClientConfig(
            alpn=["echo"], authorities=authority.certfile, server_name=name, idle_timeout=5
        )
        async with quic.connect("127.0.0.1", port, config) as connection:
            yield connection

    async def echo(connection, data):
        async with connection.open_stream() as stream:
            await stream.send(data, finish=True)
            return await stream.read()

    async def echoed(name):
        async with connecting(name) as connection:
            return await echo(connection, name.encode())

    async def echoed_beside_errors():
        async with connecting(names[0]) as kept:
            assert await echo(kept, b"before") == b"before"
            stream = await kept.open_stream()
            await stream.send(b"half")
            stream.reset(7)
            stream = await kept.open_stream()
            await stream.send(b"unwanted", finish=True)
            stream.stop(8)
            # Whichever worker has the connection that is kept has one of these as well, very likely.
            for _ in range(16):
                async with connecting(names[0]) as other:
                    stream = await other.open_stream()
                    await stream.send(b"half")
                    await other.ping()
                    other.close(9, "enough")
            return await echo(kept, b"after")

    async def shown():
        async with connecting(names[0]) as connection:
            return connection.peer_certificate

    with _running(program, tmp_path) as process:
        for name in names:
            assert _until(lambda name=name: uringcore.run(echoed(name)), process) == name.encode()
        assert uringcore.run(echoed_beside_errors()) == b"after"
        # New processes show new certificates.
        old = uringcore.run(shown())
        authority.issue(tmp_path, names[0], names[0])
        process.send_signal(signal.SIGHUP)
        end = time.monotonic() + 60
        while uringcore.run(shown()) == old:
            assert time.monotonic() < end, "the old certificate stays"
            time.sleep(0.05)
        assert process.poll() is None
    assert process.returncode == 0, "the group ends its processes and itself"
