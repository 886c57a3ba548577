"""The server raises its limit of open descriptors as far as the system permits."""

import resource
import sys

import pytest

from tests.server.harness import Server
from tests.support.interpreter_roles import is_default_interpreter
from uringcore.server._fd_limit_and_stdio import DESCRIPTORS_MAX

pytestmark = pytest.mark.skipif(
    not is_default_interpreter(), reason="the system's limit does not depend on the interpreter"
)

LIMITED = """
import resource, sys
from tests.server.application import app
from uringcore.server import Config, Server, run

_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
options = dict(port=0, ssl_certfile=sys.argv[1], ssl_keyfile=sys.argv[2])
{start}
"""
RUN = "run(app, **options)"
EMBEDDED = "Server(Config(app, **options)).run()"


@pytest.mark.parametrize(("start", "is_raised"), [(RUN, True), (EMBEDDED, False)])
def test_the_soft_limit_is_raised_where_the_process_is_the_server_s(
    certificate, tmp_path, start, is_raised
):
    server = Server(tmp_path, certificate, program=LIMITED.format(start=start))
    try:
        soft, hard = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        allowed = sys.maxsize if hard == resource.RLIM_INFINITY else hard
        assert soft == (min(allowed, DESCRIPTORS_MAX) if is_raised else 256)
        assert server.get("/").status == 200
    finally:
        server.stop()
