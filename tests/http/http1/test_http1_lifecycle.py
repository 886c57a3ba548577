"""Native HTTP/1.1 connections: time-outs, limits, the stop of the server, the log, and Unix sockets."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import time
from urllib.parse import quote

import pytest

from tests.http.http1.client import SECONDS, connected
from tests.http.unread_responses import LARGE, UNREAD, Sender
from tests.server.harness import APPLICATION, ROOT, environment
from tests.support.child_processes import bound

pytestmark = pytest.mark.either_backend

APPLICATION_WITHOUT_SCOPE = "tests.http.failing_tls_scope:app"
RESET_BEFORE_END = "tests.http.reset_before_end:app"

POST = b"POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"


def test_slow_clients_are_refused_or_disconnected(start_native):
    options = {"header": 1, "body": 1}
    server = start_native(
        *(
            text
            for name, value in options.items()
            for text in (f"--http3-{name}-timeout", str(value))
        ),
        *("--timeout-keep-alive", "1"),
    )
    with connected(server) as silent, connected(server) as slow, connected(server) as body:
        slow.send(b"GET / HTTP/1.1\r\nHo")
        body.send(POST + b"he")
        assert silent.is_closed()
        response = slow.response()
        assert (response.status, response.get("connection")) == (408, "close")
        assert slow.is_closed()
        response = body.response()
        assert (response.status, response.get("connection")) == (408, "close")
        assert body.is_closed()
    with connected(server) as idle:
        assert idle.get("/").body == b"hello"
        assert idle.is_closed()
    # The time-outs do not apply to the application, which takes longer than all of them.
    with connected(server) as patient:
        assert patient.get("/sleep/3").body == b"first last"


def test_a_response_that_its_client_does_not_read_is_abandoned(start_native):
    server = start_native("--http3-send-timeout", "1", "--metrics-path", "/metrics")
    with connected(server) as one:
        one.send(b"GET /flood/200000000 HTTP/1.1\r\nHost: a\r\n\r\n")
        one.head()
        counted = re.compile(rb'\{[^}]*reason="nothing_taken"[^}]*\} 1\b')
        with connected(server) as other:
            while not counted.search(other.get("/metrics").body):
                pass


def test_requests_of_a_connection_and_of_the_server_are_limited(start_native):
    server = start_native("--http3-max-requests-per-connection", "2")
    with connected(server) as one:
        assert one.get("/").get("connection") is None
        assert one.get("/").get("connection") == "close"
        assert one.is_closed()
    server = start_native("--limit-max-requests", "3")
    for _ in range(3):
        with connected(server) as one:
            assert one.get("/").status == 200
    assert server.wait_stopped() == 0
    server = start_native("--limit-concurrency", "2")
    with connected(server) as one, connected(server) as other:
        response = one.get("/")
        if response.status == 200:
            # The other connection was not accepted yet.
            response = other.get("/")
        assert (response.status, response.body) == (503, b"Service Unavailable")
        assert response.get("connection") == "close"


def test_a_stop_answers_open_requests_and_closes_idle_connections(start_native):
    server = start_native()
    with connected(server) as idle, connected(server) as busy:
        assert idle.get("/").body == b"hello"
        busy.send(b"GET /sleep/1 HTTP/1.1\r\nHost: a\r\n\r\n")
        assert busy.head().get("connection") is None
        server.send_signal(signal.SIGTERM)
        assert idle.is_closed()
        assert busy.rest().endswith(b"last\r\n0\r\n\r\n")
    assert server.wait_stopped() == 0


def test_a_response_that_begins_during_the_stop_announces_the_end(start_native):
    server = start_native()
    with connected(server) as one:
        # The application answers only after it has read the whole content.
        one.send(POST + b"he")
        with connected(server) as other:
            assert other.get("/").body == b"hello"
            server.send_signal(signal.SIGTERM)
            assert other.is_closed()
        one.send(b"llo")
        response = one.response()
        assert (json.loads(response.body)["bytes"], response.get("connection")) == (5, "close")
        assert one.is_closed()
    assert server.wait_stopped() == 0


def test_requests_are_logged_and_malformed_ones_within_a_budget(start_native):
    server = start_native()
    with connected(server) as one:
        one.get("/missing/%61?b=c")
        server.wait_log(r'127\.0\.0\.1:\d+ - "GET /missing/a\?b=c HTTP/1\.1" 404')
    for _ in range(30):
        with connected(server) as one:
            one.send(b"GET / HTTP/1.1\r\n\r\n")
            assert one.response().status == 400
    while server.log().count('HTTP/1.1" 400') < 30:
        time.sleep(0.02)
    assert server.log().count("Invalid HTTP/1.1 request received: there is no host.") == 10


def test_a_proxy_names_the_client(start_native):
    server = start_native("--root-path", "/scope")
    with connected(server) as one:
        response = one.get("/a", "X-Forwarded-For: 192.0.2.7", "X-Forwarded-Proto: https")
    seen = json.loads(response.body)
    assert (seen["client"][0], seen["scheme"]) == ("192.0.2.7", "https")
    assert (seen["path"], seen["raw_path"]) == ("/scope/a", "/scope/a")
    assert seen["root_path"] == "/scope"


def test_a_unix_socket_has_a_path_and_no_client(backend, tmp_path):
    path = str(tmp_path / "socket")
    arguments = ("--uds", path, "--http", "native", "--no-http3", "--backend", backend)
    command = [sys.executable, "-m", "uringcore", APPLICATION, *arguments]
    with subprocess.Popen(bound(command), cwd=ROOT, env=environment()) as process:
        try:
            while True:
                with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                    with connected(None, path=path) as one:
                        seen = json.loads(one.get("/scope").body)
                    break
                assert process.poll() is None
        finally:
            process.terminate()
    assert (seen["client"], seen["server"]) == (None, [path, None])


def test_requests_wait_while_their_client_reads_no_responses(start_native):
    server = start_native(app=UNREAD)
    request = b"GET / HTTP/1.1\r\nHost: a\r\nx: " + LARGE + b"\r\n\r\n"
    count = 8000
    with connected(server) as one:
        sender = Sender(one.socket, request * count)
        sender.send()
        assert sender.left, "the server reads requests and keeps their responses"
        answered = 0
        rest = b""
        while answered < count:
            rest += sender.read()
            answered += rest.count(b"\r\n\r\n")
            rest = rest.rpartition(b"\r\n\r\n")[2]
        assert (answered, rest, len(sender.left)) == (count, b"", 0)


def test_a_request_whose_scope_cannot_be_made_ends_its_connection(start, backend, certificate):
    server = start(
        *("--http", "native", "--no-http3"),
        backend=backend,
        certificate=certificate,
        http3=False,
        app=APPLICATION_WITHOUT_SCOPE,
    )
    with connected(server, secure=True) as one:
        one.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert one.is_closed()
    assert "Exception in an HTTP/1.1 connection" in server.log()


def test_a_reset_just_before_the_end_of_a_response_is_no_error_of_the_application(
    start_native, tmp_path
):
    server = start_native(app=RESET_BEFORE_END)
    busy = tmp_path / "busy"
    with connected(server) as one:
        # The server leaves the content unread, so it would end only its sending direction.
        fields = ("Host: a", "Connection: close", "Content-Length: 2", "", "x")
        one.send("\r\n".join([f"POST /?{quote(str(busy))} HTTP/1.1", *fields]))
        assert one.response().body == b"hello"
        deadline = time.monotonic() + SECONDS
        while not busy.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        one.reset()
    busy.unlink()
    assert server.stop() == 0
    assert "Traceback" not in server.log()
