"""Fixtures of the HTTP tests: those of the server tests, which start it as a user would."""

from pathlib import Path

import pytest

from tests.server.conftest import backends, certificate, start
from tests.support.interpreter_roles import only_on_default

__all__ = ["certificate", "start"]


@pytest.fixture(scope="module", params=backends())
def backend(request):
    return request.param


def pytest_collection_modifyitems(items):
    """A client sees only the wire, which does not depend on the interpreter; those tests take
    minutes.
    """
    for folder in ("rfc", "hostile"):
        reason = "tests of the wire run on the default interpreter"
        only_on_default(items, Path(__file__).parent / folder, reason)
