"""Servers of the server tests' application with native HTTP/2, over TCP and over TLS."""

import pytest

from tests.http.http2.client import connected
from tests.http.tcp_server import running_server
from tests.server.harness import Server


@pytest.fixture(scope="module", params=["tcp", "tls"])
def server(request, backend, certificate, tmp_path_factory):
    """A server for a module's tests."""
    folder = tmp_path_factory.mktemp("http2")
    with running_server(
        request.param, folder, certificate, kind=Server, backend=backend
    ) as running:
        yield running
    assert "Exception in an HTTP/2 connection" not in running.log()


@pytest.fixture
def client(server):
    """A connection to ``server``."""
    with connected(server, secure=server.is_secure) as one:
        yield one


@pytest.fixture
def another(server):
    """Makes another connection to ``server``."""
    return lambda **options: connected(server, secure=server.is_secure, **options)


@pytest.fixture(params=["tcp", "tls"])
def start_native(request, start, backend, certificate):
    """Starts a server with further options."""
    secure = request.param == "tls"

    def start_server(*options, **more):
        given = certificate if secure else (None, None)
        options = ("--http", "native", "--no-http3", *options)
        server = start(*options, backend=backend, certificate=given, http3=False, **more)
        server.is_secure = secure
        return server

    return start_server
