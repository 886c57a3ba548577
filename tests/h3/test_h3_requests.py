"""Requests and responses between uringcore and aioquic in every combination of sides."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.h3.aioquic_pair import LIBRARIES, Pair, needs_current_aioquic, plain
from uringcore.h3.connection import Setting
from uringcore.h3.events import DataReceived, HeadersReceived

SIDES = [sides for sides in itertools.product(LIBRARIES, repeat=2) if "uringcore" in sides]
every_side = pytest.mark.parametrize(("client", "server"), SIDES)

GET = [
    (b":method", b"GET"),
    (b":scheme", b"https"),
    (b":authority", b"localhost"),
    (b":path", b"/"),
    (b"user-agent", b"test/1.0"),
    (b"x-empty", b""),
]


def expected(*events: Any) -> list[tuple[Any, ...]]:
    return [plain(event) for event in events]


@every_side
def test_get(quic_pair: Pair, client: str, server: str) -> None:
    http_client, http_server = quic_pair.add_http(client, server)
    for round_ in range(5):
        stream_id = quic_pair.client.get_next_available_stream_id()
        http_client.send_headers(stream_id, GET, end_stream=True)
        quic_pair.transfer()
        assert [plain(event) for event in quic_pair.take("server")] == expected(
            HeadersReceived(GET, stream_id, True)
        )
        response = [(b":status", b"200"), (b"server", b"x"), (b"x-round", b"%d" % round_)]
        http_server.send_headers(stream_id, response)
        http_server.send_data(stream_id, b"hello", True)
        quic_pair.transfer()
        assert [plain(event) for event in quic_pair.take("client")] == expected(
            HeadersReceived(response, stream_id, False), DataReceived(b"hello", stream_id, True)
        )


@needs_current_aioquic
@every_side
def test_post_with_trailers_and_interim_response(quic_pair: Pair, client: str, server: str) -> None:
    http_client, http_server = quic_pair.add_http(client, server)
    body = bytes(range(256)) * 2000
    request = [(b":method", b"POST"), *GET[1:4], (b"content-length", b"%d" % len(body))]
    http_client.send_headers(0, request)
    http_client.send_data(0, body[:100], False)
    http_client.send_data(0, body[100:], False)
    http_client.send_headers(0, [(b"x-checksum", b"1")], end_stream=True)
    quic_pair.transfer()
    assert [plain(event) for event in quic_pair.take("server")] == expected(
        HeadersReceived(request, 0, False),
        DataReceived(body, 0, False),
        HeadersReceived([(b"x-checksum", b"1")], 0, True),
    )
    http_server.send_headers(0, [(b":status", b"103"), (b"link", b"</a>")])
    http_server.send_headers(0, [(b":status", b"200")])
    http_server.send_data(0, body, False)
    http_server.send_data(0, b"", True)
    quic_pair.transfer()
    events = quic_pair.take("client")
    assert [plain(event) for event in events] == expected(
        HeadersReceived([(b":status", b"103"), (b"link", b"</a>")], 0, False),
        HeadersReceived([(b":status", b"200")], 0, False),
        DataReceived(body, 0, True),
    )


@every_side
def test_many_concurrent_requests_with_a_full_dynamic_table(
    quic_pair: Pair, client: str, server: str
) -> None:
    http_client, http_server = quic_pair.add_http(client, server)
    for round_ in range(12):
        sent = {}
        for number in range(20):
            stream_id = quic_pair.client.get_next_available_stream_id()
            headers = [
                *GET[:3],
                (b":path", b"/item/%d" % (number % 5)),
                (b"x-round", b"%d" % (round_ // 3)),
                (b"x-long", b"v" * (20 * (number % 7))),
                (b"cookie", b"a=%d" % number),
            ]
            http_client.send_headers(stream_id, headers, end_stream=True)
            sent[stream_id] = headers
        quic_pair.transfer()
        received = {event.stream_id: event.headers for event in quic_pair.take("server")}
        assert received == sent
        for stream_id in sent:
            response = [(b":status", b"404"), (b"date", b"round %d" % round_), (b"x-a", b"b" * 50)]
            http_server.send_headers(stream_id, response, end_stream=True)
            sent[stream_id] = response
        quic_pair.transfer()
        received = {event.stream_id: event.headers for event in quic_pair.take("client")}
        assert received == sent
    for http in (http_client, http_server):
        if hasattr(http, "open_requests"):
            assert http.open_requests == 0


@every_side
def test_settings(quic_pair: Pair, client: str, server: str) -> None:
    http_client, http_server = quic_pair.add_http(client, server, enable_webtransport=True)
    assert http_client.received_settings == http_server.sent_settings
    assert http_server.received_settings == http_client.sent_settings
    for settings in (http_client.sent_settings, http_server.sent_settings):
        assert settings[Setting.QPACK_MAX_TABLE_CAPACITY] == 4096
        assert settings[Setting.ENABLE_CONNECT_PROTOCOL] == 1
        assert settings[Setting.H3_DATAGRAM] == 1
        assert settings[Setting.ENABLE_WEBTRANSPORT] == 1
        assert settings[Setting.DUMMY] == 1


@every_side
def test_datagrams_and_webtransport_streams(quic_pair: Pair, client: str, server: str) -> None:
    http_client, http_server = quic_pair.add_http(client, server, enable_webtransport=True)
    connect = [
        (b":method", b"CONNECT"),
        (b":protocol", b"webtransport"),
        (b":scheme", b"https"),
        (b":authority", b"localhost"),
        (b":path", b"/wt"),
    ]
    session = quic_pair.client.get_next_available_stream_id()
    http_client.send_headers(session, connect)
    quic_pair.transfer()
    assert [event.headers for event in quic_pair.take("server")] == [connect]
    http_server.send_headers(session, [(b":status", b"200")])
    quic_pair.transfer()
    quic_pair.take("client")

    http_client.send_datagram(session, b"to the server")
    http_server.send_datagram(session, b"to the client")
    quic_pair.transfer()
    for side, text in (("server", b"to the server"), ("client", b"to the client")):
        [datagram] = quic_pair.take(side)
        assert plain(datagram) == (
            "DatagramReceived",
            ("data", text),
            ("stream_id", session),
        )

    for source, quic, target in (
        (http_client, quic_pair.client, "server"),
        (http_server, quic_pair.server, "client"),
    ):
        for is_unidirectional in (False, True):
            stream_id = source.create_webtransport_stream(session, is_unidirectional)
            quic.send_stream_data(stream_id, b"one", end_stream=False)
            quic_pair.transfer()
            quic.send_stream_data(stream_id, b"two", end_stream=True)
            quic_pair.transfer()
            [event] = quic_pair.take(target)
            assert (event.data, event.stream_id, event.stream_ended, event.session_id) == (
                b"onetwo",
                stream_id,
                True,
                session,
            )
            reply_to = quic_pair.http["client" if source is http_client else "server"]
            if not is_unidirectional and hasattr(reply_to, "open_requests"):
                # aioquic does not recognise data received on a stream that it opened.
                other = quic_pair.server if source is http_client else quic_pair.client
                other.send_stream_data(stream_id, b"reply", end_stream=True)
                quic_pair.transfer()
                [event] = quic_pair.take("client" if source is http_client else "server")
                assert (event.data, event.session_id) == (b"reply", session)
