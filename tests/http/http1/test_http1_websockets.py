"""WebSocket over native HTTP/1.1, with the `websockets` package as the client."""

from __future__ import annotations

import contextlib
import random
import signal
import ssl

import pytest

from tests.http.tcp_server import running_server
from tests.support import tls_client_relay

websockets = pytest.importorskip("websockets.sync.client")
exceptions = pytest.importorskip("websockets.exceptions")
extensions = pytest.importorskip("websockets.extensions.permessage_deflate")

pytestmark = pytest.mark.either_backend

APPLICATION = "tests.http.features.application:app"

EXTENSIONS = "Sec-WebSocket-Extensions"
AGREED = "permessage-deflate; server_max_window_bits=12; client_max_window_bits=12"


@pytest.fixture(scope="module", params=["tcp", "tls"])
def server(request, backend, certificate, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sockets")
    with running_server(
        request.param, folder, certificate, backend=backend, app=APPLICATION
    ) as running:
        yield running


def connect(server, path, **options):
    if server.is_secure:
        context = ssl.create_default_context(cafile=server.certificate)
        options["sock"] = tls_client_relay.connect(("localhost", server.port), context, "localhost")
    return websockets.connect(f"ws://localhost:{server.port}{path}", proxy=None, **options)


@pytest.mark.parametrize("compression", ["deflate", None])
def test_messages_of_all_sizes_come_back(server, compression):
    messages = [
        "",
        "gr\u00fcn",
        b"",
        b"\x00\xff" * 10,
        "x" * 126,
        b"z" * 65_536,
        "\u00e4" * 300_000,
        *["the same again, and again, and again, and again, and again, and again"] * 3,
        random.Random(7).randbytes(500_000),
    ]
    with connect(server, "/echo/sizes", max_size=None, compression=compression) as socket:
        extensions = socket.response.headers.get("sec-websocket-extensions")
        assert extensions == (compression and AGREED)
        assert socket.response.headers["x-mine"] == "yes"
        for message in messages:
            socket.send(message)
            assert socket.recv() == message
        socket.close(4321, "good bye")


def test_messages_are_not_compressed_if_the_option_is_off(start_native):
    server = start_native("--ws-per-message-deflate", "false", app=APPLICATION)
    server.is_secure = False
    with connect(server, "/echo/plain") as socket:
        assert "sec-websocket-extensions" not in socket.response.headers
        socket.send("x" * 100_000)
        assert socket.recv() == "x" * 100_000


BARE = {"client_max_window_bits": None}
OFFERS = {
    "permessage-deflate": "permessage-deflate; server_max_window_bits=12",
    "permessage-deflate; server_no_context_takeover; client_no_context_takeover": (
        "permessage-deflate; server_max_window_bits=12; "
        "server_no_context_takeover; client_no_context_takeover"
    ),
    "permessage-deflate; server_max_window_bits=9; client_max_window_bits=10": (
        "permessage-deflate; server_max_window_bits=9; client_max_window_bits=10"
    ),
    "permessage-deflate; server_max_window_bits=8": None,
    "permessage-deflate; unknown=1": None,
    "x-webkit-deflate-frame": None,
}


@pytest.mark.parametrize("offer", OFFERS)
def test_each_offer_is_answered_and_the_client_can_decompress_the_messages(server, offer):
    factory = extensions.ClientPerMessageDeflateFactory
    parameters = (part.strip().partition("=") for part in offer.split(";")[1:])
    arguments = {name: int(value) if value else True for name, _, value in parameters}
    if "permessage-deflate" not in offer or "unknown" in offer:
        with connect(
            server, "/echo/a", compression=None, additional_headers={EXTENSIONS: offer}
        ) as one:
            assert EXTENSIONS not in one.response.headers
            one.send("z" * 1000)
            assert one.recv() == "z" * 1000
        return
    with connect(
        server, "/echo/a", compression=None, extensions=[factory(**{**BARE, **arguments})]
    ) as one:
        assert one.response.headers.get(EXTENSIONS) == OFFERS[offer]
        for size in (10, 1000, 1000, 70_000, 70_000):
            one.send("ab" * size)
            assert one.recv() == "ab" * size


def test_a_message_that_exceeds_the_limit_after_decompression_is_closed_with_1009(start_native):
    server = start_native("--ws-max-size", "100000", app=APPLICATION)
    server.is_secure = False
    with connect(server, "/echo/fits", max_size=None) as socket:
        socket.send(bytes(100_000))
        assert socket.recv() == bytes(100_000)
        socket.send(bytes(100_001))
        with pytest.raises(exceptions.ConnectionClosedError) as caught:
            socket.recv()
        assert caught.value.rcvd.code == 1009


def test_a_compressed_message_that_is_malformed_is_closed_with_1007(server):
    with connect(server, "/echo/bad") as socket:
        socket.socket.sendall(b"\xc1\x84\0\0\0\0\xff\xff\xff\xff")
        with pytest.raises(exceptions.ConnectionClosedError) as caught:
            socket.recv()
        assert caught.value.rcvd.code == 1007


def test_a_client_that_continues_to_send_gets_the_close_frame(server):
    """If the server reset the connection, the client would lose the close frame (RFC 9112 section 9.6)."""
    with connect(server, "/echo/large", max_size=None) as socket:
        socket.socket.sendall(b"\x82\xff" + (1 << 40).to_bytes(8, "big") + b"mask")
        # The client answers the close frame by itself. Then the server closes the connection, perhaps before
        # the last send.
        with contextlib.suppress(OSError):
            for _ in range(20):
                socket.socket.sendall(bytes(20_000))
        with pytest.raises(exceptions.ConnectionClosedError) as caught:
            socket.recv()
        assert caught.value.rcvd.code == 1009


def test_pings_are_answered(server):
    with connect(server, "/echo/pings") as socket:
        assert socket.ping(b"one").wait(20)
        socket.send("after")
        assert socket.recv() == "after"


def test_a_large_message_is_closed_with_1009(server):
    with connect(server, "/echo/large", max_size=None, compression=None) as socket:
        # This is the header of a frame, and its payload never follows.
        socket.socket.sendall(b"\x82\xff" + (1 << 40).to_bytes(8, "big") + b"mask")
        with pytest.raises(exceptions.ConnectionClosedError) as caught:
            socket.recv()
        assert caught.value.rcvd.code == 1009


def test_an_application_may_refuse(server):
    for path, status in (("/deny/a", 403), ("/returns-at-once/a", 500), ("/raises/a", 500)):
        with pytest.raises(exceptions.InvalidStatus) as caught, connect(server, path):
            pass
        assert caught.value.response.status_code == status, path
        assert caught.value.response.headers["connection"] == "close"
    with (
        pytest.raises(exceptions.InvalidStatus) as caught,
        connect(server, "/deny-with-response/a"),
    ):
        pass
    assert caught.value.response.status_code not in (403, 500)


def test_the_end_of_an_application_closes(server):
    for path, code in (("/returns-open/a", 1000), ("/raises-open/a", 1011)):
        with connect(server, path) as socket:
            with pytest.raises(exceptions.ConnectionClosed) as caught:
                socket.recv()
            assert caught.value.rcvd.code == code


def test_a_stop_closes_with_1012(start_native):
    server = start_native(app=APPLICATION)
    server.is_secure = False
    with connect(server, "/echo/stop") as socket:
        socket.send("before")
        assert socket.recv() == "before"
        server.send_signal(signal.SIGTERM)
        with pytest.raises(exceptions.ConnectionClosedError) as caught:
            socket.recv()
        assert caught.value.rcvd.code == 1012
    assert server.wait_stopped() == 0
