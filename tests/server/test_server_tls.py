"""TLS over TCP beside HTTP/3: the offered protocols, and client certificates."""

import socket
import ssl
import subprocess
import sys

import pytest

import uringcore
from tests.server.conftest import backends, starting
from tests.server.harness import ForkedServer, environment
from tests.support.handmade_certificates import self_signed
from uringcore.http3._unpooled_connection import connect
from uringcore.quic._errors import QuicConnectionError
from uringcore.quic.configuration import QuicConfiguration
from uringcore.server import Config, _native_tls
from uringcore.server._startup_errors import StartupError

start = starting(ForkedServer)

pytestmark = pytest.mark.either_backend

PROGRAM = """
import ssl, sys
from tests.server.application import app
from uringcore.server import Config, Server
{more}
Server(Config(app, port=0, ssl_certfile=sys.argv[1], ssl_keyfile=sys.argv[2], {options})).run()
"""

TWO_PROTOCOLS = """
from uvicorn.protocols.http.h11_impl import H11Protocol
class Two(H11Protocol):
    alpn_protocols = ["h2", "http/1.1"]
"""


def negotiated(server, *offered):
    """Returns the application protocol that the server chooses over TCP."""
    trust = ssl.create_default_context(cafile=server.certificate)
    trust.set_alpn_protocols(offered)
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        with trust.wrap_socket(sock, server_hostname="localhost") as secure:
            return secure.selected_alpn_protocol()


def test_server_and_config_by_uvicorns_names(start):
    server = start(program=PROGRAM.format(more="", options=""))
    assert server.get("/").content == b"hello"
    assert negotiated(server, "h2", "http/1.1") == "h2"
    assert server.stop() == 0


def test_a_development_certificate_of_a_program_is_removed(tmp_path):
    program = (
        "import os\n"
        "from uringcore.server import Config\n"
        "config = Config('a:b', dev_cert=True)\n"
        "assert os.listdir(os.environ['TMPDIR'])\n"
        "if os.fork() == 0:\n"
        "    raise SystemExit\n"
        "os.wait()\n"
        "print(os.listdir(os.environ['TMPDIR']))\n"
    )
    env = environment() | {"TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)
    assert "uringcore-dev-cert" in done.stdout, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_http_implementation_with_more_protocols_offers_them(start):
    """zttp does this with --http2."""
    server = start(program=PROGRAM.format(more=TWO_PROTOCOLS, options="http=Two"))
    assert negotiated(server, "h2", "http/1.1") == "h2"
    assert server.get("/").content == b"hello"


@pytest.mark.parametrize(
    ("body", "offered", "chosen"),
    [
        ("return default()", ["h2", "http/1.1"], "h2"),
        ("c = default(); c.set_alpn_protocols(['x', 'http/1.1']); return c", ["x"], "x"),
    ],
)
def test_a_programs_own_ssl_context_has_precedence(start, body, offered, chosen):
    more = f"def factory(config, default):\n    {body}\n"
    program = PROGRAM.format(more=more, options="ssl_context_factory=factory")
    server = start(program=program, http3=False)
    assert "HTTP/3 is off: it needs a certificate file, not an SSL context." in server.log()
    assert negotiated(server, *offered) == chosen


def get_with(server, identity):
    async def fetch():
        configuration = QuicConfiguration(alpn_protocols=["h3"], server_name="localhost")
        configuration.load_verify_locations(cafile=server.certificate)
        if identity is not None:
            configuration.load_cert_chain(*identity)
        async with connect(server.url, configuration=configuration) as client:
            return (await client.get("/")).status

    return uringcore.run(fetch())


@pytest.mark.parametrize("backend", backends())
@pytest.mark.parametrize("wanted", [ssl.CERT_OPTIONAL, ssl.CERT_REQUIRED])
@pytest.mark.parametrize("authority", [False, True])
def test_certificates_of_clients(start, tmp_path, backend, wanted, authority):
    """Self-signed certificates; ``openssl req -x509`` marks them as authorities, which OpenSSL accepts."""
    trusted = self_signed(tmp_path, "trusted", authority=authority).files
    stranger = self_signed(tmp_path, "stranger").files
    server = start(
        *("--ssl-cert-reqs", str(int(wanted)), "--ssl-ca-certs", trusted[0]), backend=backend
    )
    assert get_with(server, trusted) == 200
    with pytest.raises(QuicConnectionError):
        get_with(server, stranger)
    if wanted == ssl.CERT_OPTIONAL:
        assert get_with(server, None) == 200
    else:
        with pytest.raises(QuicConnectionError):
            get_with(server, None)


@pytest.mark.parametrize("wanted", [ssl.CERT_OPTIONAL, ssl.CERT_REQUIRED])
def test_certificates_of_clients_are_never_left_out_for_want_of_authorities(certificate, wanted):
    """The options are checked, and a program may change them afterwards."""
    made = Config(
        "tests.server.application:app",
        ssl_certfile=certificate[0],
        ssl_keyfile=certificate[1],
        ssl_ca_certs=certificate[0],
        ssl_cert_reqs=wanted,
        log_config=None,
    )
    made.load()
    made.ssl_ca_certs = None
    with pytest.raises(StartupError, match=f"--ssl-cert-reqs {int(wanted)} needs --ssl-ca-certs"):
        _native_tls.setup_or_none(made)
