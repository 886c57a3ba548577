"""`--proxy-protocol`: connections that begin with a header of version 1 or 2, over TCP and before TLS."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import struct

import pytest

from tests.http.http1.client import SECONDS, Raw
from tests.http.tcp_server import running_server
from tests.server.harness import Server, command

pytestmark = pytest.mark.either_backend

APPLICATION = "tests.http.web.application:app"
LINE = b"PROXY TCP4 192.0.2.7 198.51.100.9 40000 443\r\n"
SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
GET = b"GET /show HTTP/1.1\r\nHost: localhost\r\n\r\n"


def version_2(command, family, rest):
    return SIGNATURE + struct.pack("!BBH", command, family, len(rest)) + rest


IPV4 = (
    socket.inet_aton("192.0.2.7")
    + socket.inet_aton("198.51.100.9")
    + struct.pack("!HH", 40000, 443)
)
IPV6 = (
    socket.inet_pton(socket.AF_INET6, "2001:db8::7")
    + socket.inet_pton(socket.AF_INET6, "2001:db8::9")
    + struct.pack("!HH", 40000, 443)
)
EXTENSIONS = b"\x01\x00\x02h2" + b"\x20\x01\x00" + bytes(256)


class Proxied(Raw):
    """A connection that begins with `first`, before TLS if there is any."""

    def __init__(self, server, first, *, secure, pieces=False):
        self.socket = socket.create_connection(("127.0.0.1", server.port), SECONDS)
        self._received = b""
        for piece in [first[at : at + 1] for at in range(len(first))] if pieces else [first]:
            self.socket.sendall(piece)
        if secure:
            trust = ssl.create_default_context(cafile=server.certificate)
            self.socket = trust.wrap_socket(self.socket, server_hostname="localhost")


@pytest.fixture(scope="module", params=["native", "h11", "httptools"])
def http(request):
    return request.param


@pytest.fixture(scope="module", params=["tcp", "tls"])
def server(request, backend, certificate, tmp_path_factory, http):
    with running_server(
        request.param,
        tmp_path_factory.mktemp("proxied"),
        certificate,
        "--proxy-protocol",
        kind=Server,
        http=http,
        backend=backend,
        app=APPLICATION,
    ) as running:
        yield running
    assert "Traceback" not in running.log()


@pytest.fixture
def proxied(server):
    """Makes a connection with a header."""
    with contextlib.ExitStack() as stack:

        def connect(first, **options):
            one = Proxied(server, first, secure=server.is_secure, **options)
            stack.callback(one.close)
            return one

        yield connect


@pytest.mark.parametrize(
    ("first", "client", "address"),
    [
        (LINE, ["192.0.2.7", 40000], ["198.51.100.9", 443]),
        (
            b"PROXY TCP6 2001:db8::7 2001:db8::9 40000 443\r\n",
            ["2001:db8::7", 40000],
            ["2001:db8::9", 443],
        ),
        (version_2(0x21, 0x11, IPV4), ["192.0.2.7", 40000], ["198.51.100.9", 443]),
        (version_2(0x21, 0x11, IPV4 + EXTENSIONS), ["192.0.2.7", 40000], ["198.51.100.9", 443]),
        (version_2(0x21, 0x21, IPV6), ["2001:db8::7", 40000], ["2001:db8::9", 443]),
    ],
)
@pytest.mark.parametrize("pieces", [False, True])
def test_the_application_sees_the_client_of_the_proxy(
    server, proxied, first, client, address, pieces
):
    raw = proxied(first, pieces=pieces)
    for _ in range(2):
        seen = json.loads(raw.get("/show").body)
        assert (seen["client"], seen["server"]) == (client, address)
        assert seen["scheme"] == ("https" if server.is_secure else "http")
    server.wait_log(rf'{client[0]}:40000 - "GET /show')


@pytest.mark.parametrize(
    "first",
    [version_2(0x20, 0x11, IPV4), version_2(0x20, 0, b"")],
)
def test_connections_of_the_proxy_itself_have_the_addresses_of_the_socket(server, proxied, first):
    raw = proxied(first)
    seen = json.loads(raw.get("/show").body)
    assert seen["client"] == list(raw.socket.getsockname())
    assert seen["server"] == ["127.0.0.1", server.port]
    seen = json.loads(raw.get("/show", "X-Forwarded-For: 203.0.113.1").body)
    assert seen["client"][0] == "203.0.113.1"


@pytest.mark.parametrize(
    "first",
    [
        b"PROXY UNKNOWN\r\n",
        b"PROXY UNKNOWN ffff::1 ::1 1 2\r\n",
        version_2(0x21, 0, b"x"),
        version_2(0x21, 0x31, bytes(216)),
    ],
)
def test_a_client_without_an_address_is_not_trusted_as_the_proxy_is(server, proxied, first):
    raw = proxied(first)
    for fields in ([], ["X-Forwarded-For: 203.0.113.1", "X-Forwarded-Proto: wss"]):
        seen = json.loads(raw.get("/show", *fields).body)
        assert (seen["client"], seen["server"]) == (None, ["127.0.0.1", server.port])
        assert seen["scheme"] == ("https" if server.is_secure else "http")


def test_bytes_behind_the_header_are_not_lost(server, proxied):
    """The header, and the first bytes of TLS or HTTP, in one segment."""
    if not server.is_secure:
        raw = proxied(LINE + GET + GET)
        assert raw.response().status == raw.response().status == 200
        return
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    trust = ssl.create_default_context(cafile=server.certificate)
    tls = trust.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    with socket.create_connection(("127.0.0.1", server.port), SECONDS) as one:
        one.sendall(LINE + outgoing.read())
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                one.sendall(outgoing.read())
                incoming.write(one.recv(65536))
        tls.write(GET)
        one.sendall(outgoing.read())
        answer = b""
        while b'"192.0.2.7"' not in answer:
            incoming.write(one.recv(65536))
            with contextlib.suppress(ssl.SSLWantReadError):
                answer += tls.read()


@pytest.mark.parametrize(
    "first",
    [
        GET,
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"PROXY TCP4 1.2.3.4\r\n",
        b"PROXY " + b"x" * 200,
        version_2(0x31, 0x11, IPV4),
        version_2(0x21, 0x12, IPV4),
        version_2(0x21, 0x11, IPV4[:-1]),
        version_2(0x21, 0x11, IPV4 + b"\x01\xff\xff"),
        version_2(0x21, 0x11, IPV4 + bytes(20_000)),
    ],
)
def test_a_connection_without_a_valid_header_is_closed(server, first):
    with contextlib.closing(Proxied(server, first, secure=False)) as raw:
        with contextlib.suppress(ConnectionResetError):
            assert raw.rest() == b""


def test_forwarded_fields_of_an_untrusted_client_are_ignored(proxied):
    seen = json.loads(proxied(LINE).get("/show", "X-Forwarded-For: 203.0.113.1").body)
    assert seen["client"] == ["192.0.2.7", 40000]


def test_a_client_that_leaves_in_the_header_leaves_nothing(server, proxied):
    for _ in range(5):
        with contextlib.closing(Proxied(server, LINE[:10], secure=False)):
            pass
    assert proxied(LINE).get("/show").status == 200


def start_plain(start, backend, *options, http="native"):
    return start(
        *("--http", http, "--no-http3", "--proxy-protocol", *options),
        backend=backend,
        app=APPLICATION,
        certificate=(None, None),
        http3=False,
    )


def test_peers_that_are_no_proxies_are_refused(start, backend):
    server = start_plain(start, backend, "--forwarded-allow-ips", "192.0.2.0/24")
    with contextlib.closing(Proxied(server, LINE + GET, secure=False)) as raw:
        with contextlib.suppress(ConnectionResetError):
            assert raw.rest() == b""
    server.wait_log("A TCP connection was refused: the peer is not in --forwarded-allow-ips")


@pytest.mark.parametrize("http", ["native", "h11"])
def test_a_header_that_does_not_come_is_not_waited_for(start, backend, http):
    server = start_plain(start, backend, "--proxy-protocol-timeout", "0.2", http=http)
    for first in (b"", LINE[:-1]):
        with contextlib.closing(Proxied(server, first, secure=False)) as raw:
            assert raw.is_closed()
    server.wait_log("A TCP connection was refused: its header did not come in time")


def test_a_stop_does_not_wait_for_headers(start, backend):
    server = start_plain(start, backend, "--proxy-protocol-timeout", "600")
    with contextlib.closing(Proxied(server, LINE[:-1], secure=False)):
        assert server.stop() == 0


def test_another_loop_is_refused():
    ended = command(
        *("tests.server.application:app", "--proxy-protocol", "--loop", "asyncio"),
        *("--port", "0", "--no-http3"),
    )
    assert ended.returncode != 0
    assert "--proxy-protocol: needs uringcore's event loop" in ended.stderr
