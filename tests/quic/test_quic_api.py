"""The Python API: configuration, events, buffer, loggers, key log, names of aioquic."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import io
import json
import os
import ssl
import subprocess
import sys

import pytest

from tests.quic.harness import Recorder, serving
from uringcore import buffer, tls
from uringcore.asyncio import connect, serve
from uringcore.quic import events
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.logger import QuicFileLogger, QuicLogger

pytestmark = pytest.mark.either_backend


def _made(kind):
    values = {
        "alpn_protocol": "h3",
        "connection_id": b"\x01\x02",
        "data": b"data",
        "early_data_accepted": True,
        "end_stream": False,
        "error_code": 7,
        "frame_type": None,
        "queued_bytes": 6,
        "reason_phrase": "why",
        "session_resumed": False,
        "succeeded": True,
        "stream_id": 4,
        "uid": 5,
    }
    return {name: values[name] for name in kind.__match_args__}


KINDS = [getattr(events, name) for name in events.__all__ if name != "QuicEvent"]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_events_are_values(kind):
    fields = _made(kind)
    event = kind(**fields)
    assert isinstance(event, events.QuicEvent)
    assert event == kind(*fields.values())
    assert (event != kind(**fields)) is False
    for name, value in fields.items():
        assert getattr(event, name) == value
        with pytest.raises(AttributeError):
            setattr(event, name, value)
        assert f"{name}={value!r}" in repr(event)
    assert repr(event).startswith(kind.__name__ + "(")
    changed = {int: 9, bytes: b"x", str: "x", bool: False}
    other = {name: changed.get(type(v), v) for name, v in fields.items()}
    assert event != kind(**other)
    assert event != object()
    with pytest.raises(TypeError):
        kind()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_events_have_aioquics_fields_in_aioquics_order(kind):
    theirs = pytest.importorskip("aioquic.quic.events")
    if not hasattr(theirs, kind.__name__):
        assert kind in (
            events.ConnectionWritable,
            events.MigrationFinished,
            events.StreamAbandoned,
            events.StreamFinished,
            events.StreamWritable,
        )
        return
    their_fields = list(getattr(theirs, kind.__name__).__dataclass_fields__)
    assert list(kind.__match_args__) == their_fields


def test_events_match():
    match events.StreamDataReceived(b"data", True, 4):
        case events.StreamDataReceived(data=data, end_stream=True, stream_id=stream_id):
            assert (data, stream_id) == (b"data", 4)
        case _:
            pytest.fail("the event has to match")


@pytest.mark.parametrize(
    ("ours", "theirs", "extra"),
    [
        (
            "uringcore.asyncio:connect",
            "aioquic.asyncio:connect",
            {"happy_eyeballs_delay", "local_host"},
        ),
        ("uringcore.asyncio:serve", "aioquic.asyncio:serve", {"limits", "reuse_port", "workers"}),
        (
            "uringcore.asyncio:QuicConnectionProtocol.__init__",
            "aioquic.asyncio:QuicConnectionProtocol.__init__",
            set(),
        ),
    ],
)
def test_signatures_are_aioquics(ours, theirs, extra):
    pytest.importorskip("aioquic")

    def parameters(path):
        module, _, name = path.partition(":")
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        return inspect.signature(found).parameters

    our, their = parameters(ours), parameters(theirs)
    assert set(our) - set(their) == extra
    for name, parameter in their.items():
        assert our[name].kind == parameter.kind, name
        if parameter.default is inspect.Parameter.empty or isinstance(parameter.default, type):
            continue
        default = "auto" if name == "retry" else parameter.default
        assert our[name].default == default, name


def test_the_protocol_and_connection_have_aioquics_methods():
    theirs = pytest.importorskip("aioquic.quic.connection").QuicConnection
    from uringcore.quic.connection import QuicConnection

    public = {name for name in vars(theirs) if not name.startswith("_")}
    assert public - set(dir(QuicConnection)) == set()
    their_protocol = importlib.import_module("aioquic.asyncio.protocol").QuicConnectionProtocol
    from uringcore.asyncio.protocol import QuicConnectionProtocol

    public = {name for name in vars(their_protocol) if not name.startswith("_")}
    assert public - set(dir(QuicConnectionProtocol)) == set()


def test_the_configuration_has_aioquics_fields_and_defaults():
    theirs = pytest.importorskip("aioquic.quic.configuration").QuicConfiguration()
    ours = QuicConfiguration()
    for name in type(theirs).__dataclass_fields__:
        assert getattr(ours, name) == getattr(theirs, name), name


def test_certificates_come_in_every_form(run, pki, client_configuration):
    from cryptography.hazmat.primitives import serialization

    der = pki.server.der
    key_der = pki.server.key.private_bytes(
        serialization.Encoding.DER,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    forms = [
        (pki.server.certificate, pki.server.key),
        (der, key_der),
        (pki.server.pem, pki.server.keyfile.read_bytes()),
        (pki.server.certfile, str(pki.server.keyfile)),
    ]

    async def main():
        for certificate, key in forms:
            configuration = QuicConfiguration(
                is_client=False, alpn_protocols=["test"], certificate=certificate, private_key=key
            )
            async with (
                serving(configuration) as (port, _),
                connect("127.0.0.1", port, configuration=client_configuration()) as client,
            ):
                await client.ping()

    run(main())


def test_encrypted_and_joined_key_files(pki, tmp_path):
    from cryptography.hazmat.primitives import serialization

    encrypted = pki.server.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    (tmp_path / "key.pem").write_bytes(encrypted)
    configuration = QuicConfiguration(is_client=False)
    configuration.load_cert_chain(pki.server.certfile, tmp_path / "key.pem", "secret")
    configuration.setup()
    with pytest.raises(ValueError, match="password"):
        configuration.load_cert_chain(pki.server.certfile, tmp_path / "key.pem")
    (tmp_path / "both.pem").write_bytes(
        pki.server.keyfile.read_bytes() + pki.server.pem + pki.authority.pem
    )
    joined = QuicConfiguration(is_client=False)
    joined.load_cert_chain(tmp_path / "both.pem")
    assert len(joined.certificate_chain) == 1
    joined.setup()
    with pytest.raises(ValueError, match="CERTIFICATE"):
        tls.load_pem_x509_certificates(b"nothing")


def test_authorities_come_from_files_directories_and_bytes(
    run, pki, tmp_path, server_configuration
):
    (tmp_path / "one.pem").write_bytes(pki.stranger.pem)
    (tmp_path / "two.pem").write_bytes(pki.authority.pem)

    async def main():
        async with serving(server_configuration()) as (port, _):
            for sources in (
                {"cadata": pki.authority.pem},
                {"capath": str(tmp_path)},
                {"cafile": tmp_path / "two.pem", "cadata": pki.stranger.pem},
            ):
                configuration = QuicConfiguration(alpn_protocols=["test"])
                configuration.load_verify_locations(**sources)
                async with connect("127.0.0.1", port, configuration=configuration) as client:
                    await client.ping()

    run(main())


def test_a_setup_is_built_once_and_again_after_a_change(client_configuration):
    configuration = client_configuration()
    first = configuration.setup()
    configuration.server_name = "elsewhere.example"
    assert configuration.setup() is first
    configuration.max_data = 1 << 21
    second = configuration.setup()
    assert second is not first
    configuration.alpn_protocols.append("more")
    assert configuration.setup() is not second


def test_connect_does_not_write_to_the_callers_configuration(
    run, server_configuration, client_configuration
):
    async def main():
        configuration = client_configuration()
        async with serving(server_configuration()) as (port, _):
            for host in ("localhost", "127.0.0.1"):
                async with connect(host, port, configuration=configuration) as client:
                    await client.ping()
        assert configuration.server_name is None

    run(main())


def test_the_sides_are_not_mixed_up(run, server_configuration, client_configuration):
    async def main():
        with pytest.raises(ValueError, match="is_client"):
            await serve("127.0.0.1", 0, configuration=client_configuration())
        with pytest.raises(ValueError, match="is_client"):
            async with connect("127.0.0.1", 1, configuration=server_configuration()):
                pass
        with pytest.raises(OSError, match="binding"):
            await serve("192.0.2.77", 0, configuration=server_configuration())

    run(main())


@pytest.mark.parametrize("suite", list(tls.CipherSuite))
def test_cipher_suites_are_obeyed(run, server_configuration, client_configuration, suite):
    async def main():
        async with serving(server_configuration()) as (port, _):
            configuration = client_configuration(cipher_suites=[suite])
            async with connect("127.0.0.1", port, configuration=configuration) as client:
                await client.ping()

    run(main())


@pytest.mark.parametrize("algorithm", ["reno", "cubic", "bbr"])
def test_congestion_controllers_carry_data(
    run, server_configuration, client_configuration, algorithm
):
    async def main():
        async with serving(server_configuration(congestion_control_algorithm=algorithm)) as (
            port,
            _,
        ):
            configuration = client_configuration(congestion_control_algorithm=algorithm)
            async with connect("127.0.0.1", port, configuration=configuration) as client:
                reader, writer = await client.create_stream()
                writer.write(bytes(500_000))
                writer.write_eof()
                assert len(await reader.read()) == 500_000

    run(main())


def test_key_logs_have_the_secrets_of_both_sides(
    run_anywhere, server_configuration, client_configuration
):
    async def main():
        ours, theirs = io.StringIO(), io.StringIO()
        async with serving(server_configuration(secrets_log_file=theirs), Recorder) as (
            port,
            protocols,
        ):
            configuration = client_configuration(secrets_log_file=ours)
            async with connect("127.0.0.1", port, configuration=configuration) as client:
                await client.ping()
                await protocols[0].wait_connected()
        lines = ours.getvalue().splitlines()
        labels = {line.split()[0] for line in lines}
        assert {
            "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
            "SERVER_HANDSHAKE_TRAFFIC_SECRET",
            "CLIENT_TRAFFIC_SECRET_0",
            "SERVER_TRAFFIC_SECRET_0",
        } <= labels
        assert all(len(line.split()[1]) == 64 for line in lines)
        assert set(lines) == set(theirs.getvalue().splitlines())

    run_anywhere(main())


def test_loggers_write_traces(run_anywhere, tmp_path, server_configuration, client_configuration):
    async def main():
        memory = QuicLogger()
        server = server_configuration(quic_logger=QuicFileLogger(str(tmp_path)))
        async with serving(server) as (port, protocols):
            configuration = client_configuration(quic_logger=memory)
            async with connect("127.0.0.1", port, configuration=configuration) as client:
                reader, writer = await client.create_stream()
                writer.write(b"logged")
                writer.write_eof()
                assert await reader.read() == b"logged"
            await protocols[0].wait_for(events.ConnectionTerminated)
        document = memory.to_dict()
        assert document["qlog_version"] == "0.3"
        (trace,) = document["traces"]
        assert trace["vantage_point"]["type"] == "client"
        names = [event["name"] for event in trace["events"]]
        assert names[0] == "transport:parameters_set"
        assert "transport:packet_sent" in names
        assert "connectivity:connection_closed" in names
        json.dumps(document)
        (path,) = tmp_path.glob("*.qlog")
        written = json.loads(path.read_text())
        assert written["traces"][0]["vantage_point"]["type"] == "server"

    run_anywhere(main())
    with pytest.raises(ValueError, match="does not exist"):
        QuicFileLogger("/nonexistent")


def test_a_failed_trace_leaves_no_partial_file(tmp_path):
    """A program that watches the directory sees complete traces only."""
    logger = QuicFileLogger(str(tmp_path))
    trace = logger.start_trace(is_client=True, odcid=b"\x01\x02")
    trace.log_event(category="app", event="fine", data={"number": 1})
    trace.log_event(category="app", event="not_json", data={"object": object()})
    with pytest.raises(TypeError, match="not JSON serializable"):
        logger.end_trace(trace)
    assert list(tmp_path.iterdir()) == []
    trace = logger.start_trace(is_client=True, odcid=b"\x03")
    logger.end_trace(trace)
    assert [path.name for path in tmp_path.iterdir()] == ["03.qlog"]


def test_a_trace_is_readable_for_its_owner_alone(tmp_path):
    logger = QuicFileLogger(str(tmp_path))
    before = os.umask(0)
    try:
        logger.end_trace(logger.start_trace(is_client=False, odcid=b"\x04"))
    finally:
        os.umask(before)
    (path,) = tmp_path.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_buffer_is_aioquics():
    theirs = pytest.importorskip("aioquic.buffer")
    for value in (0, 63, 64, 16383, 16384, (1 << 30) - 1, 1 << 30, (1 << 62) - 1):
        encoded = buffer.encode_uint_var(value)
        assert encoded == theirs.encode_uint_var(value)
        assert buffer.size_uint_var(value) == len(encoded)
        assert buffer.Buffer(data=encoded).pull_uint_var() == value
    with pytest.raises(ValueError):
        buffer.encode_uint_var(1 << 62)
    with pytest.raises(ValueError):
        buffer.size_uint_var(1 << 62)
    ours, other = buffer.Buffer(capacity=40), theirs.Buffer(capacity=40)
    for one in (ours, other):
        one.push_uint8(1)
        one.push_uint16(2)
        one.push_uint32(3)
        one.push_uint64(4)
        one.push_bytes(b"bytes")
        one.push_uint_var(70000)
    assert ours.data == other.data and ours.tell() == other.tell() == 24
    assert ours.capacity == 40 and not ours.eof()
    ours.seek(0)
    assert [ours.pull_uint8(), ours.pull_uint16(), ours.pull_uint32(), ours.pull_uint64()] == [
        1,
        2,
        3,
        4,
    ]
    assert ours.pull_bytes(5) == b"bytes" and ours.pull_uint_var() == 70000
    assert ours.data_slice(15, 20) == b"bytes"
    ours.seek(40)
    assert ours.eof()
    for call in (
        lambda: ours.pull_uint8(),
        lambda: ours.pull_uint_var(),
        lambda: ours.pull_bytes(1),
        lambda: ours.seek(41),
        lambda: ours.data_slice(30, 41),
        lambda: ours.data_slice(5, 4),
    ):
        with pytest.raises(buffer.BufferReadError):
            call()
    with pytest.raises(buffer.BufferWriteError):
        ours.push_uint8(1)


def test_the_core_needs_no_package():
    """``cryptography`` is imported only if the program passes its objects."""
    program = (
        "import sys; sys.modules['cryptography'] = None\n"
        "import uringcore.asyncio, uringcore.quic.configuration, uringcore.tls, uringcore.buffer\n"
        "import uringcore.quic.logger, uringcore.quic.connection\n"
        "assert 'uringcore.quic' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
    # The loop does not import QUIC before its first use.
    program = "import sys, uringcore; assert 'uringcore.quic._open_endpoint' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)


def test_verification_can_be_switched_off(run, pki, server_configuration):
    async def main():
        async with serving(server_configuration(pki.elsewhere)) as (port, _):
            configuration = QuicConfiguration(alpn_protocols=["test"], verify_mode=ssl.CERT_NONE)
            async with connect("127.0.0.1", port, configuration=configuration) as client:
                await asyncio.wait_for(client.ping(), 5)

    run(main())
