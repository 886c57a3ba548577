"""Files as responses: `http.response.pathsend`, `http.response.zerocopysend`, and Starlette on top."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import time
from pathlib import Path

import pytest

import uringcore
from tests.http.features.conftest import events
from tests.http.raw_client import connect_raw, needs_recent_aioquic
from tests.server.harness import ForkedServer
from tests.support.interpreter_roles import is_default_interpreter
from uringcore.h3.connection import ErrorCode

BELOW_PYTHON = pytest.mark.skipif(
    not is_default_interpreter(), reason="the sending of files does not depend on the interpreter"
)
SIZES = [0, 1, 131_072, 131_073, 100 << 20]
PART_BYTES = 131_072
# The kernel's description of its types, or of its build: files without pages, whose reads are never
# immediate.
UNCACHED = next(
    filter(Path.exists, map(Path, ["/sys/kernel/btf/vmlinux"])), Path("/sys/kernel/notes")
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


def make(folder, size):
    """Makes a file of this size in which no content repeats nearby."""
    path = folder / f"{size}.bin"
    if not path.exists():
        block = os.urandom(min(size, 1 << 20))
        path.write_bytes((block * (size // len(block) + 1))[:size] if size else b"")
    return path


def digest(data):
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("size", SIZES)
def test_a_path_is_sent_whole(server, folder, size):
    path = make(folder, size)
    response = server.get(f"/path/x?{path}")
    assert response.status == 200
    assert dict(response.headers)[b"content-length"] == b"%d" % size
    assert digest(response.content) == digest(path.read_bytes())


def test_pages_that_left_the_page_cache_are_sent(server, folder):
    """The kernel decides where the read happens: a disk may be as fast as the check of the cache."""
    path = folder / "cold"
    path.write_bytes(os.urandom(3 << 20))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert server.get(f"/path/x?{path}").content == path.read_bytes()


@pytest.mark.skipif(not UNCACHED.exists(), reason="sysfs has no file that every user may read")
def test_a_file_outside_the_page_cache_is_read_by_a_thread(server):
    assert server.get(f"/counted/x?{UNCACHED}").content == UNCACHED.read_bytes()
    parts = -(-UNCACHED.stat().st_size // PART_BYTES)
    assert events(server, "counted")[-1] == parts


def test_without_a_length_the_file_is_sent_to_its_end(server, folder):
    path = make(folder, 131_073)
    assert server.get(f"/path/unannounced?{path}").content == path.read_bytes()


def test_trailers_follow_a_file(server, folder):
    response = server.get(f"/path/trailers?{make(folder, 1)}")
    assert len(response.content) == 1
    assert dict(response.trailers) == {b"x-checksum": b"42"}


def test_a_head_is_answered_without_the_file(server, folder):
    response = server.get(f"/path/x?{make(folder, 131_073)}", method="HEAD")
    assert dict(response.headers)[b"content-length"] == b"131073"
    assert response.content == b""


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/nowhere/at-all", "FileNotFoundError"),
        ("/", "IsADirectoryError"),
        ("/dev/null", "OSError"),
    ],
)
def test_an_invalid_file_is_the_applications_fault(server, path, reason):
    assert server.get(f"/path/unannounced?{path}").status == 500
    server.wait_log(reason)


def test_a_file_that_is_shorter_than_announced_is_not_begun(server, folder):
    path = folder / "cut-before"
    path.write_bytes(bytes(1000))
    assert server.get(f"/path/cut?{path}").status == 500
    server.wait_log("Response content shorter than Content-Length")


@needs_recent_aioquic
def test_a_file_that_becomes_shorter_ends_its_response_with_a_reset_and_one_line(start_features):
    server = start_features()

    async def main():
        async with connect_raw(server, max_data=1 << 20, max_stream_data=1 << 16) as raw:
            raw.quic.grants = False
            raw.control()
            stream_id = raw.request("/shrinking/cut")
            await raw.wait(lambda: len(raw.incoming(stream_id).data) >= 1 << 16)
            await raw.wait_answer(raw.request("/release/cut"))
            raw.quic.grants = True
            raw.say()
            return await raw.wait_over(stream_id)

    stream = uringcore.run(main())
    assert stream.reset == ErrorCode.H3_INTERNAL_ERROR
    assert events(server, "cut") == ["sent"]
    lines = [line for line in server.log().splitlines() if "shorter while it was sent" in line]
    assert len(lines) == 1
    assert "Traceback" not in server.log()


def wait_open_at(server, path, places):
    """Waits until the server has a file open this many times."""
    deadline = time.monotonic() + 20
    while (count := open_at(server, path)) != places:
        assert time.monotonic() < deadline, f"open {count} times"
        time.sleep(0.02)


def open_at(server, path):
    """Returns how often the server has a file open."""
    folder = Path(f"/proc/{server.process.pid}/fd")
    count = 0
    for link in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            count += os.readlink(link) == str(path)
    return count


@BELOW_PYTHON
@needs_recent_aioquic
@pytest.mark.parametrize("places", [16, 0])
def test_readers_that_stall_keep_few_files_open(start_features, folder, places):
    given = () if places == 16 else ("--http3-max-open-files", str(places))
    server = start_features(*given)
    path = folder / "stalled"
    path.write_bytes(os.urandom(1 << 19))

    async def main():
        async with connect_raw(server, max_data=1 << 24, max_stream_data=1 << 16) as raw:
            raw.quic.grants = False
            raw.control()
            streams = [raw.request(f"/path/x?{path}") for _ in range(24)]
            for stream_id in streams:
                stream = raw.incoming(stream_id)
                await raw.wait(lambda stream=stream: len(stream.data) >= 1 << 16)
            # By now the last of them waits like the others.
            await raw.wait_answer(raw.request("/scope"))
            wait_open_at(server, path, places)
            raw.quic.grants = True
            raw.say()
            for stream_id in streams:
                assert digest((await raw.wait_answer(stream_id)).body) == digest(path.read_bytes())

    uringcore.run(asyncio.wait_for(main(), 60))
    wait_open_at(server, path, 0)


@BELOW_PYTHON
@needs_recent_aioquic
@pytest.mark.parametrize("how", ["replaced", "removed", "appended to"])
def test_a_file_that_is_opened_again_is_the_same_file(start_features, folder, how):
    server = start_features("--http3-max-open-files", "0")
    path = folder / "replaced"
    path.write_bytes(bytes(1 << 20))

    async def main():
        async with connect_raw(server, max_data=1 << 20, max_stream_data=1 << 16) as raw:
            raw.quic.grants = False
            raw.control()
            stream_id = raw.request(f"/path/x?{path}")
            await raw.wait(lambda: len(raw.incoming(stream_id).data) >= 1 << 16)
            if how == "appended to":
                with path.open("ab") as file:
                    file.write(b"more")
            elif how == "removed":
                path.unlink()
            else:
                (folder / "new").write_bytes(bytes(1 << 20))
                (folder / "new").rename(path)
            raw.quic.grants = True
            raw.say()
            return await raw.wait_over(stream_id)

    stream = uringcore.run(asyncio.wait_for(main(), 60))
    if how == "appended to":
        assert stream.ended
        return
    assert stream.reset == ErrorCode.H3_INTERNAL_ERROR
    server.wait_log("A file was replaced or removed while it was sent")
    assert "Traceback" not in server.log()


def test_parts_of_an_open_file_are_sent(server, folder):
    path = folder / "digits"
    path.write_bytes(b"0123456789")
    assert server.get(f"/zero-copy?{path}").content == b"23401|56789"
    assert events(server, "zero-copy")[-1] == 10


@pytest.fixture(scope="module")
def starlette(backend, certificate, tmp_path_factory):
    """Starlette's FileResponse, over HTTP/3 and by uvicorn over HTTP/1.1."""
    running = ForkedServer(
        tmp_path_factory.mktemp("starlette"),
        certificate,
        backend=backend,
        app="tests.http.features.starlette_app:app",
    )
    yield running
    running.kill()
    running.check_log()


@pytest.mark.parametrize("size", SIZES)
def test_starlette_hands_the_path_over(starlette, folder, size):
    path = make(folder, size)
    response = starlette.get(f"/file?{path}")
    assert digest(response.content) == digest(path.read_bytes())
    expected = b"start,pathsend"
    assert starlette.get("/sent").content == expected


RANGES = ["bytes=0-0", "bytes=10-99", "bytes=-5", "bytes=131000-", "bytes=0-1,5-6", "bytes=999999-"]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("wanted", [None, *RANGES])
def test_ranges_and_head_are_as_over_http1(starlette, folder, method, wanted):
    path = make(folder, 131_073)
    headers = {} if wanted is None else {"range": wanted}
    ours = starlette.get(f"/file?{path}", method=method, headers=list(headers.items()))
    with starlette.http1() as http1:
        http1.request(method, f"/file?{path}", headers=headers)
        theirs = http1.getresponse()
        body = theirs.read()
    assert ours.status == theirs.status

    def shown(pairs):
        pairs = {name.lower(): value for name, value in pairs}
        # Each multipart response has its own boundary.
        boundary = pairs.get("content-type", "").partition("boundary=")[2]
        hidden = ("date", "alt-svc", "server", "connection", "content-type")
        return {name: value for name, value in pairs.items() if name not in hidden}, boundary

    ours_shown, ours_boundary = shown(
        [(name.decode(), value.decode()) for name, value in ours.headers]
    )
    theirs_shown, theirs_boundary = shown(theirs.getheaders())
    assert ours_shown == theirs_shown
    assert ours.content.replace(ours_boundary.encode() or b"\0", b"") == body.replace(
        theirs_boundary.encode() or b"\0", b""
    )
