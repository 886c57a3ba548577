"""The limits of all clients together over native HTTP/1.1: connections, handshakes, and memory."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl

import pytest

from tests.http.http1.client import connected

pytestmark = pytest.mark.either_backend


@pytest.fixture(params=["tcp", "tls"])
def serve(request, start, certificate, backend):
    """Starts a server with further options."""
    secure = request.param == "tls"

    def start_server(*options):
        given = certificate if secure else (None, None)
        options = ("--http", "native", "--no-http3", *options)
        server = start(*options, backend=backend, certificate=given, http3=False)
        server.is_secure = secure
        return server

    return start_server


def is_served(server, **options):
    """Returns True if a new connection gets a response, and False if the server closes it at once."""
    try:
        with connected(server, secure=server.is_secure, **options) as one:
            return one.get("/").body == b"hello"
    except (ConnectionError, ssl.SSLError, AssertionError):
        return False


def wait_served(server, **options):
    while not is_served(server, **options):
        pass


def opened(server, stack, **options):
    """Returns a connection on which a request has been answered."""
    one = stack.enter_context(connected(server, secure=server.is_secure, **options))
    assert one.get("/").body == b"hello"
    return one


OTHER = {"source": "127.0.0.2"}
METRICS = ("--metrics-path", "/metrics")


def refused(server, limit, **options):
    """Returns the number of connections that were refused for a limit, from the server's metrics."""
    with connected(server, secure=server.is_secure, **options) as one:
        return refused_on(one, limit)


def refused_on(one, limit):
    """Returns what :func:`refused` returns, over an open connection."""
    text = one.get("/metrics").body.decode()
    family = "uringcore_tcp_connections_refused_total"
    counts = re.findall(rf'{family}\{{[^}}]*limit="(\w+)"[^}}]*}} (\d+)', text)
    assert {name for name, _ in counts} == {"connections", "address", "handshakes", "rate"}
    return int(dict(counts)[limit])


def test_the_connections_of_an_address_are_limited(serve):
    server = serve("--http3-max-connections-per-address", "2", *METRICS)
    with contextlib.ExitStack() as stack:
        first = opened(server, stack)
        opened(server, stack)
        assert not is_served(server)
        server.wait_log("refused: the limit of connections of one address is reached")
        assert refused(server, "address", **OTHER) == 1
        first.close()
        wait_served(server)


def test_the_connections_of_the_server_are_limited(serve):
    server = serve("--http3-max-connections", "2", *METRICS)
    with contextlib.ExitStack() as stack:
        first = opened(server, stack)
        second = opened(server, stack, **OTHER)
        assert not is_served(server, source="127.0.0.3")
        server.wait_log("refused: the limit of connections is reached")
        assert refused_on(second, "connections") == 1
        first.close()
        wait_served(server)


def test_the_rate_of_new_connections_is_limited(serve):
    server = serve("--http3-accept-rate", "0.001", "--http3-accept-burst", "2", *METRICS)
    assert is_served(server)
    with connected(server, secure=server.is_secure, **OTHER) as one:
        assert not is_served(server)
        server.wait_log("refused: the limit of new connections a second is reached")
        assert refused_on(one, "rate") == 1


def test_the_tls_handshakes_under_way_are_limited(start, certificate, backend):
    options = ("--http", "native", "--no-http3", "--http3-max-handshakes", "1")
    server = start(*options, backend=backend, certificate=certificate, http3=False)
    server.is_secure = True
    wait_served(server)
    with socket.create_connection(("127.0.0.1", server.port)):
        while is_served(server):
            pass
        server.wait_log("refused: the limit of handshakes is reached")
    wait_served(server)


def test_clients_that_read_nothing_cannot_use_up_the_memory(serve):
    """Each flooded connection holds some hundred KiB, so all of them together exceed the budget."""
    server = serve("--http3-memory", str(4 << 20))
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                one = stack.enter_context(connected(server, secure=server.is_secure))
                one.send(b"GET /flood/200000000 HTTP/1.1\r\nHost: a\r\n\r\n")
        server.wait_log("TCP connections were ended: their clients made the server hold too much")
        assert is_served(server, **OTHER)
    wait_served(server)


def test_clients_whose_requests_wait_cannot_use_up_the_memory(serve):
    """The application does not read. The server reads little of an address above its share of memory."""
    server = serve("--http3-memory", str(4 << 20))
    size = 10_000_000
    with contextlib.ExitStack() as stack:
        for _ in range(30):
            with contextlib.suppress(ConnectionError, ssl.SSLError, BlockingIOError):
                one = stack.enter_context(connected(server, secure=server.is_secure))
                one.send(f"POST /hold HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n")
                one.socket.setblocking(False)
                for _ in range(100):
                    one.socket.send(bytes(10_000))
        for _ in range(5):
            assert is_served(server, **OTHER)
    wait_served(server)


def test_options_without_effect_are_named(start, backend):
    options = ("--http", "native", "--no-http3", "--http3-max-connections", "5")
    options += (
        "--http3-max-sessions",
        "5",
        "--http3-retry-handshakes",
        "5",
        "--http3-accept-burst",
        "3",
    )
    server = start(*options, backend=backend, certificate=(None, None), http3=False)
    server.wait_log("--http3-max-sessions does nothing: HTTP/3 is off")
    server.wait_log("--http3-retry-handshakes does nothing: HTTP/3 is off")
    server.wait_log("--http3-accept-burst does nothing: there is no --http3-accept-rate")
    assert "--http3-max-connections does nothing" not in server.log()


def test_a_client_beyond_the_limit_of_concurrency_is_disconnected(start_native):
    """Its connection would count for the limit until the keep-alive time-out."""
    server = start_native("--limit-concurrency", "2")
    with connected(server), connected(server) as raw:
        response = raw.get("/")
        assert (response.status, response.get("connection")) == (503, "close")
        assert raw.is_closed()
