"""The server behind real nginx and HAProxy: requests, WebSockets, clients that disconnect, and stops."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import signal
import socket
import threading
import time

import pytest

from tests.http.http1 import client as raw_client
from tests.http.http2 import client as http2
from tests.http.http2 import grpc_calls
from tests.http.proxies.reverse_proxies import FRONTS, GRPC, PROXIED, fronting
from tests.server.harness import ForkedServer, Server
from tests.support.interpreter_roles import is_default_interpreter

connect_websocket = pytest.importorskip("websockets.sync.client").connect

pytestmark = [
    pytest.mark.wire,
    pytest.mark.skipif(
        not is_default_interpreter(), reason="proxies do not depend on the interpreter"
    ),
]

MIB = 1 << 20
WAIT_SECONDS = 40.0
WORKERS = 2
PAUSE_SECONDS = 0.005
"""Between the requests of a client: the new processes need the processor as well."""


def start_server(kind, folder, certificate, backend, *options, server=ForkedServer, **more):
    folder.mkdir(exist_ok=True)
    secure = kind.secure
    return server(
        folder,
        certificate if secure else (None, None),
        *("--http", "native", "--no-http3", *options),
        backend=backend,
        http3=False,
        **more,
    )


@pytest.fixture(scope="module", params=FRONTS.values(), ids=list(FRONTS))
def front(request, backend, certificate, tmp_path_factory):
    """A proxy in front of one server."""
    folder = tmp_path_factory.mktemp("front")
    server = start_server(request.param, folder, certificate, backend)
    with fronting(request.param, folder, [server.port], certificate[0]) as running:
        yield running
    assert server.stop() == 0
    server.check_log()
    # The application's exceptions are logged as such.
    assert "Exception in an HTTP" not in server.log()


@contextlib.contextmanager
def http1(front, source="127.0.0.1"):
    connection = http.client.HTTPConnection(
        "127.0.0.1", front.port, timeout=WAIT_SECONDS, source_address=(source, 0)
    )
    with contextlib.closing(connection):
        yield connection


def ask(connection, path, method="GET", **options):
    connection.request(method, path, **options)
    response = connection.getresponse()
    body = response.read()
    assert response.status == 200, body
    return body


def progress(front):
    with http1(front) as connection:
        return json.loads(ask(connection, "/progress"))


def eventually(condition):
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_connections_to_the_server_are_kept(front):
    peers = set()
    with http1(front) as connection:
        for _ in range(200):
            shown = json.loads(ask(connection, "/scope"))
            assert shown["http_version"] == front.kind.http
            peers.add(tuple(shown["client"]))
    assert len(peers) <= 2


def test_uploads_and_downloads_are_whole(front):
    content = bytes(range(256)) * (20 * MIB // 256)
    digest = hashlib.sha256(content).hexdigest()
    with http1(front) as connection:
        for body in (content, iter([content[:MIB], content[MIB:]])):
            told = json.loads(ask(connection, "/upload", "POST", body=body))
            assert (told["bytes"], told["sha256"]) == (len(content), digest)
        received = ask(connection, f"/flood/{len(content)}")
        assert hashlib.sha256(received).hexdigest() == digest
        assert ask(connection, "/echo", "POST", body=content[:MIB]) == content[:MIB]


def test_many_requests_at_once(front):
    if front.kind.program != "haproxy":
        pytest.skip("nginx has no HTTP/2 to its clients without TLS and HTTP/1.1 on one port")
    with http2.connected(front) as client:
        streams = [client.begin(f"/burst/{size}") for size in range(0, 200_000, 4000)]
        sizes = [len(client.response(stream).body) for stream in streams]
    assert sizes == list(range(0, 200_000, 4000))


def test_websocket_messages_come_back(front):
    if front.kind.websocket is None:
        pytest.skip("nginx passes no WebSocket on over HTTP/2")
    with connect_websocket(
        f"ws://127.0.0.1:{front.port}/", max_size=None, open_timeout=WAIT_SECONDS
    ) as one:
        for size in (0, 1, 125, 70_000, MIB):
            for text in ("a" * size, "é" * (size // 2)):
                one.send(text)
                assert one.recv(WAIT_SECONDS) == text
        one.close(3001, "done")


def test_a_websocket_whose_client_vanishes_ends(front):
    if front.kind.websocket is None:
        pytest.skip("nginx passes no WebSocket on over HTTP/2")
    for _ in range(3):
        with connect_websocket(f"ws://127.0.0.1:{front.port}/", open_timeout=WAIT_SECONDS) as one:
            one.send("text")
            assert one.recv(WAIT_SECONDS) == "text"
            one.socket.shutdown(socket.SHUT_RDWR)
    with http1(front) as connection:
        assert ask(connection, "/") == b"hello"


def test_the_application_gets_the_disconnect_of_a_client(front):
    events = progress(front)["events"]
    with http1(front) as connection:
        connection.request("GET", "/wait-disconnect")
        eventually(lambda: progress(front)["events"] == [*events, "waiting"])
    eventually(lambda: progress(front)["events"] == [*events, "waiting", "disconnected"])


def test_clients_that_leave_do_not_disturb_others(front):
    """The proxy resets a stream of a shared HTTP/2 connection, or closes an HTTP/1.1 connection."""
    with http1(front) as other:
        for _ in range(5):
            with http1(front) as connection:
                connection.request("GET", f"/flood/{200 * MIB}")
                connection.getresponse().read(100_000)
            with http1(front) as connection:
                connection.putrequest("POST", "/upload")
                connection.putheader("content-length", "1000000")
                connection.endheaders(b"some of it")
            assert ask(other, "/") == b"hello"
    # The application is not called again, and does not wait for a client that has left.
    eventually(lambda: progress(front)["flooded"] == progress(front)["flooded"])


def test_interim_responses_trailers_and_empty_responses_pass(front):
    with raw_client.connected(front) as raw:
        assert raw.get("/hints").body == b"hinted"
    with http1(front) as connection:
        assert ask(connection, "/trailers") == b"body"
        connection.request("GET", "/no-content")
        response = connection.getresponse()
        assert (response.status, response.read()) == (204, b"")
        connection.request("HEAD", "/burst/5")
        response = connection.getresponse()
        assert (response.status, response.read()) == (200, b"")
        assert response.getheader("content-length") == "5"


def test_a_failing_application_is_a_500_or_a_cut_response(front):
    with http1(front) as connection:
        connection.request("GET", "/raises")
        response = connection.getresponse()
        assert (response.status, response.read()) == (500, b"Internal Server Error")
        assert ask(connection, "/") == b"hello"
    with http1(front) as connection:
        connection.request("GET", "/raises-midway")
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            connection.getresponse().read()


class Load:
    """Clients in threads, each with one request after the other until the end of the block."""

    def __init__(self, front, clients=4, posts=False):
        self.answered, self.failed = 0, []
        self._front, self._posts = front, posts
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(clients)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc):
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _run(self):
        number = 0
        while not self._is_over.is_set():
            number += 1
            try:
                with http1(self._front) as connection:
                    for _ in range(20):
                        self._once(connection, number)
                        time.sleep(PAUSE_SECONDS)
            except (OSError, http.client.HTTPException, AssertionError) as error:
                self.failed.append(repr(error))

    def _once(self, connection, number):
        if self._posts:
            told = json.loads(ask(connection, "/upload", "POST", body=bytes(number * 1000)))
            assert told["bytes"] == number * 1000
        else:
            assert len(ask(connection, f"/flood/{number * 1000}")) == number * 1000
        self.answered += 1

    def more(self):
        """Waits until some more requests are answered."""
        goal = self.answered + 100
        eventually(lambda: self.answered >= goal)


# A server that closes an idle HTTP/1.1 connection may meet a request on its way. Proxies repeat requests
# of idempotent methods alone (RFC 9110 section 9.2.2). HTTP/2 has GOAWAY for that: no request is lost.
LOADS = [
    pytest.param(kind, posts, id=f"{name}, {'POST' if posts else 'GET'}")
    for name, kind in FRONTS.items()
    for posts in ([False, True])
]


@pytest.mark.parametrize(("kind", "posts"), LOADS)
def test_nothing_is_lost_when_one_of_two_servers_stops(kind, posts, backend, certificate, tmp_path):
    first, second = (
        start_server(kind, tmp_path / name, certificate, backend) for name in ("one", "two")
    )
    with contextlib.ExitStack() as stack:
        for server in (first, second):
            stack.callback(server.kill)
        ports = [first.port, second.port]
        front = stack.enter_context(fronting(kind, tmp_path, ports, certificate[0]))
        with http1(front) as slow, Load(front, posts=posts) as load:
            load.more()
            slow.request("GET", "/sleep/2")
            response = slow.getresponse()
            first.send_signal(signal.SIGTERM)
            assert first.wait_stopped() == 0
            assert response.read() == b"first last"
            load.more()
        assert load.failed == []
        assert second.stop() == 0
    for server in (first, second):
        server.check_log()
        assert "Traceback" not in server.log()


@pytest.mark.parametrize(("kind", "posts"), LOADS)
def test_nothing_is_lost_when_workers_are_replaced(kind, posts, backend, certificate, tmp_path):
    server = start_server(
        kind, tmp_path, certificate, backend, "--workers", str(WORKERS), server=Server
    )
    with contextlib.ExitStack() as stack:
        stack.callback(server.kill)
        server.wait_listening()
        front = stack.enter_context(fronting(kind, tmp_path, [server.port], certificate[0]))
        with Load(front, posts=posts) as load:
            load.more()
            server.send_signal(signal.SIGHUP)
            eventually(lambda: server.log().count("Finished server process") == WORKERS)
            load.more()
        assert load.failed == []
        assert server.stop() == 0
    server.check_log()
    assert "Traceback" not in server.log()


@pytest.fixture(scope="module", params=PROXIED.values(), ids=list(PROXIED))
def proxied(request, backend, certificate, tmp_path_factory):
    """HAProxy, whose connections begin with a header of the PROXY protocol."""
    folder = tmp_path_factory.mktemp("proxied")
    server = start_server(request.param, folder, certificate, backend, "--proxy-protocol")
    with fronting(request.param, folder, [server.port], certificate[0]) as running:
        yield running
    assert server.stop() == 0
    server.check_log()
    assert "Traceback" not in server.log()


def test_the_header_of_the_proxy_names_the_client(proxied):
    for source in ("127.0.0.2", "127.0.0.3"):
        with http1(proxied, source) as connection:
            connection.connect()
            address = list(connection.sock.getsockname())
            for _ in range(3):
                shown = json.loads(ask(connection, "/scope"))
                assert shown["client"] == address
                assert shown["server"] == ["127.0.0.1", proxied.port]
                assert shown["http_version"] == proxied.kind.http
            told = json.loads(ask(connection, "/upload", "POST", body=bytes(5 * MIB)))
            assert told["bytes"] == 5 * MIB
    with connect_websocket(f"ws://127.0.0.1:{proxied.port}/", open_timeout=WAIT_SECONDS) as one:
        one.send("text")
        assert one.recv(WAIT_SECONDS) == "text"


@pytest.mark.parametrize("kind", GRPC.values(), ids=list(GRPC))
@pytest.mark.parametrize("calls", grpc_calls.CALLS)
def test_grpc(kind, calls, backend, certificate, tmp_path):
    application = "tests.http.http2.grpc_application:app"
    server = start_server(kind, tmp_path, certificate, backend, app=application)
    with fronting(kind, tmp_path, [server.port], certificate[0]) as front:
        grpc_calls.call(front, calls)
    assert server.stop() == 0
    assert "Traceback" not in server.log()
