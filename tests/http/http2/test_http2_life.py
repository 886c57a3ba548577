"""Native HTTP/2 connections: negotiation, time-outs, limits, floods, and the stop of the server."""

from __future__ import annotations

import contextlib
import re
import signal
import ssl

import h2.errors
import pytest

from tests.http.http2.client import GET, PREFACE, connected, frame, opened
from tests.http.unread_responses import LARGE, UNREAD, Sender

pytestmark = pytest.mark.either_backend

APPLICATION_WITHOUT_SCOPE = "tests.http.failing_tls_scope:app"

CALM = int(h2.errors.ErrorCodes.ENHANCE_YOUR_CALM)
REFUSED = int(h2.errors.ErrorCodes.REFUSED_STREAM)


def to(server, **options):
    return connected(server, secure=server.is_secure, **options)


def rest(sock) -> bytes:
    """Returns all bytes until the server closes the connection."""
    received = b""
    with contextlib.suppress(ConnectionResetError, ssl.SSLEOFError):
        while piece := sock.recv(65536):
            received += piece
    return received


def test_both_versions_are_served_on_one_port(server):
    for protocols in (("http/1.1",), ("h3", "http/1.1")):
        sock = opened(server, secure=server.is_secure, protocols=protocols)
        with sock:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert rest(sock).endswith(b"hello")
    with to(server) as client:
        assert client.ask("/").body == b"hello"


def test_the_preface_may_arrive_byte_by_byte(server):
    protocols = ("h2",)
    with opened(server, secure=server.is_secure, protocols=protocols) as sock:
        for byte in PREFACE + frame(4, 0, 0) + frame(1, 5, 1, GET):
            sock.sendall(bytes([byte]))
        received = b""
        while b"hello" not in received:
            received += sock.recv(65536)


def test_another_method_is_not_the_preface(server):
    with opened(server, secure=server.is_secure, protocols=("http/1.1",)) as sock:
        sock.sendall(b"PRINT / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert rest(sock).startswith(b"HTTP/1.1 200")


def test_http2_over_tls_needs_alpn(server):
    if not server.is_secure:
        pytest.skip("this is about TLS")
    with opened(server, secure=True, protocols=("http/1.1",)) as sock:
        sock.sendall(PREFACE)
        assert rest(sock).startswith(b"HTTP/1.1 505")


def test_slow_clients_lose_their_connection_or_get_408(start_native):
    server = start_native(
        *("--http3-header-timeout", "1", "--http3-body-timeout", "1"),
        *("--timeout-keep-alive", "2"),
    )
    with opened(server, secure=server.is_secure) as silent:
        rest(silent)
    with to(server) as slow:
        # No other frame of the client may come within the field block.
        assert slow.ask("/").body == b"hello"
        slow.socket.sendall(frame(1, 1, 3, GET[:1]))
        slow.until_closed()
        assert slow.goaways == [(1, CALM)]
    with to(server) as client:
        stream_id = client.begin("/upload", "POST", end=False)
        client.send(stream_id, b"he")
        assert client.response(stream_id).status == 408
        # The time-outs do not apply to the application.
        assert client.ask("/sleep/3").body == b"first last"
        client.until_closed()
        assert [code for _, code in client.goaways] == [0, 0]


def test_a_response_that_its_client_does_not_read_is_abandoned(start_native):
    server = start_native("--http3-send-timeout", "1", "--metrics-path", "/metrics")
    counted = re.compile(rb'\{[^}]*reason="nothing_taken"[^}]*\} 1\b')
    with to(server, takes=False) as client:
        stream_id = client.begin("/flood/200000000")
        # The connection itself goes on: only this stream gets no credit.
        client.h2.increment_flow_control_window(1 << 20)
        client.flush()
        assert client.response(stream_id).reset == int(h2.errors.ErrorCodes.CANCEL)
        while not counted.search(client.ask("/metrics").body):
            pass


def test_the_last_request_of_a_connection_ends_it(start_native):
    server = start_native("--http3-max-requests-per-connection", "2")
    with to(server) as client:
        assert client.ask("/").body == b"hello"
        assert client.ask("/").body == b"hello"
        client.until_closed()
        assert client.goaways[-1] == (3, 0)


def test_requests_above_the_limit_are_refused(start_native):
    server = start_native("--http3-max-requests", "2")
    with to(server) as client:
        client.more()
        assert client.h2.remote_settings.max_concurrent_streams == 2
        # The client ignores the setting, as one may that has not received it.
        del client.h2.remote_settings[3]
        streams = [client.begin("/sleep/1") for _ in range(3)]
        refused = [client.response(stream_id).reset for stream_id in streams]
        assert refused == [None, None, REFUSED]


def test_rapid_resets_end_the_connection(start_native):
    server = start_native("--http3-max-early-resets", "10", "--http3-early-reset-rate", "0.001")
    with to(server) as client:
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            for _ in range(12):
                stream_id = client.begin("/sleep/5")
                client.h2.reset_stream(stream_id, error_code=8)
                client.flush()
        client.until_closed()
        assert client.goaways[-1][1] == CALM
    with to(server) as client:
        assert client.ask("/").body == b"hello"


@pytest.mark.parametrize(
    "flood",
    [
        frame(6, 0, 0, bytes(8)),
        frame(4, 0, 0),
        frame(2, 0, 1, bytes(5)),
        frame(0, 0, 1),
        frame(8, 0, 1, b"\0\0\0\1"),
    ],
    ids=["ping", "settings", "priority", "empty data", "window update"],
)
def test_floods_end_the_connection(server, flood):
    with to(server) as client:
        client.begin("/upload", "POST", end=False)
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            for _ in range(100):
                client.socket.sendall(flood * 100)
        client.until_closed()
        assert client.goaways[-1][1] == CALM
    with to(server) as client:
        assert client.ask("/").body == b"hello"


def test_a_flood_of_continuations_ends_the_connection(server):
    with to(server) as client:
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            client.socket.sendall(frame(1, 1, 1, GET[:1]))
            for _ in range(1000):
                client.socket.sendall(frame(9, 0, 1))
        client.until_closed()
        assert client.goaways[-1][1] == CALM


def test_a_stop_serves_what_was_sent(start_native):
    server = start_native()
    with to(server) as busy, to(server) as idle:
        assert idle.ask("/").body == b"hello"
        stream_id = busy.begin("/sleep/2")
        busy.head(stream_id)
        server.process.send_signal(signal.SIGTERM)
        assert busy.response(stream_id).body == b"first last"
        for client in (busy, idle):
            client.until_closed()
            assert [code for _, code in client.goaways] == [0, 0]
    assert server.process.wait(30) == 0


def test_requests_wait_while_their_client_reads_no_responses(start_native):
    server = start_native("--http3-max-requests", "1000", app=UNREAD)
    # A field without indexing, with a length of several bytes (RFC 7541 sections 5.1 and 6.2.2).
    block = (
        GET + b"\x00\x01x\x7f" + bytes([(len(LARGE) - 127) % 128 | 128, (len(LARGE) - 127) // 128])
    )
    block += LARGE
    count = 8000
    requests = b"".join(frame(1, 5, 2 * at + 1, block) for at in range(count))
    with opened(server, secure=server.is_secure) as sock:
        sender = Sender(sock, PREFACE + frame(4, 0, 0) + requests)
        sender.send()
        assert sender.left, "the server reads requests and keeps their responses"
        answered = 0
        rest = b""
        while answered < count:
            rest += sender.read()
            while len(rest) >= 9 and len(rest) >= 9 + int.from_bytes(rest[:3], "big"):
                assert rest[3] not in (3, 7), "a request is reset, or the connection ends"
                answered += rest[3] == 1
                rest = rest[9 + int.from_bytes(rest[:3], "big") :]
        assert len(sender.left) == 0


def test_a_request_whose_scope_cannot_be_made_is_reset(start, backend, certificate):
    server = start(
        *("--http", "native", "--no-http3"),
        backend=backend,
        certificate=certificate,
        http3=False,
        app=APPLICATION_WITHOUT_SCOPE,
    )
    with connected(server, secure=True) as client:
        for _ in range(2):
            response = client.ask("/")
            assert response.reset == int(h2.errors.ErrorCodes.INTERNAL_ERROR)
    assert "Exception in an HTTP/2 connection" in server.log()
