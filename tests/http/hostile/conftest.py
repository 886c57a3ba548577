"""A server for each attack: one attack must not affect the next."""

import pytest

from tests.http.hostile.attacked_server import VICTIM


@pytest.fixture
def besiege(start, backend):
    """Starts a server with these options; lines of its log are errors, not requests."""

    def start_server(*options):
        return start(*options, "--no-access-log", backend=backend, app=VICTIM)

    return start_server


@pytest.fixture
def besiege_native(besiege):
    """Starts a server with native HTTP/1.1 and HTTP/2 beside HTTP/3."""
    return lambda *options: besiege("--http", "native", *options)
