"""Fixtures of the HTTP tests: servers that are forked (tests/support/fork_server.py)."""

from pathlib import Path

import pytest

from tests.server.conftest import backends, certificate, starting
from tests.server.harness import ForkedServer
from tests.support.interpreter_roles import only_on_default

__all__ = ["certificate"]


@pytest.fixture(scope="module", params=backends())
def backend(request):
    return request.param


# These tests are about what a client sees after the start, which those of the server are about.
start = starting(ForkedServer)


def pytest_collection_modifyitems(items):
    """A client sees only the wire, which does not depend on the interpreter; those tests take
    minutes.
    """
    for folder in ("rfc", "hostile"):
        reason = "tests of the wire run on the default interpreter"
        only_on_default(items, Path(__file__).parent / folder, reason)
