"""Proxies built on aioquic, which move a connection's datagrams themselves."""

from __future__ import annotations

import socket

import pytest

from tests.quic.test_quic_sans_io import Pair, drained
from uringcore.h3.connection import H3Connection
from uringcore.h3.events import DataReceived, HeadersReceived
from uringcore.quic import events
from uringcore.quic._aioquic_private_tables import StreamCodes
from uringcore.quic._non_ip_peer_addresses import PeerNames
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.connection import QuicConnection, pull_quic_header
from uringcore.quic.logger import QuicLogger
from uringcore.tls import HandshakeType


class Named:
    """A client and a server whose addresses are names that the program chose."""

    def __init__(self, client, server, client_name, server_name, server_answers_from=None):
        self.client, self.server = client, server
        self.client_name, self.server_name = client_name, server_name
        self.client_names = {client_name}
        self.source = server_name if server_answers_from is None else server_answers_from
        self.now = 0.0

    def run(self, turns=10):
        for _ in range(turns):
            for data, addr in self.client.datagrams_to_send(now=self.now):
                assert addr == self.server_name
                self.server.receive_datagram(data, self.client_name, now=self.now)
            for data, addr in self.server.datagrams_to_send(now=self.now):
                assert addr in self.client_names
                self.client.receive_datagram(data, self.source, now=self.now)
            self.now += 0.01

    def move_client(self, name):
        self.client_name = name
        self.client_names.add(name)


def connected(sides, client_name, server_name, server_answers_from=None):
    """Returns a client and a server whose first flights are exchanged, and their link."""
    client, server = sides()
    client.connect(server_name, now=0.0)
    link = Named(client, server, client_name, server_name, server_answers_from)
    link.run()
    return client, server, link


@pytest.fixture
def no_lookup(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a name was looked up")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
def sides(client_configuration, server_configuration):
    def make(client_fields=None, **fields):
        options = {**fields, **(client_fields or {})}
        client = QuicConnection(
            configuration=client_configuration(server_name="localhost", **options)
        )
        return client, QuicConnection(configuration=server_configuration(**fields))

    return make


@pytest.mark.parametrize(
    ("client_name", "server_name"),
    [
        (None, None),
        (("client", 1234), ("example.mitmproxy.org", 443)),
        ("/run/client", 7),
        (("192.0.2.1", 5), ("no.such.host.invalid", 443)),
        (("client", 1234), ("192.0.2.9", 443)),
        (("::1", 5, 0, 0), b"server"),
    ],
)
def test_a_peer_may_have_any_name(sides, no_lookup, client_name, server_name):
    client, server, link = connected(sides, client_name, server_name)
    assert client.is_established and server.is_established
    assert client.get_peer_address() == server_name
    assert server.get_peer_address() == client_name
    if client_name is not None:
        assert [path.addr for path in server._network_paths] == [client_name]
    client.send_stream_data(0, b"hello", end_stream=True)
    link.run()
    assert events.StreamDataReceived(b"hello", True, 0) in drained(server)


def test_a_server_that_was_named_may_answer_from_an_address(sides, no_lookup):
    client, server, link = connected(sides, ("c", 1), ("server.invalid", 443), ("192.0.2.7", 443))
    assert client.is_established and server.is_established


def test_a_client_of_a_named_connection_may_move(sides):
    client, server, link = connected(sides, "first", "server")
    link.move_client("second")
    client.send_ping(1)
    link.run(40)
    assert server.get_peer_address() == "second"


def test_names_of_peers_are_bounded(sides):
    client, server, link = connected(sides, "client", "server")
    for number in range(1000):
        server.receive_datagram(b"\x40" + bytes(30), f"stranger {number}", now=link.now)
    assert len(server._peer_names._addresses) == 64
    assert server.get_peer_address() == "client"
    with pytest.raises(TypeError, match="unhashable"):
        server.receive_datagram(b"\x40" + bytes(30), ["a list"], now=link.now)


# Too short to trigger a stateless reset.
SHORT = b"\x40" + bytes(9)


def test_names_in_use_are_not_forgotten(sides):
    client, server, link = connected(sides, "client", "server")
    for number in range(200):
        for side in (client, server):
            side.receive_datagram(SHORT, f"stranger {number}", now=link.now)
    assert client.get_peer_address() == "server" and server.get_peer_address() == "client"
    drained(client)
    server.send_stream_data(1, b"down")
    client.send_stream_data(0, b"up")
    link.run(40)
    assert events.StreamDataReceived(b"down", False, 1) in drained(client)
    assert events.StreamDataReceived(b"up", False, 0) in drained(server)


def test_a_client_moves_among_foreign_names(sides):
    client, server, link = connected(sides, "first", "server")
    link.move_client("second")
    client.send_ping(1)
    for number in range(40):
        link.run(1)
        for foreign in range(70):
            server.receive_datagram(SHORT, (number, foreign), now=link.now)
    assert server.get_peer_address() == "second"


def test_addresses_of_names_are_no_names_and_are_not_given_twice():
    used = []
    names = PeerNames()
    server = names.begin("server")
    used.append(names.address_of("used", list))
    for number in range(70_000):
        assert names.address_of(number, lambda: used) not in (server, *used)
        if number % 1_000 == 0:
            # A program's own address with that prefix is treated like any other name.
            assert names.name_of(names.address_of(("100::1", 443), lambda: used)) == ("100::1", 443)
    assert names.name_of(server) == "server" and names.name_of(used[0]) == "used"
    assert len(names._addresses) == len(names.names) == 64
    recent = names.address_of(69_990, list)
    for number in range(60):
        names.address_of(f"other {number}", lambda: used)
    assert names.address_of(69_990, list) == recent
    forgotten = next(
        (f"100::{n:x}", 443) for n in range(1, 99) if (f"100::{n:x}", 443) not in names.names
    )
    assert names.name_of(forgotten) is None and names.with_program_names([(b"", forgotten)]) == []


class ClientHello(Exception):
    """Carries the message out of ``receive_datagram`` as an exception."""


def hooked(connection, seen, raises=True):
    """Installs the hook as mitmproxy does."""
    initialize = connection._initialize

    def handle_hello(input_buf, initial_buf, handshake_buf, onertt_buf):
        assert input_buf.pull_uint8() == HandshakeType.CLIENT_HELLO
        length = int.from_bytes(input_buf.pull_bytes(3), "big")
        offset = input_buf.tell()
        seen.append(input_buf.data_slice(offset, offset + length))
        assert [buf.tell() for buf in (initial_buf, handshake_buf, onertt_buf)] == [0, 0, 0]
        if raises:
            raise ClientHello

    def replaced(peer_cid):
        try:
            return initialize(peer_cid)
        finally:
            seen.append(peer_cid)
            connection.tls._server_handle_hello = handle_hello

    connection._initialize = replaced


def flight(client, **fields):
    client.connect(("192.0.2.2", 443), now=0.0)
    return [data for data, _ in client.datagrams_to_send(now=0.0)]


@pytest.mark.parametrize("order", [1, -1])
def test_a_clienthello_is_read_without_a_certificate(sides, order):
    # This ClientHello takes two datagrams.
    client, _ = sides(client_fields={"alpn_protocols": [f"protocol-{n:0200}" for n in range(8)]})
    datagrams = flight(client)
    assert len(datagrams) > 1
    datagrams = datagrams[::order]
    server = QuicConnection(
        configuration=QuicConfiguration(is_client=False, certificate="", private_key="")
    )
    seen = []
    hooked(server, seen)
    for data in datagrams[:-1]:
        server.receive_datagram(data, ("0.0.0.0", 0), now=0.0)
    assert seen == [client.original_destination_connection_id]
    with pytest.raises(ClientHello):
        server.receive_datagram(datagrams[-1], ("0.0.0.0", 0), now=0.0)
    assert b"localhost" in seen[1] and seen[1][:2] == b"\x03\x03"


def test_a_handshake_goes_on_behind_a_hook_that_returns(sides):
    client, server = sides(client_fields={"alpn_protocols": ["test", *"abcdefgh"]})
    seen = []
    hooked(server, seen, raises=False)
    client.connect(("192.0.2.2", 443), now=0.0)
    Named(client, server, ("192.0.2.1", 9), ("192.0.2.2", 443)).run()
    assert client.is_established and server.is_established
    assert len(seen) == 2


def test_a_message_other_than_a_clienthello_is_in_the_trace(sides):
    client, _ = sides()
    [data] = flight(client)
    for spoiled, trigger in [
        (data[:600] + bytes([data[600] ^ 1]) + data[601:], "payload_decrypt_error"),
        (b"\xc0\x00\x00\x00\x09" + data[5:], "header_parse_error"),
        (b"?", "header_parse_error"),
    ]:
        logger = QuicLogger()
        server = QuicConnection(
            configuration=QuicConfiguration(
                is_client=False, certificate="", private_key="", quic_logger=logger
            )
        )
        seen = []
        hooked(server, seen)
        server.receive_datagram(spoiled, ("0.0.0.0", 0), now=0.0)
        [trace] = logger.to_dict()["traces"]
        [event] = trace["events"]
        assert event["name"] == "transport:packet_dropped"
        assert event["data"]["trigger"] == trigger
        assert len(seen) == 1


def test_the_end_is_reported_when_nothing_more_is_to_be_sent(
    client_configuration, server_configuration
):
    link = Pair(client_configuration(server_name="localhost"), server_configuration())
    link.connect()
    link.run(lambda: link.client.is_established and link.server.is_established)
    link.run(limit=1.0)
    drained(link.client)
    drained(link.server)
    link.client.close(7, None, "done")
    # A program that stops at the event has not yet sent the close.
    assert drained(link.client) == []
    assert link.client.datagrams_to_send(now=link.now)
    link.client.close(7, None, "done")
    link.run(limit=0.0)
    assert drained(link.client) == []
    link.run()
    for side in (link.client, link.server):
        assert side.get_timer() is None
        [end] = [e for e in drained(side) if isinstance(e, events.ConnectionTerminated)]
        assert (end.error_code, end.reason_phrase) in [(7, "done"), (1, "Idle timeout")]


def test_a_failed_handshake_is_reported_after_its_close_is_sent(
    client_configuration, server_configuration
):
    link = Pair(client_configuration(server_name="other.name"), server_configuration())
    link.connect()
    link.run(lambda: link.client.is_closed)
    assert drained(link.client) == []
    link.run()
    [end] = [e for e in drained(link.client) if isinstance(e, events.ConnectionTerminated)]
    assert end.reason_phrase.startswith(
        "hostname 'other.name' doesn't match either of 'localhost', "
    )
    ends = [e for e in drained(link.server) if isinstance(e, events.ConnectionTerminated)]
    assert [e.reason_phrase for e in ends] == [end.reason_phrase]


def test_queued_data_is_visible_before_the_connection_begins(client_configuration):
    quic = QuicConnection(configuration=client_configuration(max_datagram_frame_size=65536))
    assert not quic._datagrams_pending and 42 not in quic._streams and len(quic._streams) == 0
    quic.send_datagram_frame(b"packet")
    quic.send_stream_data(42, b"pack")
    quic.send_stream_data(42, b"et")
    quic._get_or_create_stream_for_send(24)
    quic.stop_stream(24, 123)
    quic.reset_stream(42, 77)
    assert quic._datagrams_pending == [b"packet"]
    assert list(quic._streams) == [24, 42]
    sender = quic._streams[42].sender
    assert sender._buffer == b"packet" and not sender.buffer_is_empty
    assert sender.reset_pending and sender._reset_error_code == 77
    receiver = quic._streams[24].receiver
    assert receiver.stop_pending and receiver._stop_error_code == 123
    assert quic._streams[24].sender._reset_error_code is None
    assert quic._streams[42].receiver._stop_error_code is None


def test_data_that_waits_for_the_peers_limits_is_visible(
    client_configuration, server_configuration
):
    link = Pair(
        client_configuration(server_name="localhost"), server_configuration(max_stream_data=10)
    )
    link.connect()
    link.run(lambda: link.client.is_established and link.server.is_established)
    link.run(limit=1.0)
    link.client.send_stream_data(0, b"0123456789abcdef")
    link.client.datagrams_to_send(now=link.now)
    assert link.client._streams[0].sender._buffer == b"abcdef"
    link.client.reset_stream(0, 5)
    assert link.client._streams[0].sender._reset_error_code == 5


def test_looking_at_a_stream_does_not_copy_what_waits(client_configuration, monkeypatch):
    quic = QuicConnection(configuration=client_configuration())
    quic.send_stream_data(0, b"queued")
    copies = []
    queued = quic._queued_data
    monkeypatch.setattr(quic, "_queued_data", lambda number: copies.append(1) or queued(number))
    sender = quic._streams[0].sender
    assert not sender.buffer_is_empty and not sender.is_finished and not copies
    assert sender._buffer == b"queued" and len(copies) == 1
    quic.send_stream_data(4, b"")
    assert quic._streams[4].sender.buffer_is_empty


def test_a_code_that_comes_again_pushes_out_no_other():
    codes = StreamCodes()
    for number in range(256):
        codes.note_reset(number, number)
    codes.note_reset(255, 7)
    assert codes.reset_of(0) == 0 and codes.reset_of(255) == 255
    codes.note_reset(256, 7)
    assert codes.reset_of(0) is None and codes.reset_of(256) == 7


def test_codes_of_given_up_streams_are_bounded(client_configuration):
    quic = QuicConnection(configuration=client_configuration())
    for stream_id in range(0, 40_000, 4):
        quic.send_stream_data(stream_id, b"")
        quic.reset_stream(stream_id, 1)
    assert len(quic._codes._resets) <= 256


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (b"\x16\x03\x01\x00\x00", ValueError, "Packet fixed bit is zero"),
        (b"test", TypeError, "host_cid_length"),
    ],
)
def test_unreadable_short_headers_raise_aioquics_error(data, error, message):
    from uringcore.buffer import Buffer

    with pytest.raises(error, match=message):
        pull_quic_header(Buffer(data=data))


CONNECT = [
    (b":method", b"CONNECT"),
    (b":scheme", b"https"),
    (b":path", b"/"),
    (b":authority", b"example.org:443"),
]


@pytest.fixture
def http(client_configuration, server_configuration):
    link = Pair(client_configuration(server_name="localhost"), server_configuration())
    link.connect()
    link.run(lambda: link.client.is_established and link.server.is_established)
    return link, H3Connection(link.client), H3Connection(link.server)


def test_connect_may_have_a_scheme_and_a_path_as_with_aioquic(http):
    """pproxy sends and accepts them, although RFC 9114 section 4.4 forbids them."""
    link, client, server = http
    client.send_headers(0, CONNECT)
    link.run(limit=1.0)
    found = [event for one in drained(link.server) for event in server.handle_event(one)]
    assert [e.headers for e in found if isinstance(e, HeadersReceived)] == [CONNECT]
    server.send_headers(0, [(b":status", b"200")])
    client.send_data(0, b"through", end_stream=False)
    link.run(limit=1.0)
    found = [event for one in drained(link.server) for event in server.handle_event(one)]
    assert [e.data for e in found if isinstance(e, DataReceived)] == [b"through"]


@pytest.mark.parametrize(
    "authority",
    [[], [(b":authority", b"")], [(b":authority", b"a/b:1")], [(b":authority", b"a:x")]],
)
def test_the_target_of_a_connect_is_checked_nevertheless(http, authority):
    _, client, _ = http
    with pytest.raises(ValueError, match=r"authority|port|host"):
        client.send_headers(0, CONNECT[:3] + authority)
