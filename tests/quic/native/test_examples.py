"""The examples of ``uringcore.quic``, run as their users run them: in several processes, to the end, and
interrupted.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import uringcore
from tests.quic.harness import patterned
from tests.server.harness import Server
from tests.support.child_processes import bound
from tests.support.interpreter_roles import is_default_interpreter
from uringcore import http3, quic

EXAMPLES = Path(__file__).parents[3] / "examples"
NAMES = ("chat", "crawler", "file_transfer", "game", "http3_proxy")


@contextlib.contextmanager
def _started(name, *arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE):
    """Starts an example in a process of its own, with pipes for its three standard streams."""
    process = subprocess.Popen(
        bound([sys.executable, EXAMPLES / f"{name}.py", *map(str, arguments)]),
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in filter(None, (process.stdin, process.stdout, process.stderr)):
            # Closing flushes the last input, which the process may never have read.
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


@contextlib.contextmanager
def _serving(name, *arguments, status=0):
    """Runs an example's server; yields its port and the certificate that verifies it. Then interrupts it."""
    with _started(name, *arguments) as process:
        line = process.stdout.readline()
        found = re.match(r"port (\d+), authority (.*)", line)
        if found:
            yield found[1], found[2]
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert found, line + said
        assert process.returncode == status, said
        assert "Traceback" not in said, said


def _run(name, *arguments):
    """Runs an example to its end; returns its output and its error output."""
    command = [sys.executable, EXAMPLES / f"{name}.py", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def _server(folder):
    return _serving("file_transfer", "serve", folder, 0, status=130)


def _get(server, name, into):
    port, authority = server
    done = _run("file_transfer", "get", "localhost", port, name, authority, into)
    return done.returncode, done.stderr


def test_files_go_over_and_go_on(tmp_path):
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    content = patterned(3_000_000)
    (there / "file").write_bytes(content)
    (there / "empty").write_bytes(b"")
    (tmp_path / "secret").write_bytes(b"secret")
    with _server(there) as server:
        status, said = _get(server, "file", here)
        assert status == 0 and "100 %" in said
        assert (here / "file").read_bytes() == content
        # The first half exists already; the check below would reveal a byte that is sent again.
        (here / "file").unlink()
        (here / "file.part").write_bytes(bytes(1_000_000))
        status, said = _get(server, "file", here)
        assert status == 0 and "1000000 of them are here" in said
        assert (here / "file").read_bytes() == bytes(1_000_000) + content[1_000_000:]
        assert _get(server, "empty", here)[0] == 0
        assert (here / "empty").read_bytes() == b""
        for name in ("no such file", "../secret"):
            status, said = _get(server, name, here)
            assert status == 1 and "0x404" in said
    assert not (here / "no such file").exists()


def test_a_part_that_is_longer_than_the_file_is_no_whole_file(tmp_path):
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    (there / "file").write_bytes(b"short")
    (here / "file.part").write_bytes(b"of an older file")
    with _server(there) as server:
        status, said = _get(server, "file", here)
    assert status == 1 and "0x400" in said
    assert not (here / "file").exists()


def test_requests_that_make_no_sense_are_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"content")

    async def main(port, authority):
        config = quic.ClientConfig(alpn=["file-transfer"], authorities=authority)
        async with quic.connect("localhost", int(port), config) as connection:
            for request in (b"file\n-5\n", b"fi\0le\n0\n", b"file\n%d\n" % 10**18, b"\xff\n0\n"):
                async with connection.open_stream() as stream:
                    await stream.send(request)
                    await stream.finish()
                    with pytest.raises(quic.StreamResetError) as caught:
                        await stream.read()
                    assert caught.value.code == 0x400

    with _server(tmp_path) as server:
        uringcore.run(main(*server))


def test_a_chat_of_three(tmp_path):
    with (
        _serving("chat", "serve", 0, status=130) as (port, authority),
        contextlib.ExitStack() as doors,
    ):

        def join(name):
            process = doors.enter_context(
                _started("chat", "join", "localhost", port, name, authority)
            )
            assert process.stdout.readline() == f"* {name} is here\n"
            return process

        def say(process, line):
            process.stdin.write(line)
            process.stdin.flush()

        ann = join("ann")
        bob = join("bob")
        assert ann.stdout.readline() == "* bob is here\n"
        say(ann, "hello\n")
        assert [who.stdout.readline() for who in (ann, bob)] == ["ann: hello\n"] * 2
        with _started("chat", "join", "localhost", port, "bob", authority) as second:
            assert second.wait(60) == 1
            said = second.stderr.read()
            assert "nobody else may be 'bob'" in said and "Traceback" not in said
        # A killed member leaves the chat when its connection times out. Until then the others continue.
        eve = join("eve")
        assert [who.stdout.readline() for who in (ann, bob)] == ["* eve is here\n"] * 2
        eve.kill()
        bob.stdin.close()
        assert ann.stdout.readline() == "* bob has left\n"
        assert bob.wait(60) == 0
        say(ann, "nobody?\n")
        assert ann.stdout.readline() == "ann: nobody?\n"
        ann.stdin.close()
        assert ann.wait(60) == 0


@pytest.mark.parametrize("players", [50, pytest.param(1000, marks=pytest.mark.soak)])
@pytest.mark.skipif(
    not is_default_interpreter(), reason="the game of a thousand runs on the default interpreter"
)
def test_a_game_of_many(players):
    with _serving("game", "serve", 0) as (port, authority):
        played = _run("game", "play", "localhost", port, authority, players)
        assert played.returncode == 0, played.stderr
        found = re.match(rf"{players} have played, and seen up to (\d+) at once", played.stdout)
        assert found and int(found[1]) > 1, played.stdout


def test_a_proxy_takes_clients_to_the_server_that_they_name(tmp_path, pki):
    files = (str(pki.server.certfile), str(pki.server.keyfile))
    server = Server(tmp_path, files)
    try:
        upstream, authorities = f"localhost={server.url[8:]}", pki.authority.certfile
        with _serving("http3_proxy", 0, authorities, upstream) as (port, authority):
            uringcore.run(_ask(f"https://localhost:{port}", authority))
            # The proxy has no server for this name.
            with pytest.raises(http3.HTTP3Error):
                uringcore.run(_ask(f"https://127.0.0.1:{port}", authority))
    finally:
        server.stop()


async def _ask(url, authority):
    async with http3.Client(cafile=authority) as pool:
        for size in (0, 1, 3_000_000):
            sent = patterned(size)
            response = await pool.request("POST", f"{url}/echo", content=sent)
            assert (response.status, response.content) == (200, sent)
        answers = await asyncio.gather(*(pool.request("GET", f"{url}/") for _ in range(50)))
        assert {answer.status for answer in answers} == {200}


def _crawled(folder, pki, app):
    """Returns the crawler's output for a site, and the site's URL."""
    files = (str(pki.server.certfile), str(pki.server.keyfile))
    server = Server(folder, files, app=f"tests.quic.native.crawler_site:{app}")
    try:
        return _run("crawler", f"{server.url}/", pki.authority.certfile), server.url
    finally:
        server.stop()


def test_a_crawler_reads_a_site_and_names_what_is_broken(tmp_path, pki):
    crawled, url = _crawled(tmp_path, pki, "app")
    first, *broken = crawled.stdout.splitlines()
    # Counted pages: the start page, a hundred pages, the moved page and its target, the picture, two broken
    # links.
    assert re.match(r"106 pages, \d+ bytes, 2 broken links", first), crawled.stdout
    assert crawled.returncode == 1
    assert broken == [f"{url}/cut: {broken[0].split(': ', 1)[1]}", f"{url}/gone: 404"]


@pytest.mark.parametrize("name", NAMES)
def test_it_is_short_and_has_no_private_name(name):
    source = (EXAMPLES / f"{name}.py").read_text()
    assert len(source.splitlines()) < 120
    assert not re.search(r"\._[a-z]|import _|from _", source)
