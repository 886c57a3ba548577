"""qlog at packet level: traces have the shape of aioquic's for the same exchange and match the packets."""

from __future__ import annotations

import importlib
import json

import pytest

from tests.quic.harness import Echo, Recorder, serving
from tests.quic.test_quic_sans_io import CLIENT, SERVER
from uringcore.asyncio import connect
from uringcore.quic import events
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.connection import QuicConnection
from uringcore.quic.logger import QuicFileLogger, QuicLogger

pytestmark = pytest.mark.either_backend


def copies(data, step):
    """Returns the datagrams that arrive for one that is sent. After the handshake some arrive twice and once
    damaged.
    """
    if step not in (9, 13):
        return [data]
    return [data, data, data[:-1] + bytes([data[-1] ^ 1])]


def exchange(connection_class, client, server, steps=40):
    """A handshake, a stream, a datagram, a ping and a close in memory, between two connections of aioquic or
    of uringcore.
    """
    client = connection_class(configuration=client)
    client.connect(SERVER, now=100.0)
    ours = connection_class is QuicConnection
    odcid = None if ours else client.original_destination_connection_id
    server = connection_class(configuration=server, original_destination_connection_id=odcid)
    now = 100.0
    for step in range(steps):
        now += 0.02
        for data, _ in client.datagrams_to_send(now=now):
            for copy in copies(data, step):
                server.receive_datagram(copy, CLIENT, now=now)
        for data, _ in server.datagrams_to_send(now=now):
            for copy in copies(data, step):
                client.receive_datagram(copy, SERVER, now=now)
        for side in (client, server):
            while side.next_event() is not None:
                pass
            due = side.get_timer()
            if due is not None and due <= now:
                side.handle_timer(now=now)
        if step == 8:
            client.send_stream_data(0, b"hello", end_stream=True)
            client.send_datagram_frame(b"datagram")
            client.send_ping(7)
        elif step == 12:
            server.send_stream_data(0, b"world" * 300, end_stream=True)
        elif step == 20:
            client.close(error_code=9, reason_phrase='the "end"')
    return client, server


@pytest.fixture
def logged(server_configuration, client_configuration):
    """One exchange by us and by aioquic: ``(client, server)`` traces of each."""

    def traces(module, connection_class):
        configuration = importlib.import_module(module + ".quic.configuration").QuicConfiguration
        logger = importlib.import_module(module + ".quic.logger").QuicLogger
        made = []
        for model in (client_configuration(), server_configuration()):
            made.append(
                configuration(
                    is_client=model.is_client,
                    alpn_protocols=["test"],
                    max_datagram_frame_size=65536,
                    quic_logger=logger(),
                    server_name="localhost" if model.is_client else None,
                )
            )
        made[0].load_verify_locations(cafile=client_configuration().cafile)
        return made

    def run(module):
        connection_class = importlib.import_module(module + ".quic.connection").QuicConnection
        client, server = traces(module, connection_class)
        pki = run.pki
        server.load_cert_chain(pki.server.certfile, pki.server.keyfile)
        exchange(connection_class, client, server)
        return [c.quic_logger.to_dict()["traces"][0] for c in (client, server)]

    return run


@pytest.fixture
def traces(logged, pki):
    pytest.importorskip("aioquic")
    logged.pki = pki
    return {module: logged(module) for module in ("uringcore", "aioquic")}


def _named(trace, name):
    return [event["data"] for event in trace["events"] if event["name"] == name]


def _all_fields(trace, name):
    """Returns every field of the events with this name, each with an example of its value."""
    fields = {key: value for data in _named(trace, name) for key, value in data.items()}
    # Exists in aioquic's congestion controller only.
    return {key: value for key, value in fields.items() if key != "cubic-wmax"}


def _frames(trace, name):
    """Returns an example of each frame type in the packets of this event."""
    found = {}
    for packet in _named(trace, name):
        for frame in packet["frames"]:
            key = (frame["frame_type"], frame.get("error_space"))
            found.setdefault(key, frame)
    return found


def _kind(value):
    return float if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value)


def assert_like(ours, theirs, where):
    """Checks that ours has each key of theirs, with a value of the same type."""
    for key, value in theirs.items():
        assert key in ours, f"{where}: {key} is missing in {ours}"
        assert _kind(ours[key]) is _kind(value), f"{where}: {key}"


@pytest.mark.parametrize("side", [0, 1], ids=["client", "server"])
def test_the_shape_is_aioquics(traces, side):
    ours, theirs = traces["uringcore"][side], traces["aioquic"][side]
    assert_like(ours, theirs, "trace")
    assert ours["vantage_point"]["type"] == theirs["vantage_point"]["type"]
    for event in ours["events"]:
        assert set(event) == {"data", "name", "time"}
    times = [event["time"] for event in ours["events"]]
    assert times == sorted(times)
    for name in ("transport:packet_sent", "transport:packet_received"):
        kinds = [packet["header"]["packet_type"] for packet in _named(ours, name)]
        their_kinds = [packet["header"]["packet_type"] for packet in _named(theirs, name)]
        assert set(kinds) == set(their_kinds) == {"initial", "handshake", "1RTT"}
        for packet in _named(ours, name):
            assert_like(packet, _named(theirs, name)[0], name)
            assert_like(packet["header"], _named(theirs, name)[0]["header"], name + " header")
        our_frames, their_frames = _frames(ours, name), _frames(theirs, name)
        for kind, frame in their_frames.items():
            if kind in our_frames:
                assert_like(our_frames[kind], frame, f"{name} {kind}")
        both = set(our_frames) & set(their_frames)
        assert {kind for kind, _ in both} >= {"ack", "crypto", "stream"}
    for name in ("transport:datagrams_sent", "transport:datagrams_received"):
        assert_like(_named(ours, name)[0], _named(theirs, name)[0], name)
        assert_like(_named(ours, name)[0]["raw"][0], _named(theirs, name)[0]["raw"][0], name)
    for data, other in zip(
        _named(ours, "transport:parameters_set"),
        _named(theirs, "transport:parameters_set"),
        strict=True,
    ):
        defaults = {"ack_delay_exponent", "max_ack_delay", "max_udp_payload_size"}
        assert_like(data, {k: v for k, v in other.items() if k not in defaults}, "parameters")
    # Our trace has every event that aioquic's has; each of the events not compared above has, in sum, all of
    # its fields. The spin bit is off on a share of connections, at random (RFC 9000 section 17.4).
    names = {event["name"] for event in theirs["events"]} - {"connectivity:spin_bit_updated"}
    assert names <= {event["name"] for event in ours["events"]}
    for name in names - {
        "transport:packet_sent",
        "transport:packet_received",
        "transport:parameters_set",
    }:
        assert_like(_all_fields(ours, name), _all_fields(theirs, name), name)
    triggers = [data["trigger"] for data in _named(ours, "transport:packet_dropped")]
    assert {"duplicate", "payload_decrypt_error"} <= set(triggers)
    for name in ("security:key_updated", "security:key_retired"):
        keys = {data["key_type"] for data in _named(theirs, name)}
        assert keys <= {data["key_type"] for data in _named(ours, name)}, name
    json.dumps(ours)


def test_sent_packets_of_one_trace_are_received_in_the_other(traces):
    client, server = traces["uringcore"]
    assert client["common_fields"]["ODCID"] == server["common_fields"]["ODCID"]
    assert len(bytes.fromhex(client["common_fields"]["ODCID"])) >= 8
    first = _named(client, "transport:packet_sent")[0]["header"]
    assert first["dcid"] == client["common_fields"]["ODCID"]
    for sender, receiver in ((client, server), (server, client)):
        sent = _named(sender, "transport:packet_sent")
        received = _named(receiver, "transport:packet_received")
        # Without loss, the packets that arrive are those that were sent, with equal frames. Late packets
        # whose keys were discarded are the exception.
        by_number = {
            (p["header"]["packet_type"], p["header"]["packet_number"]): p["frames"] for p in sent
        }
        assert received
        for packet in received:
            key = packet["header"]["packet_type"], packet["header"]["packet_number"]
            assert packet["frames"] == by_number[key]
    close = _named(client, "transport:packet_sent")[-1]["frames"][-1]
    frames = [f for p in _named(client, "transport:packet_sent") for f in p["frames"]]
    (close,) = [frame for frame in frames if frame["frame_type"] == "connection_close"][:1]
    assert close["reason"] == 'the "end"' and close["error_code"] == 9
    assert close["error_space"] == "application"
    stream = [frame for frame in frames if frame["frame_type"] == "stream"]
    assert stream[0] == {
        "fin": True,
        "frame_type": "stream",
        "length": 5,
        "offset": 0,
        "stream_id": 0,
    }
    assert {"frame_type": "datagram", "length": 8} in frames
    assert {"frame_type": "ping"} in frames
    owners = [data["owner"] for data in _named(server, "transport:parameters_set")]
    assert sorted(owners) == ["local", "remote"]


def test_without_a_logger_nothing_is_recorded(server_configuration, client_configuration):
    client = client_configuration(server_name="localhost")
    ours, other = exchange(QuicConnection, client, server_configuration(), steps=3)
    assert ours._packet_log() is None and other._packet_log() is None
    client = client_configuration(server_name="localhost", quic_logger=QuicLogger())
    ours, _ = exchange(QuicConnection, client, server_configuration(), steps=3)
    assert len(ours._packet_log().take()) > 0
    assert ours._packet_log().take() == []


def test_files_have_the_whole_life(run_anywhere, tmp_path, client_configuration, pki):
    """Each connection has one file, named after its connection id, which ends with the connection's last
    packet.
    """
    directories = [tmp_path / "client", tmp_path / "server"]
    for directory in directories:
        directory.mkdir()

    async def main():
        server = QuicConfiguration(
            is_client=False,
            alpn_protocols=["test"],
            quic_logger=QuicFileLogger(str(directories[1])),
        )
        server.load_cert_chain(pki.server.certfile, pki.server.keyfile)
        client = client_configuration(quic_logger=QuicFileLogger(str(directories[0])))
        async with serving(server, Echo) as (port, protocols):
            async with connect(
                "127.0.0.1", port, configuration=client, create_protocol=Recorder
            ) as protocol:
                stream_id = protocol._quic.get_next_available_stream_id()
                protocol._quic.send_stream_data(stream_id, b"hello", end_stream=True)
                protocol.transmit()
                await protocol.wait_for(events.StreamDataReceived, end_stream=True)
                odcid = protocol._quic.original_destination_connection_id
            await protocols[0].wait_closed()
            assert protocols[0]._quic.original_destination_connection_id == odcid
        return odcid

    odcid = run_anywhere(main())
    for directory in directories:
        (path,) = directory.iterdir()
        assert path.name == odcid.hex() + ".qlog"
        document = json.loads(path.read_text())
        assert document["qlog_version"] == "0.3" and document["qlog_format"] == "JSON"
        (trace,) = document["traces"]
        names = {event["name"] for event in trace["events"]}
        assert {
            "transport:packet_sent",
            "transport:packet_received",
            "connectivity:connection_closed",
        } <= names
        packets = _named(trace, "transport:packet_sent") + _named(
            trace, "transport:packet_received"
        )
        kinds = {frame["frame_type"] for packet in packets for frame in packet["frames"]}
        assert {"crypto", "stream", "ack", "connection_close"} <= kinds


def test_a_retry_is_in_the_trace(run, client_configuration, server_configuration):
    logger = QuicLogger()

    async def main():
        server = server_configuration(quic_logger=QuicLogger())
        async with (
            serving(server, retry=True) as (port, protocols),
            connect(
                "127.0.0.1", port, configuration=client_configuration(quic_logger=logger)
            ) as client,
        ):
            await client.ping()
            first = client._quic.original_destination_connection_id
            assert protocols[0]._quic.original_destination_connection_id == first
            (trace,) = server.quic_logger.to_dict()["traces"]
            received = _named(trace, "transport:packet_received")
            assert received[0]["header"]["packet_type"] == "initial"

    run(main())
    (trace,) = logger.to_dict()["traces"]
    kinds = [p["header"]["packet_type"] for p in _named(trace, "transport:packet_received")]
    assert kinds[0] == "retry" and "1RTT" in kinds


def test_names_and_ids_outlive_the_connection(server_configuration, client_configuration):
    fields = {"max_datagram_frame_size": 65536}
    client = client_configuration(server_name="localhost", **fields)
    ours, other = exchange(QuicConnection, client, server_configuration(**fields))
    assert ours.is_closed
    assert ours.original_destination_connection_id == other.original_destination_connection_id
    assert len(ours.host_cid) == 8 and ours.host_cid != other.host_cid
    assert QuicConnection(configuration=client).original_destination_connection_id is None


def test_a_trace_that_grows_too_large_keeps_its_ends():
    logger = QuicLogger()
    trace = logger.start_trace(is_client=True, odcid=b"id")
    for number in range(65_536 + 10):
        trace.log_event(category="program", event="step", data={"number": number})
    kept = trace.to_dict()["events"]
    assert len(kept) == 65_536 + 1
    assert [event["data"]["number"] for event in kept[:1024]] == list(range(1024))
    assert kept[1024]["name"] == "loglevel:warning"
    assert kept[1024]["data"] == {"message": "10 events were dropped here"}
    assert [event["data"]["number"] for event in kept[1025:]] == list(range(1034, 65_546))
