"""TLS of native HTTP by rustls: real clients, resumption, client certificates, and clients that break off."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable

import pytest

from tests.server.harness import command
from tests.support.certificates import make
from uringcore.devcert import DevelopmentCertificate

SECONDS = 30.0
TLS_1_2, TLS_1_3 = 0x0303, 0x0304
ALERT = 0x15


def settled(value: Callable[[], int]) -> int:
    """Returns the value once it has not changed for a while."""
    deadline = time.monotonic() + 30
    before, since = value(), time.monotonic()
    while time.monotonic() - since < 0.3:
        assert time.monotonic() < deadline
        time.sleep(0.05)
        if (now := value()) != before:
            before, since = now, time.monotonic()
    return before


@pytest.fixture
def start_tls(start, backend, certificate):
    """Starts a server with TLS and further options."""

    def start_server(*options, **more):
        more.setdefault("certificate", certificate)
        options = ("--http", "native", "--no-http3", *options)
        return start(*options, backend=backend, http3=False, **more)

    return start_server


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    return make(tmp_path_factory.mktemp("pki"))


def context_for(server, version=None, alpn=(), identity=None):
    """Returns a client's context that trusts the server."""
    context = ssl.create_default_context(cafile=server.certificate)
    if version is not None:
        context.minimum_version = context.maximum_version = version
    if alpn:
        context.set_alpn_protocols(alpn)
    if identity is not None:
        context.load_cert_chain(*identity.files)
    return context


@contextlib.contextmanager
def connected(server, context, session=None):
    with socket.create_connection(("127.0.0.1", server.port), SECONDS) as sock:
        with context.wrap_socket(sock, server_hostname="localhost", session=session) as secure:
            yield secure


def get(secure, path="/", *, last=True):
    """Makes one request, and returns the content of its response."""
    fields = "Connection: close\r\n" if last else ""
    secure.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n".encode())
    received = b""
    while b"\r\n\r\n" not in received:
        received += secure.recv(65536)
    head, _, content = received.partition(b"\r\n\r\n")
    length = int(re.search(rb"content-length: (\d+)", head)[1])
    while len(content) < length:
        content += secure.recv(65536)
    return content


def extension(server, context, session=None):
    """Returns ASGI's ``tls`` extension for a new connection, and the session of that."""
    with connected(server, context, session) as secure:
        told = json.loads(get(secure, "/scope"))["extensions"]["tls"]
        return told, secure.session, secure.session_reused


@pytest.mark.parametrize(
    ("version", "number"),
    [(ssl.TLSVersion.TLSv1_2, TLS_1_2), (ssl.TLSVersion.TLSv1_3, TLS_1_3)],
)
def test_both_versions_are_served_and_resumed(start_tls, version, number):
    server = start_tls()
    context = context_for(server, version)
    told, session, was_reused = extension(server, context)
    assert not was_reused
    with open(server.certificate) as file:
        assert told.pop("server_cert") == file.read()
    assert told.pop("cipher_suite") in (0x1301, 0xC02B)
    assert told == {
        "client_cert_chain": [],
        "client_cert_name": None,
        "client_cert_error": None,
        "tls_version": number,
    }
    _, session, was_reused = extension(server, context, session)
    assert was_reused
    assert extension(server, context, session)[2]


def test_sessions_are_resumed_by_every_worker_and_after_a_renewal(start, backend, tmp_path):
    files = DevelopmentCertificate.make().write(tmp_path)
    server = start(
        *("--http", "native", "--no-http3", "--workers", "2"),
        backend=backend,
        certificate=files,
        http3=False,
        app="tests.server.worker_application:app",
    )
    server.wait_listening()
    context = context_for(server, ssl.TLSVersion.TLSv1_2)
    with connected(server, context) as secure:
        session = secure.session
    for _ in range(8):
        with connected(server, context, session) as secure:
            assert secure.session_reused


def test_a_client_without_a_common_application_protocol_gets_the_alert(start_tls):
    server = start_tls()
    with pytest.raises(ssl.SSLError, match="(?i)no.application.protocol"):
        with connected(server, context_for(server, alpn=["spdy/3"])):
            pass
    for offered, chosen in (["h2", "http/1.1"], "h2"), (["http/1.1"], "http/1.1"), ([], None):
        with connected(server, context_for(server, alpn=offered)) as secure:
            assert secure.selected_alpn_protocol() == chosen


@pytest.mark.parametrize("demand", [ssl.CERT_OPTIONAL, ssl.CERT_REQUIRED])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_client_certificates_are_verified_and_shown(start_tls, pki, demand, version):
    server = start_tls(
        *("--ssl-cert-reqs", str(int(demand)), "--ssl-ca-certs", str(pki.authority.certfile)),
        certificate=pki.server.files,
    )
    server.certificate = str(pki.authority.certfile)
    context = context_for(server, version, identity=pki.client)
    told, session, _ = extension(server, context)
    # A client of OpenSSL adds the authority if it trusts that.
    assert told["client_cert_chain"][0].strip() == pki.client.pem.decode().strip()
    assert told["client_cert_name"] == "CN=uringcore test client,OU=tests,O=uringcore"
    resumed, _, was_reused = extension(server, context, session)
    assert was_reused
    assert resumed == told
    refused = [context_for(server, version, identity=pki.stranger)]
    anonymous = context_for(server, version)
    if demand == ssl.CERT_OPTIONAL:
        assert extension(server, anonymous)[0]["client_cert_chain"] == []
    else:
        refused.append(anonymous)
    for context in refused:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            extension(server, context)


def test_tickets_of_a_server_without_client_certificates_open_no_other(start_tls, pki, tmp_path):
    """Both servers have one key, and the client of the second one needs a certificate."""
    key = tmp_path / "key"
    key.write_bytes(os.urandom(64))
    key.chmod(0o600)
    options = ("--http3-token-key", str(key))
    lenient = start_tls(*options, certificate=pki.server.files)
    lenient.certificate = str(pki.authority.certfile)
    context = context_for(lenient, ssl.TLSVersion.TLSv1_2)
    _, session, _ = extension(lenient, context)
    lenient.stop()
    again = start_tls(*options, certificate=pki.server.files)
    again.certificate = lenient.certificate
    assert extension(again, context, session)[2]
    again.stop()
    strict = start_tls(
        *options,
        *("--ssl-cert-reqs", "2", "--ssl-ca-certs", str(pki.authority.certfile)),
        certificate=pki.server.files,
    )
    with pytest.raises((ssl.SSLError, ConnectionError)):
        extension(strict, context, session)


def test_a_large_response_waits_for_its_client_and_is_complete(start_tls, tmp_path):
    """A response in one piece of 64 MiB is encrypted as the client reads it."""
    app = tmp_path / "large.py"
    app.write_text(
        "BODY = bytes(range(256)) * (1 << 18)\n"
        "async def app(scope, receive, send):\n"
        "    if scope['type'] != 'http':\n"
        "        return\n"
        "    length = [(b'content-length', str(len(BODY)).encode())]\n"
        "    await send({'type': 'http.response.start', 'status': 200, 'headers': length})\n"
        "    await send({'type': 'http.response.body', 'body': BODY})\n"
    )
    server = start_tls("--app-dir", str(tmp_path), app="large:app")
    with connected(server, context_for(server)) as secure:
        secure.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        held = settled(server.resident_bytes)
        received, size = b"", 0
        while size < 64 << 20:
            piece = secure.recv(1 << 20)
            assert piece
            received = (received + piece)[-300:]
            size += len(piece)
    assert received[-256:] == bytes(range(256))
    # Without the pause the records of the whole response would be in memory beside it.
    assert held < 200 << 20


def read_record(sock):
    """Returns the type and the content of the server's next record; ``None`` at the end of the stream."""
    header = receive_exactly(sock, 5)
    if header is None:
        return None
    return header[0], receive_exactly(sock, int.from_bytes(header[3:], "big"))


def receive_exactly(sock, size):
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        if not piece:
            return None
        data += piece
    return data


def raw(server):
    return socket.create_connection(("127.0.0.1", server.port), SECONDS)


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00",
        b"\x80\x2e\x01\x03\x01",
        bytes(1024),
    ],
    ids=["http", "http2", "server-hello", "ssl2", "zeros"],
)
def test_input_that_is_no_client_hello_gets_an_alert_and_the_end(start_tls, garbage):
    server = start_tls()
    with raw(server) as sock:
        sock.sendall(garbage)
        kind, content = read_record(sock)
        assert kind == ALERT
        assert content[0] == 2
        assert sock.recv(100) == b""
    with connected(server, context_for(server)) as secure:
        assert get(secure) == b"hello"


def handshake_record(content):
    return b"\x16\x03\x01" + len(content).to_bytes(2, "big") + content


@pytest.mark.parametrize(
    "broken",
    [
        handshake_record(b"\x01\x01\x00\x00"),
        handshake_record(b"\x01\x00\x02\x00\x03\x03") + b"\x17\x03\x03\x00\x01\x00",
        handshake_record(b"\x01\x00\xf0\x00\x03\x03" + bytes(15000))
        + handshake_record(bytes(15000)),
        handshake_record(b"\x01\x00\x00\x01\x00" + b"\x01\x00\x00\x01\x00"),
    ],
    ids=["too-long-message", "another-type-inside-a-message", "too-long-hello", "two-messages"],
)
def test_a_handshake_that_fails_inside_its_bytes_ends_one_connection(start_tls, broken):
    """What rustls remembers of a message must not outlive the bytes."""
    server = start_tls()
    with raw(server) as sock:
        sock.sendall(broken)
        with contextlib.suppress(ConnectionResetError):
            while sock.recv(1000):
                pass
    with connected(server, context_for(server)) as secure:
        assert get(secure) == b"hello"
    assert "panicked" not in server.log()
    assert "Traceback" not in server.log()


UNFINISHED_HELLO = handshake_record(b"\x01\x00\xff\x00" + bytes(15_000)) + 3 * handshake_record(
    bytes(15_000)
)
"""A part of a ClientHello, which a server that accepts client certificates stores."""


def test_bytes_of_unfinished_handshakes_count_for_the_memory_of_all_clients(start_tls, pki):
    server = start_tls(
        *("--ssl-cert-reqs", "1", "--ssl-ca-certs", str(pki.authority.certfile)),
        *("--http3-memory", str(8 << 20)),
        certificate=pki.server.files,
    )
    server.certificate = str(pki.authority.certfile)
    with contextlib.ExitStack() as stack:
        # The connections themselves have room, but not their bytes: 120 times 60 KiB.
        for address in ("127.0.0.1", "127.1.0.1", "127.2.0.1"):
            for _ in range(40):
                place = ("127.0.0.1", server.port)
                sock = socket.create_connection(place, SECONDS, source_address=(address, 0))
                stack.enter_context(sock)
                sock.sendall(UNFINISHED_HELLO)
        server.wait_log("TCP connections were ended: their clients made the server hold too much")
        with connected(server, context_for(server)) as secure:
            assert get(secure) == b"hello"


def test_a_protocol_that_cannot_begin_ends_the_connection_with_a_report(start_tls):
    server = start_tls(app="tests.http.failing_connection_made:app")
    for number, error in enumerate(("RuntimeError", "ConnectionError"), 1):
        with contextlib.suppress(ConnectionResetError, ssl.SSLEOFError):
            with connected(server, context_for(server)) as secure:
                assert secure.recv(100) == b""
        # The loop's exception handler writes this, also for errors that are usual in a network.
        report = r"Exception in protocol.connection_made\(\)"
        server.wait_log(rf"(?s)({report}.*){{{number}}}{error}: there is no protocol")
    with connected(server, context_for(server)) as secure:
        secure.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert secure.recv(100).startswith(b"HTTP/1.1 204")


def test_records_may_arrive_byte_by_byte(start_tls):
    server = start_tls()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context_for(server).wrap_bio(incoming, outgoing, server_hostname="localhost")

    with raw(server) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def exchange(step):
            while True:
                try:
                    return step()
                except ssl.SSLWantReadError:
                    for byte in outgoing.read():
                        sock.sendall(bytes([byte]))
                    incoming.write(sock.recv(65536))

        exchange(client.do_handshake)
        client.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert exchange(lambda: client.read(65536)).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("part", [0, 3, 100])
def test_a_slow_handshake_is_ended(start_tls, part):
    server = start_tls("--http3-handshake-timeout", "1")
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context_for(server).wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    hello = outgoing.read()
    began = time.monotonic()
    with raw(server) as sock:
        sock.sendall(hello[:part])
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(100) == b""
    assert time.monotonic() - began > 0.9


def test_clients_that_disappear_leave_nothing(start_tls):
    server = start_tls("--metrics-path", "/metrics")
    context = context_for(server)
    for size in (0, 50, 5000):
        for _ in range(10):
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
            with contextlib.suppress(ssl.SSLWantReadError):
                client.do_handshake()
            with raw(server) as sock:
                sock.sendall(outgoing.read()[:size])
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    deadline = time.monotonic() + SECONDS
    while True:
        with connected(server, context) as secure:
            text = get(secure, "/metrics").decode()
        found = re.search(r"uringcore_tcp_connections(?:\{[^}]*\})? (\d+)", text)
        if found is None or int(found[1]) <= 1 or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    assert found is None or int(found[1]) <= 1


def test_a_corrupt_record_ends_the_connection_with_an_alert(start_tls):
    server = start_tls()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = context_for(server, ssl.TLSVersion.TLSv1_2)
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with raw(server) as sock:
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                sock.sendall(outgoing.read())
                incoming.write(sock.recv(65536))
        sock.sendall(outgoing.read())
        client.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        record = bytearray(outgoing.read())
        record[-1] ^= 1
        sock.sendall(record)
        kind, _ = read_record(sock)
        assert kind == ALERT
        assert sock.recv(100) == b""


def test_both_sides_send_close_notify(start_tls):
    server = start_tls()
    for last in (True, False):
        with connected(server, context_for(server)) as secure:
            assert get(secure, last=last) == b"hello"
            if last:
                # The end of the stream without close_notify would raise SSLEOFError.
                assert secure.recv(100) == b""
            secure.unwrap()


def test_a_client_that_ends_its_direction_is_answered_with_close_notify(start_tls):
    """The TCP connection ends without close_notify."""
    server = start_tls()
    with connected(server, context_for(server)) as secure:
        assert get(secure, last=False) == b"hello"
        socket.socket.shutdown(secure, socket.SHUT_WR)
        assert secure.recv(100) == b""


def test_the_certificate_is_renewed_under_load(start_tls, tmp_path):
    files = DevelopmentCertificate.make().write(tmp_path)
    server = start_tls(certificate=files)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    shown, faults, is_over = set(), [], threading.Event()

    def load():
        while not is_over.is_set():
            try:
                with connected(server, context) as secure:
                    shown.add(secure.getpeercert(binary_form=True))
                    assert get(secure) == b"hello"
            except (OSError, AssertionError) as fault:
                faults.append(fault)

    threads = [threading.Thread(target=load) for _ in range(3)]
    for thread in threads:
        thread.start()
    with connected(server, context) as kept:
        fresh = tmp_path / "fresh"
        fresh.mkdir()
        for source, path in zip(DevelopmentCertificate.make().write(fresh), files, strict=True):
            os.replace(source, path)
        server.send_signal(signal.SIGHUP)
        server.wait_log("Certificate reloaded from")
        with open(files[0]) as file:
            wanted = ssl.PEM_cert_to_DER_cert(file.read())
        deadline = time.monotonic() + SECONDS
        while wanted not in shown and time.monotonic() < deadline:
            time.sleep(0.05)
        is_over.set()
        for thread in threads:
            thread.join()
        assert get(kept) == b"hello"
    assert faults == []
    assert wanted in shown


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("version", ["--http1.1", "--http2"])
def test_curl(start_tls, version):
    server = start_tls()
    address = ["--resolve", f"localhost:{server.port}:127.0.0.1"]
    done = subprocess.run(
        [
            *("curl", "-sS", version, "--cacert", server.certificate, *address),
            *(f"https://localhost:{server.port}/", "-w", " %{http_version}"),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == f"hello {version.removeprefix('--http')}", done.stderr


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_openssl_reconnects_with_a_session(start_tls, tmp_path, version):
    server = start_tls()
    session = tmp_path / "session"

    def connect(*options):
        return subprocess.run(
            [
                *("openssl", "s_client", "-connect", f"127.0.0.1:{server.port}", version),
                *("-servername", "localhost", "-CAfile", server.certificate, "-ign_eof", *options),
            ],
            input="GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
            capture_output=True,
            text=True,
            timeout=60,
        ).stdout

    first = connect("-sess_out", str(session))
    assert "Verify return code: 0" in first
    assert "hello" in first
    assert "\nReused, " in connect("-sess_in", str(session))
    assert "Secure Renegotiation IS" in first


def test_options_that_rustls_cannot_express_use_openssl(start_tls):
    server = start_tls("--ssl-ciphers", "ECDHE+AESGCM")
    assert "TLS over TCP uses Python's ssl module: --ssl-ciphers is set" in server.log()
    with connected(server, context_for(server, alpn=["h2", "http/1.1"])) as secure:
        assert secure.selected_alpn_protocol() == "h2"


def test_the_key_is_checked_before_the_start(certificate, tmp_path):
    other = DevelopmentCertificate.make().write(tmp_path)
    options = ["--http", "native", "--ssl-certfile", certificate[0], "--ssl-keyfile", other[1]]
    done = command("tests.server.application:app", "--port", "0", *options)
    assert done.returncode != 0
    assert "is not the key of" in done.stderr
    assert "Traceback" not in done.stderr
