"""qlog traces that are written during the connection: JSON text sequences within bounds."""

from __future__ import annotations

import json
import re
import signal
import stat
import subprocess
import sys

import pytest

from tests.quic.harness import Echo, Recorder, serving
from tests.quic.native.connection_pairs import stream_pair
from tests.quic.qlog_sequences import events_of, records_of
from tests.quic.test_quic_qlog import exchange
from tests.quic.test_quic_sans_io import CLIENT, SERVER
from uringcore.asyncio import connect
from uringcore.quic import events
from uringcore.quic._qlog_files import QuicSequenceLogger, TraceLimits
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.connection import QuicConnection

pytestmark = pytest.mark.either_backend

NAME = re.compile(r"trace-\d{13}-[0-9a-f]{16}\.sqlog")


@pytest.fixture
def logger(tmp_path):
    return QuicSequenceLogger(str(tmp_path))


def test_a_file_is_a_sequence_of_records(logger, tmp_path):
    trace = logger.start_trace(is_client=False, odcid=b"\x01\x02")
    trace.log_event(category="program", event="step", data={"text": 'a "b"\n\x1e\u00e9'})
    trace.log_event(category="program", event='end "\\\n', data={})
    logger.end_trace(trace)
    assert logger.flush()
    (path,) = tmp_path.iterdir()
    assert NAME.fullmatch(path.name)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    raw = path.read_bytes()
    # The separators of RFC 7464 section 2.2; they are escaped inside the text.
    records = raw.split(b"\x1e")
    assert records[0] == b"" and len(records) == 4
    assert all(record.endswith(b"}\n") and record.count(b"\n") == 1 for record in records[1:])
    # The schema recommends these fields early, so that the file's beginning identifies its format.
    assert b'"file_schema"' in raw[:256] and b'"serialization_format"' in raw[:256]
    header, first, last = (json.loads(record) for record in records[1:])
    assert header["file_schema"] == "urn:ietf:params:qlog:file:sequential"
    assert header["serialization_format"] == "application/qlog+json-seq"
    assert (header["qlog_version"], header["qlog_format"]) == ("0.3", "JSON-SEQ")
    assert header["trace"]["common_fields"] == {"ODCID": "0102"}
    assert header["trace"]["vantage_point"] == {"name": "uringcore", "type": "server"}
    assert all(":events:" in schema for schema in header["trace"]["event_schemas"])
    assert (first["name"], first["data"]) == ("program:step", {"text": 'a "b"\n\x1e\u00e9'})
    assert (last["name"], last["data"]) == ('program:end "\\\n', {})
    assert isinstance(first["time"], float) and first["time"] <= last["time"]


def test_a_trace_is_in_its_file_and_not_in_memory(logger):
    trace = logger.start_trace(is_client=True, odcid=b"\x03")
    trace.log_event(category="program", event="step", data={})
    assert trace.to_dict()["events"] == []
    assert logger.to_dict()["traces"][0]["common_fields"] == {"ODCID": "03"}
    logger.end_trace(trace)
    assert logger.to_dict()["traces"] == []
    with pytest.raises(ValueError, match="does not belong"):
        logger.end_trace(trace)


def test_connections_that_choose_one_id_have_a_file_each(logger, tmp_path):
    for number in range(3):
        trace = logger.start_trace(is_client=False, odcid=b"same")
        trace.log_event(category="program", event="number", data={"number": number})
        logger.end_trace(trace)
    logger.flush()
    found = [events_of(path)[0]["data"]["number"] for path in tmp_path.iterdir()]
    assert sorted(found) == [0, 1, 2]


def test_a_file_has_the_whole_life(run_anywhere, tmp_path, client_configuration, pki):
    """Data written during the connection's life is in the file before its end; the end comes last."""
    folders = [tmp_path / "client", tmp_path / "server"]
    for folder in folders:
        folder.mkdir()
    loggers = [QuicSequenceLogger(str(folder)) for folder in folders]

    async def main():
        server = QuicConfiguration(is_client=False, alpn_protocols=["test"], quic_logger=loggers[1])
        server.load_cert_chain(pki.server.certfile, pki.server.keyfile)
        client = client_configuration(quic_logger=loggers[0])
        async with serving(server, Echo) as (port, protocols):
            async with connect(
                "127.0.0.1", port, configuration=client, create_protocol=Recorder
            ) as protocol:
                stream_id = protocol._quic.get_next_available_stream_id()
                protocol._quic.send_stream_data(stream_id, b"hello", end_stream=True)
                protocol.transmit()
                await protocol.wait_for(events.StreamDataReceived, end_stream=True)
                odcid = protocol._quic.original_destination_connection_id
                for logger, folder in zip(loggers, folders, strict=True):
                    logger.flush()
                    (path,) = folder.iterdir()
                    names = {event["name"] for event in events_of(path)}
                    assert "transport:packet_received" in names
                    assert "connectivity:connection_closed" not in names
            await protocols[0].wait_closed()
        return odcid

    odcid = run_anywhere(main())
    for logger, folder, side in zip(loggers, folders, ("client", "server"), strict=True):
        logger.flush()
        (path,) = folder.iterdir()
        header, *found = records_of(path)
        assert header["trace"]["common_fields"]["ODCID"] == odcid.hex()
        assert header["trace"]["vantage_point"]["type"] == side
        times = [event["time"] for event in found]
        assert times == sorted(times)
        names = [event["name"] for event in found]
        assert names.index("transport:parameters_set") < names.index("transport:packet_sent")
        assert "connectivity:connection_closed" in names
        packets = [event["data"] for event in found if event["name"] == "transport:packet_sent"]
        kinds = {frame["frame_type"] for packet in packets for frame in packet["frames"]}
        assert {"crypto", "ack"} <= kinds
        assert not any(event["name"].startswith("loglevel") for event in found)


def test_a_listener_and_its_connections_take_one(run_anywhere, tmp_path, pki):
    """The typed API of `uringcore.quic`."""
    logger = QuicSequenceLogger(str(tmp_path))
    option = {"qlog": logger}

    async def main():
        async with stream_pair(pki, client=option, server=option):
            pass

    run_anywhere(main())
    logger.flush()
    headers = [records_of(path)[0] for path in tmp_path.iterdir()]
    assert {header["trace"]["vantage_point"]["type"] for header in headers} == {"client", "server"}
    assert len({header["trace"]["common_fields"]["ODCID"] for header in headers}) == 1


@pytest.fixture
def pair(server_configuration, client_configuration, tmp_path):
    """Returns a connection in memory whose client has a trace with these limits."""

    def made(**limits):
        logger = QuicSequenceLogger(str(tmp_path), limits=TraceLimits(**limits))
        client = client_configuration(server_name="localhost", quic_logger=logger)
        return logger, *exchange(QuicConnection, client, server_configuration(), steps=6)

    return made


def talk(client, server, rounds):
    """Exchanges this many PINGs and their acknowledgements in memory."""
    for number in range(rounds):
        now = 101.0 + number * 0.01
        client.send_ping(number)
        for data, _ in client.datagrams_to_send(now=now):
            server.receive_datagram(data, CLIENT, now=now)
        for data, _ in server.datagrams_to_send(now=now):
            client.receive_datagram(data, SERVER, now=now)
        while server.next_event() is not None or client.next_event() is not None:
            pass


def test_a_trace_ends_at_its_size_and_nothing_more_is_recorded(pair, tmp_path):
    logger, client, server = pair(trace_bytes=65_536)
    log = client._packet_log()
    talk(client, server, 300)
    logger.flush()
    (path,) = tmp_path.iterdir()
    assert path.stat().st_size <= 65_536
    last = events_of(path)[-1]
    assert last["name"] == "loglevel:warning"
    assert last["data"]["message"] == "the trace ends here: the limit of its file is reached"
    log.note("program:note", "{}")
    assert log.take() == []


def test_connections_beyond_those_that_are_traced_keep_nothing(pair, tmp_path):
    logger, client, server = pair(open_traces=1)
    (first,) = logger._traces
    second = logger.start_trace(is_client=True, odcid=b"\x04")
    second.log_event(category="program", event="lost", data={})
    # A connection's start does this.
    log = server._packet_log() or client._packet_log()
    second._begin(log, [1], 1, [])
    log.note("program:note", "{}")
    assert log.take() == []
    logger.end_trace(second)
    # When the first trace has ended and is written, another one can start.
    logger.end_trace(first)
    logger.flush()
    third = logger.start_trace(is_client=True, odcid=b"\x05")
    third.log_event(category="program", event="kept", data={})
    logger.end_trace(third)
    logger.flush()
    names = {event["name"] for path in tmp_path.iterdir() for event in events_of(path)}
    assert "program:kept" in names and "program:lost" not in names


def test_events_without_room_are_counted(logger, tmp_path):
    """An event that is larger than the buffer is never written."""
    trace = logger.start_trace(is_client=True, odcid=b"\x06")
    for number in range(3):
        trace.log_event(category="program", event="large", data={"text": "x" * 300_000})
        trace.log_event(category="program", event="small", data={"number": number})
    trace.log_event(category="program", event="large", data={"text": "x" * 300_000})
    logger.end_trace(trace)
    logger.flush()
    (path,) = tmp_path.iterdir()
    names = [event["name"] for event in events_of(path)]
    assert names == ["loglevel:warning", "program:small"] * 3 + ["loglevel:warning"]
    assert events_of(path)[0]["data"]["message"] == "1 events were dropped here"


def test_the_oldest_traces_make_room(tmp_path):
    logger = QuicSequenceLogger(str(tmp_path), limits=TraceLimits(traces=4))
    foreign = tmp_path / "notes.txt"
    foreign.write_text("stays")
    for number in range(12):
        trace = logger.start_trace(is_client=True, odcid=bytes([number]))
        trace.log_event(category="program", event="number", data={"number": number})
        logger.end_trace(trace)
        logger.flush()
    paths = list(tmp_path.glob("*.sqlog"))
    assert len(paths) <= 4
    assert 11 in [events_of(path)[0]["data"]["number"] for path in paths]
    assert foreign.exists()


def test_a_folder_that_goes_away_is_one_line_in_the_log(tmp_path, caplog):
    folder = tmp_path / "gone"
    folder.mkdir()
    logger = QuicSequenceLogger(str(folder))
    folder.rmdir()
    for _ in range(3):
        trace = logger.start_trace(is_client=True, odcid=b"\x07")
        trace.log_event(category="program", event="step", data={})
        logger.end_trace(trace)
        logger.flush()
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"qlog traces in {folder} are incomplete: No such file or directory")


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"trace_bytes": 100}, "trace_bytes must be 65536 to"),
        ({"total_bytes": 65_536}, "total_bytes must be 16777216 to"),
        ({"traces": 0}, "traces must be 1 to"),
        ({"open_traces": 0}, "open_traces must be 1 to"),
        ({"traces": 1 << 62}, "traces must be 1 to"),
    ],
)
def test_invalid_limits(limits, said):
    with pytest.raises(ValueError, match=said):
        TraceLimits(**limits)


def test_a_path_that_is_no_folder():
    with pytest.raises(ValueError, match="does not exist"):
        QuicSequenceLogger("/nonexistent")


ENDS = """
import os, signal, sys
from uringcore.quic._qlog_files import QuicSequenceLogger
logger = QuicSequenceLogger(sys.argv[1])
trace = logger.start_trace(is_client=True, odcid=b"x")
trace.log_event(category="program", event="first", data={})
if sys.argv[2] == "killed":
    logger.flush()
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[2] == "forked" and os.fork() == 0:
    trace.log_event(category="program", event="childs", data={})
    other = logger.start_trace(is_client=True, odcid=b"y")
    other.log_event(category="program", event="childs", data={})
    sys.exit()
trace.log_event(category="program", event="second", data={})
if sys.argv[2] == "forked":
    assert os.wait()[1] == 0
"""


@pytest.mark.parametrize("how", ["returns", "killed", "forked"])
def test_the_end_of_the_process(tmp_path, how):
    """A trace in progress is in the file even after a kill; a forked child's events go into a trace of its
    own.
    """
    command = [sys.executable, "-W", "ignore", "-c", ENDS, str(tmp_path), how]
    done = subprocess.run(command, timeout=60)
    assert done.returncode == (-signal.SIGKILL if how == "killed" else 0)
    found = sorted([event["name"] for event in events_of(path)] for path in tmp_path.iterdir())
    parents = ["program:first"] if how == "killed" else ["program:first", "program:second"]
    assert found == ([["program:childs"], parents] if how == "forked" else [parents])
