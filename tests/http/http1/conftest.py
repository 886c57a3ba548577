"""Servers of the server tests' application with native HTTP/1.1, over TCP and over TLS."""

import pytest

from tests.http.http1.client import connected
from tests.http.tcp_server import running_server


@pytest.fixture(scope="module", params=["tcp", "tls"])
def server(request, backend, certificate, tmp_path_factory):
    """A server for a module's tests."""
    folder = tmp_path_factory.mktemp("http1")
    with running_server(request.param, folder, certificate, backend=backend) as running:
        yield running
    assert "Exception in an HTTP/1.1 connection" not in running.log()


@pytest.fixture
def raw(server):
    """A connection to ``server``."""
    with connected(server, secure=server.is_secure) as one:
        yield one


@pytest.fixture
def another(server):
    """Makes another connection to ``server``."""
    return lambda: connected(server, secure=server.is_secure)


@pytest.fixture
def start_native(start, backend):
    """Starts a server over TCP with further options."""

    def start_server(*options, app=None, **more):
        if app is not None:
            more["app"] = app
        options = ("--http", "native", "--no-http3", *options)
        return start(*options, backend=backend, certificate=(None, None), http3=False, **more)

    return start_server
