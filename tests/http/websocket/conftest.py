"""One server that echoes, over HTTP/1.1, HTTP/2 and HTTP/3, and on each backend."""

import pytest

from tests.server.harness import ForkedServer

APPLICATION = "tests.http.websocket.echo_application:app"


@pytest.fixture(scope="module")
def server(backend, certificate, tmp_path_factory):
    """A server for a module's tests."""
    running = ForkedServer(
        tmp_path_factory.mktemp("websocket"),
        certificate,
        *("--http", "native"),
        backend=backend,
        app=APPLICATION,
    )
    yield running
    running.kill()
    running.check_log()
    assert "Exception in" not in running.log()
