"""One server for all rules of a module, and on each backend."""

import pytest

from tests.http.hostile.attacked_server import VICTIM
from tests.server.harness import ForkedServer


@pytest.fixture(scope="module")
def server(backend, certificate, tmp_path_factory):
    """A server that survives every error of its clients and logs no error of its own code."""
    folder = tmp_path_factory.mktemp("rfc")
    running = ForkedServer(folder, certificate, "--no-access-log", backend=backend, app=VICTIM)
    yield running
    running.kill()
    running.check_log()
    assert "Traceback" not in running.log(), running.log()
