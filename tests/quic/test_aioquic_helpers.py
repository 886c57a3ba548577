"""Functions of aioquic's that compute a value: results and errors equal aioquic's."""

from __future__ import annotations

import asyncio
import importlib
import random

import pytest

from tests.quic.harness import Echo, Recorder
from uringcore.asyncio import connect
from uringcore.asyncio.server import QuicServer
from uringcore.h3 import connection as h3
from uringcore.quic import connection, logger, packet
from uringcore.quic import events as quic_events

pytestmark = pytest.mark.either_backend

their_h3 = pytest.importorskip("aioquic.h3.connection")
if int(importlib.import_module("aioquic").__version__.split(".")[1]) < 7:
    pytest.skip("the expected results are aioquic 1.7's", allow_module_level=True)
their_logger = importlib.import_module("aioquic.quic.logger")
their_packet = importlib.import_module("aioquic.quic.packet")
their_connection = importlib.import_module("aioquic.quic.connection")

GET = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", b"a"), (b":path", b"/")]
OK = [(b":status", b"200")]


def outcome(call, *args, **kwargs):
    """Returns a call's result, or the name and HTTP/3 code of its exception."""
    try:
        return call(*args, **kwargs)
    except Exception as exc:
        return type(exc).__name__, getattr(exc, "error_code", None)


@pytest.mark.parametrize(
    ("function", "fields"),
    [
        ("validate_request_headers", GET),
        ("validate_request_headers", GET[:1]),
        ("validate_request_headers", [*GET, (b"x", b"1"), (b":path", b"/")]),
        ("validate_request_headers", [*GET, (b":path", b"/")]),
        ("validate_request_headers", [*GET, (b":status", b"200")]),
        ("validate_request_headers", [*GET[:3], (b":path", b"")]),
        ("validate_request_headers", [*GET[:2], (b":authority", b""), GET[3]]),
        ("validate_request_headers", [*GET, (b":protocol", b"websocket")]),
        ("validate_request_headers", [*GET, (b"te", b"Trailers")]),
        ("validate_request_headers", [*GET, (b"te", b"gzip")]),
        ("validate_request_headers", [*GET, (b"Upper", b"x")]),
        ("validate_request_headers", [*GET, (b"a:b", b"x")]),
        ("validate_request_headers", [*GET, (b"a", b"x\n")]),
        ("validate_request_headers", [*GET, (b"a", b" x")]),
        ("validate_request_headers", [*GET, (b"a", b"x\t")]),
        ("validate_request_headers", [*GET, (b"a", b"")]),
        ("validate_request_headers", [*GET, (b"connection", b"close")]),
        ("validate_request_headers", [*GET, (b"content-length", b"-1")]),
        ("validate_request_headers", [*GET, (b"content-length", b"x")]),
        ("validate_push_promise_headers", GET),
        ("validate_push_promise_headers", GET[1:]),
        ("validate_push_promise_headers", [*GET, (b":protocol", b"websocket")]),
        ("validate_response_headers", OK),
        ("validate_response_headers", []),
        ("validate_response_headers", [(b":status", b"101")]),
        ("validate_response_headers", [(b":status", b"20")]),
        ("validate_response_headers", [(b":status", b"2x0")]),
        ("validate_response_headers", [*OK, (b"te", b"trailers")]),
        ("validate_trailers", [(b"checksum", b"1")]),
        ("validate_trailers", OK),
        ("is_interim_response", [(b":status", b"103")]),
        ("is_interim_response", OK),
        ("is_interim_response", []),
        ("encode_settings", {1: 4096, 0x33: 1, 2**40: 2**61}),
        ("parse_settings", bytes.fromhex("0100331006444a")),
        ("parse_settings", b"\x01"),
        ("parse_settings", b"\x01\x05\x01\x05"),
        ("parse_settings", b"\x02\x05"),
        ("parse_max_push_id", b"\x08"),
        ("parse_max_push_id", b""),
        ("parse_max_push_id", b"\x08\x01"),
    ],
)
def test_fields_and_frames(function, fields):
    ours, theirs = getattr(h3, function), getattr(their_h3, function)
    assert outcome(ours, fields) == outcome(theirs, fields)


def test_frames_and_lengths():
    for size in (0, 1, 63, 64, 20_000):
        data = bytes(size)
        assert h3.encode_frame(1, data) == their_h3.encode_frame(1, data)
    ours, theirs = h3.H3Stream(4), their_h3.H3Stream(4)
    for module, stream in ((h3, ours), (their_h3, theirs)):
        module.validate_request_headers([*GET, (b"content-length", b"12")], stream=stream)
        assert stream.expected_content_length == 12
        stream.finish_sending()
        with pytest.raises(module.FrameUnexpected):
            stream.finish_sending()
        assert not stream.is_ended()
        stream.receiving_ended = True
        assert stream.is_ended()


def test_versions_and_ids():
    both = [packet.QuicProtocolVersion.VERSION_1, packet.QuicProtocolVersion.VERSION_2, 0x1A2A3A4A]
    for one in both:
        assert packet.pretty_protocol_version(one) == their_packet.pretty_protocol_version(one)
        for other in both:
            ours = connection.is_version_compatible(one, other)
            assert ours == their_connection.is_version_compatible(one, other)
    assert connection.dump_cid(b"\x01\xff") == their_connection.dump_cid(b"\x01\xff") == "01ff"


def test_qlog_forms_of_frames():
    chance = random.Random(7)
    values = {
        "connection_id": b"\x01\x02",
        "data": b"12345678",
        "delay": 0.025,
        "error_code": 7,
        "final_size": 90,
        "frame_type": 0x10,
        "headers": [(b"a", b"b")],
        "is_unidirectional": True,
        "length": 12,
        "limit": 4,
        "maximum": chance.randrange(2**60),
        "push_id": 3,
        "ranges": [range(3), range(5, 6)],
        "reason_phrase": "why",
        "retire_prior_to": 1,
        "sequence_number": 2,
        "seconds": 1.5,
        "stateless_reset_token": bytes(16),
        "stream_id": 4,
        "token": b"token",
        "owner": "local",
    }
    ours = logger.QuicLoggerTrace(is_client=True, odcid=b"")
    theirs = their_logger.QuicLoggerTrace(is_client=True, odcid=b"")
    done = 0
    for name in dir(theirs):
        if not name.startswith("encode_"):
            continue
        call = getattr(theirs, name)
        wanted = call.__code__.co_varnames[1 : call.__code__.co_argcount]
        for frame_type in (0x10, 0x12, 0x13, None):
            arguments = {key: values.get(key) for key in wanted}
            if "frame_type" in arguments:
                arguments["frame_type"] = frame_type
            answers = []
            for module, trace in ((packet, ours), (their_packet, theirs)):
                if "frame" in arguments:
                    arguments["frame"] = module.QuicStreamFrame(b"abc", True, 9)
                if "parameters" in arguments:
                    arguments["parameters"] = module.QuicTransportParameters(
                        max_idle_timeout=3, stateless_reset_token=b"\x01"
                    )
                answers.append(getattr(trace, name)(**arguments))
            assert answers[0] == answers[1], name
            done += 1
    assert done >= 4 * 25
    for kind in packet.QuicPacketType:
        assert ours.packet_type(kind) == theirs.packet_type(their_packet.QuicPacketType[kind.name])


def test_a_server_on_a_datagram_transport_of_the_programs_own(
    run_anywhere, server_configuration, client_configuration
):
    """Uses ``create_datagram_endpoint(lambda: QuicServer(...))``, as programs with unusual sockets do."""

    async def main():
        loop = asyncio.get_running_loop()
        protocols = []

        def create(*args, **kwargs):
            protocols.append(Echo(*args, **kwargs))
            return protocols[-1]

        transport, server = await loop.create_datagram_endpoint(
            lambda: QuicServer(configuration=server_configuration(), create_protocol=create),
            local_addr=("127.0.0.1", 0),
        )
        port = transport.get_extra_info("sockname")[1]
        assert server.sockname[1] == port
        async with connect(
            "127.0.0.1",
            port,
            configuration=client_configuration(),
            create_protocol=Recorder,
        ) as client:
            stream_id = client._quic.get_next_available_stream_id()
            client._quic.send_stream_data(stream_id, b"hello" * 1000, end_stream=True)
            client.transmit()
            await client.wait_for(quic_events.StreamDataReceived, end_stream=True)
            assert client.data[stream_id] == b"hello" * 1000
        await asyncio.wait_for(protocols[0].wait_closed(), 10)
        server.close()
        await asyncio.wait_for(server.wait_closed(), 10)
        assert transport.is_closing()

    run_anywhere(main())
