"""Fixtures of the HTTP tests: those of the server's, which start it as a user would."""

import pytest

from tests.server.conftest import backends, certificate, start
from tests.support.interpreter import is_default_interpreter

__all__ = ["certificate", "start"]


# Below the driver nothing knows the interpreter: the second backend is asked on the default one.
@pytest.fixture(scope="module", params=backends() if is_default_interpreter() else backends()[-1:])
def backend(request):
    return request.param
