"""WebSocket over native HTTP/2 (RFC 8441): the h2 package carries it, the `websockets` package frames it."""

from __future__ import annotations

import json
import random
import signal

import pytest

deflate = pytest.importorskip("websockets.extensions.permessage_deflate")

from tests.http.http2.client import connected  # noqa: E402 - after the skips
from tests.http.http2.websocket_client import Socket  # noqa: E402
from tests.http.tcp_server import running_server  # noqa: E402
from tests.server.harness import Server  # noqa: E402

pytestmark = pytest.mark.either_backend

APPLICATION = "tests.http.features.application:app"


@pytest.fixture(scope="module", params=["tcp", "tls"])
def server(request, backend, certificate, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sockets")
    with running_server(
        request.param, folder, certificate, kind=Server, backend=backend, app=APPLICATION
    ) as running:
        yield running


def to(server):
    return connected(server, secure=server.is_secure)


def test_the_server_announces_extended_connect(server):
    with to(server) as client:
        client.more()
        assert client.h2.remote_settings.enable_connect_protocol == 1


def test_messages_of_all_sizes_come_back(server):
    with to(server) as client:
        socket = Socket(client, "/echo/sizes")
        assert (socket.response.status, socket.response.get("x-mine")) == (200, "yes")
        for size in (0, 1, 125, 126, 65_535, 65_536, 1_000_000):
            message = random.Random(size).randbytes(size)
            socket.send(message)
            assert socket.receive() == message


def test_messages_may_be_compressed(server):
    offer = "permessage-deflate; client_max_window_bits"
    with to(server) as client:
        socket = Socket(client, "/echo/small", ("sec-websocket-extensions", offer))
        agreed = socket.response.get("sec-websocket-extensions")
        assert agreed == (
            "permessage-deflate; server_max_window_bits=12; client_max_window_bits=12"
        )
        socket.protocol.extensions = [deflate.PerMessageDeflate(False, False, 12, 12)]
        for _ in range(3):
            socket.send(b"again and " * 10_000)
            assert socket.receive() == b"again and " * 10_000
        assert len(socket.response.body) < 10_000


def test_several_sockets_share_a_connection_with_requests(server):
    with to(server) as client:
        sockets = [Socket(client, f"/echo/{number}") for number in range(10)]
        for number, socket in enumerate(sockets):
            socket.send(b"%d" % number)
        assert client.ask("/debug").body == b"debugged"
        assert [socket.receive() for socket in sockets] == [b"%d" % it for it in range(10)]


def test_the_scope_of_a_websocket(server):
    with to(server) as client:
        socket = Socket(client, "/scope/x?y=z", ("sec-websocket-protocol", "a, b"))
        scope = json.loads(socket.receive())
        assert scope["http_version"] == "2"
        assert scope["scheme"] == ("wss" if server.is_secure else "ws")
        assert (scope["path"], scope["subprotocols"]) == ("/scope/x", ["a", "b"])
        assert "method" not in scope
        assert scope["headers"][-2:] == [["connection", "Upgrade"], ["upgrade", "websocket"]]
        assert socket.closed() == 4001


def test_an_application_may_refuse(server):
    with to(server) as client:
        for path, status in (("/deny/a", 403), ("/returns-at-once/a", 500), ("/raises/a", 500)):
            assert Socket(client, path).response.status == status
        refused = Socket(client, "/deny-with-response/a")
        client.response(refused.stream_id)
        assert (refused.response.status, refused.response.body) == (401, b"who are you?")


def test_the_end_of_an_application_closes(server):
    with to(server) as client:
        assert Socket(client, "/returns-open/a").closed() == 1000
        assert Socket(client, "/raises-open/a").closed() == 1011


def test_a_client_that_resets_its_stream_is_gone(server):
    with to(server) as client:
        socket = Socket(client, "/sends-for-ever/reset")
        client.h2.reset_stream(socket.stream_id, error_code=8)
        client.flush()
        while json.loads(client.ask("/events/reset").body) != ["told"]:
            pass


def test_a_stop_closes_with_1012(start_native):
    server = start_native(app=APPLICATION)
    with to(server) as client:
        socket = Socket(client, "/echo/stop")
        server.process.send_signal(signal.SIGTERM)
        assert socket.closed() == 1012
        client.until_closed()
    assert server.process.wait(30) == 0
