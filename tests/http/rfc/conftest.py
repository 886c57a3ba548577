"""One server for all of a module's rules, and on each backend."""

import pytest

from tests.http.hostile.siege import VICTIM
from tests.server.harness import Server


@pytest.fixture(scope="module")
def server(backend, certificate, tmp_path_factory):
    """A server that outlives every fault of its clients without a word of its own code's."""
    folder = tmp_path_factory.mktemp("rfc")
    running = Server(folder, certificate, "--no-access-log", backend=backend, app=VICTIM)
    yield running
    running.kill()
    running.check_log()
    assert "Traceback" not in running.log(), running.log()
