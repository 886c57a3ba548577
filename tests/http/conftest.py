"""Fixtures of the HTTP tests: those of the server's, which start it as a user would."""

from pathlib import Path

import pytest

from tests.server.conftest import backends, certificate, start
from tests.support.interpreter import is_default_interpreter

__all__ = ["certificate", "start"]


@pytest.fixture(scope="module", params=backends())
def backend(request):
    return request.param


def pytest_collection_modifyitems(items):
    """What a client sees on the wire, minutes of it, is the same on every interpreter."""
    if is_default_interpreter():
        return
    here = Path(__file__).parent
    once = pytest.mark.skip(
        reason="rules and attacks on the wire are played on the default interpreter"
    )
    for item in items:
        if item.path.is_relative_to(here / "rfc") or item.path.is_relative_to(here / "hostile"):
            item.add_marker(once)
