"""TCP clients whose handshake completes while the server stops."""

import asyncio
import contextlib
import http.client
import io
import signal
import socket
import ssl
import time
import types

import pytest

import uringcore
from tests.server.application import app
from tests.server.conftest import backends, starting
from tests.server.harness import ForkedServer, until
from tests.support.free_ports import free_port
from uringcore.server import Config, Server

start = starting(ForkedServer)

pytestmark = pytest.mark.either_backend

NEVER = "600"
"""Seconds: a stop that takes the whole time-out fails the test."""

SECONDS_MAX = 40
"""Less than the 60 s that asyncio gives a TLS handshake."""

UNREAD_BYTES = 16 << 20
"""More than the kernel buffers for a client that does not read."""


class LateClient:
    """A TLS client that sends the last flight of its handshake only at `finish()`."""

    def __init__(self, server):
        trust = ssl.create_default_context(cafile=server.certificate)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = trust.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self._socket = socket.create_connection(("localhost", server.port), timeout=60)
        while True:
            try:
                self._tls.do_handshake()
                return
            except ssl.SSLWantReadError:
                self._send()
                self._incoming.write(self._socket.recv(65536))

    def finish(self):
        """Sends the last flight, which completes the server's handshake."""
        self._send()

    def write(self, data):
        self._tls.write(data)
        self._send()

    def read_all(self):
        """Reads until the server closes the connection."""
        found = b""
        while True:
            with contextlib.suppress(ssl.SSLWantReadError):
                data = self._tls.read(65536)
                if not data:
                    return found
                found += data
                continue
            received = self._socket.recv(65536)
            assert received, "no close_notify"
            self._incoming.write(received)

    def close(self):
        self._socket.close()

    def _send(self):
        self._socket.sendall(self._outgoing.read())


class Received:
    """Received bytes with a socket's `makefile`, for `http.client`."""

    def __init__(self, data):
        self._data = data

    def makefile(self, mode):
        return io.BytesIO(self._data)


@contextlib.contextmanager
def unread(server):
    """Prevents a server from stopping with an unread response, which is read when the block ends."""
    with server.http1() as connection:
        connection.request("GET", f"/flood/{UNREAD_BYTES}")
        response = connection.getresponse()
        yield
        assert len(response.read()) == UNREAD_BYTES


@pytest.fixture
def late(start, request):
    """Yields a client whose handshake completes after its server has begun to stop, and the server."""
    server = start("--timeout-graceful-shutdown", NEVER, backend=request.param)
    with unread(server), contextlib.closing(LateClient(server)) as client:
        server.send_signal()
        server.wait_log("Shutting down")
        client.finish()
        yield client
    assert server.wait_stopped(60) == 0


on_each_backend = pytest.mark.parametrize("late", backends(), indirect=True)


@on_each_backend
def test_a_handshake_that_was_under_way_gets_one_answer(late):
    """Otherwise a client with further requests could keep the server from stopping."""
    late.write(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
    response = http.client.HTTPResponse(Received(late.read_all()))
    response.begin()
    assert (response.status, response.read()) == (200, b"hello")
    assert response.getheader("connection") == "close"


@on_each_backend
def test_a_handshake_that_was_under_way_and_no_request_end_with_the_server(late):
    assert late.read_all() == b""


LOOPS = [*(("uringcore:new_event_loop", backend) for backend in backends()), ("asyncio", None)]


@pytest.fixture(params=LOOPS, ids=lambda loop: loop[1] or loop[0])
def stopping(start, request):
    """A server with ``NEVER`` to stop, whose application has answered."""
    loop, backend = request.param
    return start("--timeout-graceful-shutdown", NEVER, "--loop", loop, backend=backend)


@contextlib.contextmanager
def silent(server):
    """A client that is accepted, and sends nothing of its TLS handshake."""
    with socket.create_connection(("localhost", server.port), timeout=SECONDS_MAX) as sock:
        # A connection that is accepted later has its answer.
        with server.http1() as connection:
            connection.request("GET", "/")
            assert connection.getresponse().read() == b"hello"
        yield sock


def test_a_silent_client_does_not_keep_a_server_from_stopping(stopping):
    """From CPython 3.12 on it held the server for as long as a request may take."""
    with silent(stopping):
        stopping.send_signal()
        assert stopping.wait_stopped(SECONDS_MAX) == 0


def test_half_a_handshake_does_not_keep_a_server_from_stopping(stopping):
    with contextlib.closing(LateClient(stopping)):
        stopping.send_signal()
        assert stopping.wait_stopped(SECONDS_MAX) == 0


def test_a_silent_client_is_cut_off_while_another_one_has_its_response(stopping):
    with unread(stopping), silent(stopping) as sock:
        stopping.send_signal()
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(1) == b""
        assert stopping.process.poll() is None
    assert stopping.wait_stopped(60) == 0


def test_a_server_that_hands_over_waits_for_a_handshake_that_is_under_way(certificate, monkeypatch):
    """SIGHUP with `--workers` interrupts no client."""
    monkeypatch.setattr("uringcore.server._server.HAND_OVER_SECONDS_MIN", 0.0)
    names = dict(zip(("ssl_certfile", "ssl_keyfile"), certificate, strict=True))
    config = Config(app, port=0, log_config=None, timeout_keep_alive=600, **names)
    place = types.SimpleNamespace(certificate=certificate[0])

    async def main():
        server = Server(config)
        serving = asyncio.ensure_future(server.serve())
        await until(lambda: server.started)
        place.port = config.port
        client = await asyncio.to_thread(LateClient, place)
        server.retire()
        await until(lambda: not any(one.is_serving() for one in server.servers[:1]))
        await asyncio.wait([serving], timeout=1)
        assert not serving.done()
        client.finish()
        client.write(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        answer = await asyncio.to_thread(client.read_all)
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        client.close()
        await asyncio.wait_for(serving, 60)

    uringcore.run(main())


@pytest.mark.parametrize("option", [("--workers", "2"), ("--reload",)])
def test_clients_are_refused_while_the_processes_below_stop(start, option):
    """If the port stayed open until the last process ends, it would accept connections and never answer
    them.
    """
    metrics_port = free_port()
    metrics = ("--metrics-port", str(metrics_port))
    server = start(*option, *metrics, "--timeout-graceful-shutdown", NEVER)
    server.wait_listening()
    with unread(server):
        server.send_signal()
        deadline = time.monotonic() + 60
        # With --reload, the child process keeps the metrics port until it ends.
        ports = (server.port,) if "--reload" in option else (server.port, metrics_port)
        for port in ports:
            with pytest.raises(ConnectionRefusedError):
                while time.monotonic() < deadline:
                    socket.create_connection(("localhost", port), timeout=60).close()
                    time.sleep(0.05)
    assert server.wait_stopped(60) == 0


def test_two_interrupts_end_a_server_in_the_middle_of_a_handshake(start):
    """Regression on CPython 3.12 and later: a client that connected to the TLS port and sent nothing blocked
    the stop.
    """
    server = start("--timeout-graceful-shutdown", NEVER)
    with socket.create_connection(("localhost", server.port), timeout=60):
        with server.http1() as connection:
            connection.request("GET", "/")
            assert connection.getresponse().read() == b"hello"
        server.send_signal(signal.SIGINT)
        server.wait_log("Shutting down")
        server.send_signal(signal.SIGINT)
        server.wait_stopped(60)
