"""qvis opens our traces, in one piece (``.qlog``) and in records (``.sqlog``): they contain the fields that
its loader and each of its diagrams need.

qvis is a web application that no package registry carries. These tests state the fields that it reads, as
found in its sources (QlogLoaderV2, QlogSchema02 and the renderers of the diagrams). All of them look at one
HTTP/3 response whose path loses packets.
"""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest

from tests.quic.harness import Recorder, serving
from tests.quic.qlog_sequences import document_of
from tests.support.simulated_link import Conditions
from tests.support.udp_proxy import ImpairmentProxy
from uringcore.asyncio import connect
from uringcore.h3.connection import H3Connection
from uringcore.h3.events import DataReceived, HeadersReceived
from uringcore.quic._qlog_files import QuicSequenceLogger
from uringcore.quic.logger import QuicFileLogger

SIZE = 300_000
DELAY = 0.01
# Numbers of the lost datagrams, of about 250 that carry the response; the first dozen are the handshake.
LOST = frozenset({40, 41, 70, 71, 72, 100})


class Server(Recorder):
    """Answers every request with a body of SIZE bytes."""

    http = None

    def quic_event_received(self, event):
        super().quic_event_received(event)
        if self.http is None:
            self.http = H3Connection(self._quic)
        for http_event in self.http.handle_event(event):
            if isinstance(http_event, HeadersReceived):
                self.http.send_headers(http_event.stream_id, [(b":status", b"200")])
                self.http.send_data(http_event.stream_id, bytes(SIZE), True)
        self.transmit()


class Client(Recorder):
    """Counts the bytes of one response."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        # Created first, so that its first events come before the connection and its trace begin.
        self.http = H3Connection(self._quic)
        self.received = 0
        self.done = asyncio.get_running_loop().create_future()

    def quic_event_received(self, event):
        super().quic_event_received(event)
        for http_event in self.http.handle_event(event):
            if isinstance(http_event, DataReceived):
                self.received += len(http_event.data)
                if http_event.stream_ended:
                    self.done.set_result(self.received)
        self.transmit()


@pytest.fixture(scope="module", params=["qlog", "sqlog"])
def documents(tmp_path_factory, pki, request):
    """Returns the client's and the server's file of one connection, parsed."""
    import uringcore
    from uringcore.quic.configuration import QuicConfiguration

    directories = [tmp_path_factory.mktemp(side) for side in ("client", "server")]
    loggers = []

    def configuration(is_client):
        kind = QuicFileLogger if request.param == "qlog" else QuicSequenceLogger
        logger = kind(str(directories[0 if is_client else 1]))
        loggers.append(logger)
        return QuicConfiguration(
            is_client=is_client,
            alpn_protocols=["h3"],
            quic_logger=logger,
            server_name="localhost" if is_client else None,
        )

    async def main():
        server, client = configuration(False), configuration(True)
        server.load_cert_chain(pki.server.certfile, pki.server.keyfile)
        client.load_verify_locations(cafile=str(pki.authority.certfile))
        async with (
            serving(server, Server) as (port, protocols),
            ImpairmentProxy(
                ("127.0.0.1", port),
                up=Conditions(delay=DELAY),
                down=Conditions(delay=DELAY, drop=LOST),
                seed=1,
            ) as proxy,
            connect(
                *proxy.address,
                configuration=client,
                create_protocol=Client,
            ) as protocol,
        ):
            stream_id = protocol._quic.get_next_available_stream_id()
            request = [
                (b":method", b"GET"),
                (b":scheme", b"https"),
                (b":authority", b"localhost"),
                (b":path", b"/"),
                (b"x-bytes", b"\xff"),
            ]
            protocol.http.send_headers(stream_id, request, True)
            protocol.transmit()
            assert await asyncio.wait_for(protocol.done, 50) == SIZE
            # By now the latest loss has been detected.
            await protocol.ping()
            protocol._quic.close(error_code=0x100, reason_phrase="done")
            protocol.transmit()
            with contextlib.suppress(ConnectionError):
                await protocol.wait_closed()
            await protocols[0].wait_closed()

    async def limited():
        await asyncio.wait_for(main(), 55)

    uringcore.run(limited())
    paths = [next(directory.glob("*." + request.param)) for directory in directories]
    if request.param == "qlog":
        return [json.loads(path.read_text()) for path in paths]
    assert all(logger.flush() for logger in loggers)
    return [document_of(path) for path in paths]


@pytest.fixture(scope="module")
def traces(documents):
    return {trace["vantage_point"]["type"]: trace for d in documents for trace in d["traces"]}


def data_of(trace, name):
    return [event["data"] for event in trace["events"] if event["name"] == name]


def numbered(packets):
    return {(p["header"]["packet_type"], p["header"]["packet_number"]) for p in packets}


def test_the_loader_takes_the_files_without_a_complaint(documents):
    for document in documents:
        # One of QlogSchema02's versionAliases; qvis shows an alert for a file without a format.
        assert document["qlog_version"] in ("draft-02", "draft-02-RC1", "qlog-03-WIP", "0.3")
        # TextSequenceJSONToQlog, which reads .sqlog files, accepts only a header with this format.
        is_sequence = "serialization_format" in document
        assert document["qlog_format"] == ("JSON-SEQ" if is_sequence else "JSON")
        (trace,) = document["traces"]
        assert trace["vantage_point"]["type"] in ("client", "server")
        assert "ODCID" in trace["common_fields"]
        times = [event["time"] for event in trace["events"]]
        assert all(isinstance(time, float) for time in times)
        # qvis would sort events that are out of order, with an alert.
        assert times == sorted(times) and times[-1] > times[0]
        for event in trace["events"]:
            category, _, kind = event["name"].partition(":")
            assert category and kind and isinstance(event["data"], dict)
            # qvis would split grouped traces.
            assert "group_id" not in event
            # Fields that draft-02 has moved; qvis warns about the old ones.
            header = event["data"].get("header", {})
            assert not {"packet_size", "payload_length"} & set(header)
            assert "packet_type" not in event["data"]


def test_the_sequence_diagram_finds_both_ends_of_every_arrow(traces):
    for sender, receiver in (("client", "server"), ("server", "client")):
        sent = data_of(traces[sender], "transport:packet_sent")
        received = data_of(traces[receiver], "transport:packet_received")
        for packet in sent + received:
            assert isinstance(packet["header"]["packet_number"], int)
            assert packet["header"]["packet_type"] in ("initial", "handshake", "0RTT", "1RTT")
            assert all(isinstance(frame["frame_type"], str) for frame in packet["frames"])
        assert numbered(received) <= numbered(sent)
    # qvis aligns the clocks of both traces by the client's first round-trip time.
    metrics = data_of(traces["client"], "recovery:metrics_updated")
    first = next(data["latest_rtt"] for data in metrics if "latest_rtt" in data)
    assert first > DELAY * 1000
    names = [event["name"] for event in traces["client"]["events"]]
    for name in ("connectivity:connection_started", "connectivity:connection_closed"):
        assert name in names


def test_the_congestion_diagram_has_sizes_acknowledgements_losses_and_estimates(traces):
    server, client = traces["server"], traces["client"]
    sent = {
        packet["header"]["packet_number"]: packet["raw"]["length"]
        for packet in data_of(server, "transport:packet_sent")
        if packet["header"]["packet_type"] == "1RTT"
    }
    assert sum(sent.values()) > SIZE and min(sent.values()) > 20
    acknowledged = set()
    for packet in data_of(server, "transport:packet_received"):
        assert packet["raw"]["length"] > 0
        for frame in packet["frames"]:
            if frame["frame_type"] == "ack" and packet["header"]["packet_type"] == "1RTT":
                for first, last in frame["acked_ranges"]:
                    acknowledged |= set(range(first, last + 1))
    assert acknowledged <= set(sent)
    lost = [data for data in data_of(server, "recovery:packet_lost") if data["type"] == "1RTT"]
    arrived = numbered(data_of(client, "transport:packet_received"))
    dropped = numbered(data_of(server, "transport:packet_sent")) - arrived
    # Every dropped datagram contained such a packet, except perhaps one of the handshake.
    assert len(dropped & numbered(lost)) >= len(LOST) - 1
    for packet in lost:
        number = packet["header"]["packet_number"]
        assert packet["raw"]["length"] == sent[number]
        # These fields are where aioquic puts them.
        assert (packet["header"]["packet_type"], packet["packet_number"]) == ("1RTT", number)
        assert packet["trigger"] in ("reordering_threshold", "time_threshold")
    metrics = data_of(server, "recovery:metrics_updated")
    for data in metrics:
        assert data["cwnd"] > 0 and data["bytes_in_flight"] >= 0
    assert max(data["bytes_in_flight"] for data in metrics) > 10_000
    assert metrics[-1]["ssthresh"] > 0
    with_rtt = [data for data in metrics if "latest_rtt" in data]
    assert len(with_rtt) > 10
    for data in with_rtt:
        assert data["min_rtt"] > DELAY * 1000
        assert data["smoothed_rtt"] > 0 and data["rtt_variance"] >= 0
    parameters = {data["owner"]: data for data in data_of(server, "transport:parameters_set")}
    assert parameters["remote"]["initial_max_data"] > 0
    assert parameters["remote"]["initial_max_stream_data_bidi_remote"] > 0
    states = [data["new"] for data in data_of(server, "recovery:congestion_state_updated")]
    assert states[0] == "slow_start" and "recovery" in states


def test_the_multiplexing_diagram_sees_every_byte_and_what_filled_the_holes(traces):
    # qvis shows a client by the packets that it received, a server by those that it sent.
    for side, name in (("client", "packet_received"), ("server", "packet_sent")):
        end, holes, covered, finished = 0, 0, set(), False
        for packet in data_of(traces[side], "transport:" + name):
            for frame in packet["frames"]:
                if frame["frame_type"] == "stream" and frame["stream_id"] == 0:
                    start, stop = frame["offset"], frame["offset"] + frame["length"]
                    holes += start < end
                    end = max(end, stop)
                    covered.add((start, stop))
                    finished |= frame["fin"]
        reached = 0
        for start, stop in sorted(covered):
            assert start <= reached, f"{side}: nothing at {reached}"
            reached = max(reached, stop)
        assert reached > SIZE and finished
        assert holes > 0, f"{side}: no lost data was sent again after later data"


def test_the_packetization_diagram_has_sizes_of_every_layer(traces):
    for side, trace in traces.items():
        for name in ("packet_sent", "packet_received"):
            streams = {}
            for packet in data_of(trace, "transport:" + name):
                # qvis reads the first frame, and the share of the packet that the frames fill.
                assert packet["frames"]
                lengths = [frame.get("length", 0) for frame in packet["frames"]]
                assert sum(lengths) < packet["raw"]["length"]
                for frame in packet["frames"]:
                    if frame["frame_type"] == "stream":
                        before = streams.get(frame["stream_id"], 0)
                        streams[frame["stream_id"]] = before + frame["length"]
            sends = (side == "client") == (name == "packet_sent")
            http = data_of(trace, f"http:frame_{'created' if name == 'packet_sent' else 'parsed'}")
            kinds = {data["frame"]["frame_type"] for data in http}
            assert kinds == ({"headers"} if sends else {"headers", "data"})
            for data in http:
                assert data["stream_id"] == 0
                assert data["byte_length"] == data["length"] > 0
            assert sum(data["length"] for data in http) < streams[0]
    headers = data_of(traces["client"], "http:frame_created")[0]["frame"]["headers"]
    assert {"name": ":path", "value": "/"} in headers
    # The value is not valid text, and the file contains the header nevertheless.
    assert headers[-1]["name"] == "x-bytes"
    for trace in traces.values():
        types = {data["new"] for data in data_of(trace, "http:stream_type_set")}
        assert types >= {"control", "qpack_encoder", "qpack_decoder"}
