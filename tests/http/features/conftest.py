"""One server for a module's tests, and on each backend."""

import json

import pytest

from tests.server.harness import ForkedServer

APPLICATION = "tests.http.features.application:app"


@pytest.fixture(scope="module")
def server(backend, certificate, tmp_path_factory):
    """A server of the features' application."""
    running = ForkedServer(
        tmp_path_factory.mktemp("features"), certificate, backend=backend, app=APPLICATION
    )
    yield running
    running.kill()
    running.check_log()


@pytest.fixture
def start_features(start, backend):
    """Starts a server with these options."""

    def start_server(*options, **more):
        return start(*options, backend=backend, app=APPLICATION, **more)

    return start_server


def events(server, name):
    """Returns the application's events under this name."""
    return json.loads(server.get(f"/events/{name}").content)
