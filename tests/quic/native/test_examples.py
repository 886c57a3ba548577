"""``examples/file_transfer.py`` as its users run it: whole, resumed, refused, and interrupted."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import uringcore
from tests.quic.harness import patterned
from uringcore import quic

EXAMPLE = Path(__file__).parents[3] / "examples" / "file_transfer.py"


@contextlib.contextmanager
def _server(folder):
    process = subprocess.Popen(
        [sys.executable, EXAMPLE, "serve", folder, "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        line = process.stdout.readline()
        found = re.match(r"port (\d+), authority (.*)", line)
        assert found, line + process.stderr.read()
        yield found[1], found[2]
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 130
        assert "Traceback" not in said, said
    finally:
        process.kill()
        process.communicate()


def _get(server, name, into):
    port, authority = server
    command = [sys.executable, EXAMPLE, "get", "localhost", port, name]
    done = subprocess.run(
        [*command, "--authority", authority, "--into", into],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
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
        # The first half is here already, and another byte would show if it came again.
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
                    with pytest.raises(quic.StreamReset) as caught:
                        await stream.read()
                    assert caught.value.code == 0x400

    with _server(tmp_path) as server:
        uringcore.run(main(*server))


def test_it_is_short_and_has_no_private_name():
    source = EXAMPLE.read_text()
    assert len(source.splitlines()) < 120
    assert not re.search(r"\._[a-z]|import _|from _", source)
