"""Files as responses over native HTTP/1.1 and HTTP/2, and the debug extension."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from pathlib import Path

import h2.errors
import pytest

from tests.http.features.test_files import UNCACHED, digest, make, open_at, wait_open_at
from tests.http.http1 import client as http1
from tests.http.http2 import client as http2
from tests.http.tcp_server import running_server

SIZES = [0, 1, 131_072, 131_073, 5 << 20]
APPLICATION = "tests.http.features.application:app"

pytestmark = [
    pytest.mark.either_backend,
    pytest.mark.parametrize("version", ["http1", "http2"]),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module", params=["tcp", "tls"])
def server(request, backend, certificate, tmp_path_factory):
    """A server of the features' application, over TCP and over TLS."""
    folder = tmp_path_factory.mktemp("files-server")
    with running_server(
        request.param, folder, certificate, backend=backend, app=APPLICATION
    ) as running:
        yield running
    assert "Exception in an HTTP" not in running.log()


@pytest.fixture
def start_native(start, backend):
    """Starts a server over TCP with further options."""

    def start_server(*options):
        options = ("--http", "native", "--no-http3", *options)
        server = start(
            *options, backend=backend, certificate=(None, None), http3=False, app=APPLICATION
        )
        server.is_secure = False
        return server

    return start_server


@contextlib.contextmanager
def connected(server, version):
    """Yields a function that makes one request after the other on a connection."""
    if version == "http1":
        with http1.connected(server, secure=server.is_secure) as raw:
            yield lambda path, method="GET": raw.get(path, method=method)
    else:
        with http2.connected(server, secure=server.is_secure) as client:
            yield lambda path, method="GET": client.ask(path, method)


@pytest.mark.parametrize("size", SIZES)
def test_a_path_is_sent_whole(server, folder, version, size):
    path = make(folder, size)
    with connected(server, version) as ask:
        response = ask(f"/path/x?{path}")
        assert (response.status, response.get("content-length")) == (200, str(size))
        assert digest(response.body) == digest(path.read_bytes())
        # The connection goes on.
        assert ask("/debug").body == b"debugged"


@pytest.mark.skipif(not UNCACHED.exists(), reason="sysfs has no file that every user may read")
def test_a_file_outside_the_page_cache_is_sent(server, version):
    with connected(server, version) as ask:
        assert ask(f"/counted/x?{UNCACHED}").body == UNCACHED.read_bytes()


def test_without_a_length_the_file_is_sent_to_its_end(server, folder, version):
    path = make(folder, 131_073)
    with connected(server, version) as ask:
        assert ask(f"/path/unannounced?{path}").body == path.read_bytes()


@pytest.mark.parametrize("end", [b"", b"\1\0\0\0\0\0\0\0"], ids=["fin", "fin and rst"])
def test_a_client_that_ends_before_a_file_does_not_end_a_process_with_sigpipe(
    server, folder, version, end
):
    """An application may give SIGPIPE its default action, and ``sendfile(2)`` has no ``MSG_NOSIGNAL``."""
    if version == "http2":
        pytest.skip("HTTP/2 uses no sendfile(2)")
    path = make(folder, 5 << 20)
    with http1.connected(server, secure=server.is_secure) as raw:
        raw.send(f"GET /lost-client/x?{path} HTTP/1.1\r\nHost: a\r\n\r\n")
        raw.head()
        # The application's sleep begins, in which the event loop sees nothing.
        time.sleep(0.15)
        raw.socket.shutdown(socket.SHUT_WR)
        if end:
            raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, end)
    with connected(server, version) as ask:
        assert ask("/debug").body == b"debugged"


def test_trailers_follow_a_file(server, folder, version):
    # A length leaves HTTP/1.1 no place for trailers (RFC 9112 section 7.1.2).
    with connected(server, version) as ask:
        response = ask(f"/path/trailers?{make(folder, 1)}")
        assert len(response.body) == 1
        expected = [] if version == "http1" else [("x-checksum", "42")]
        assert [*response.trailers] == expected


def test_a_head_is_answered_without_the_file(server, folder, version):
    with connected(server, version) as ask:
        response = ask(f"/path/x?{make(folder, 131_073)}", "HEAD")
        assert (response.get("content-length"), response.body) == ("131073", b"")
        assert ask("/debug").body == b"debugged"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/nowhere/at-all", "FileNotFoundError"),
        ("/", "IsADirectoryError"),
        ("/dev/null", "OSError"),
    ],
)
def test_an_invalid_file_is_the_applications_fault(server, version, path, reason):
    with connected(server, version) as ask:
        assert ask(f"/path/unannounced?{path}").status == 500
    server.wait_log(reason)


def test_a_file_that_is_shorter_than_announced_is_not_begun(server, folder, version):
    path = folder / "cut-before"
    path.write_bytes(bytes(1000))
    with connected(server, version) as ask:
        assert ask(f"/path/cut?{path}").status == 500
    server.wait_log("Response content shorter than Content-Length")


def test_parts_of_an_open_file_are_sent(server, folder, version):
    path = folder / "digits"
    path.write_bytes(b"0123456789")
    with connected(server, version) as ask:
        assert ask(f"/zero-copy?{path}").body == b"23401|56789"
        assert json.loads(ask("/events/zero-copy").body)[-1] == 10


def test_the_debug_extension_is_there_only_for_an_application_that_is_debugged(server, version):
    """The application sends the message if the scope has the extension."""
    with connected(server, version) as ask:
        assert ask("/debug").body == b"debugged"
        assert "http.response.debug" not in json.loads(ask("/scope").body)["extensions"]


def test_a_file_that_becomes_shorter_ends_its_response_and_leaves_one_line(start_native, version):
    server = start_native()
    if version == "http1":
        with http1.connected(server) as raw, http1.connected(server) as other:
            raw.send(b"GET /shrinking/cut HTTP/1.1\r\nHost: a\r\n\r\n")
            raw.head()
            assert other.get("/release/cut").body == b"released"
            # The connection ends before the announced length.
            assert len(raw.rest()) < 16 << 20
    else:
        with http2.connected(server, takes=False) as client:
            stream_id = client.begin("/shrinking/cut")
            client.head(stream_id)
            # The window of the stream is used up, that of the connection must not be.
            client.h2.increment_flow_control_window(1 << 30)
            client.flush()
            assert client.ask("/release/cut").body == b"released"
            client.h2.increment_flow_control_window(1 << 30, stream_id)
            client.flush()
            response = client.response(stream_id)
            assert response.reset == int(h2.errors.ErrorCodes.INTERNAL_ERROR)
            assert client.ask("/debug").body == b"debugged"
    server.wait_log("shorter while it was sent")
    with connected(server, version) as ask:
        assert json.loads(ask("/events/cut").body) == ["sent"]
    lines = [line for line in server.log().splitlines() if "shorter while it was sent" in line]
    assert len(lines) == 1
    assert "Traceback" not in server.log()


@pytest.mark.parametrize("places", [16, 0])
def test_readers_that_stall_keep_few_files_open(start_native, folder, version, places):
    server = start_native(*(() if places == 16 else ("--http3-max-open-files", str(places))))
    # Larger than the buffers of the kernel.
    path = folder / "stalled"
    with path.open("wb") as file:
        file.truncate(8 << 20)
    with contextlib.ExitStack() as stack:
        if version == "http2":
            client = stack.enter_context(http2.connected(server, takes=False))
            streams = [client.begin(f"/path/x?{path}") for _ in range(24)]
            for stream_id in streams:
                client.head(stream_id)
            wait_open_at(server, path, places)
            client.takes = True
            client.h2.increment_flow_control_window((1 << 31) - 70_000)
            for stream_id in streams:
                client.h2.increment_flow_control_window(16 << 20, stream_id)
            client.flush()
            for stream_id in streams:
                assert len(client.response(stream_id).body) == 8 << 20
        else:
            # The limit of a connection matters little, where each has one response.
            raws = [stack.enter_context(http1.connected(server)) for _ in range(24)]
            for raw in raws:
                raw.send(f"GET /path/x?{path} HTTP/1.1\r\nHost: a\r\n\r\n")
            wait_open_below(server, path, 24 if places else 0)
            for raw in raws:
                assert len(raw.response().body) == 8 << 20
    wait_open_at(server, path, 0)


def wait_open_below(server, path, most):
    """Waits until the server has a file open at most this many times."""
    deadline = time.monotonic() + 20
    while (count := open_at(server, path)) > most:
        assert time.monotonic() < deadline, f"open {count} times"
        time.sleep(0.02)


def test_a_file_that_is_replaced_is_not_mixed_with_the_new_one(start_native, folder, version):
    """With no place for open files, the file is opened for each part."""
    server = start_native("--http3-max-open-files", "0")
    path: Path = folder / "replaced"
    with path.open("wb") as file:
        file.truncate(16 << 20)
    new = folder / "new"
    new.write_bytes(os.urandom(1 << 20) * 16)
    if version == "http1":
        with http1.connected(server) as raw:
            raw.send(f"GET /path/x?{path} HTTP/1.1\r\nHost: a\r\n\r\n")
            raw.head()
            wait_open_at(server, path, 0)
            new.rename(path)
            body = raw.rest()
    else:
        with http2.connected(server, takes=False) as client:
            stream_id = client.begin(f"/path/x?{path}")
            client.head(stream_id)
            wait_open_at(server, path, 0)
            new.rename(path)
            client.h2.increment_flow_control_window(1 << 30)
            client.h2.increment_flow_control_window(1 << 30, stream_id)
            client.flush()
            response = client.response(stream_id)
            assert response.reset == int(h2.errors.ErrorCodes.INTERNAL_ERROR)
            body = response.body
    assert len(body) < 16 << 20
    assert not body.strip(b"\0")
    server.wait_log("A file was replaced or removed while it was sent")
    assert "Traceback" not in server.log()
