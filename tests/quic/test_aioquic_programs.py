"""Behaviour beyond the public names that programs for aioquic rely on: calls of their ``transmit``, private
tables, settings that aioquic ignores.
"""

from __future__ import annotations

import asyncio
import socket
import ssl

import pytest

from tests.loop.harness import rounds
from tests.quic.harness import (
    Echo,
    Recorder,
    completed,
    connecting,
    eventually,
    serving,
    ticket_of,
)
from uringcore import _buffer, buffer, tls
from uringcore.asyncio import connect, serve
from uringcore.h3 import connection as h3
from uringcore.quic import events
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.connection import QuicConnection

pytestmark = pytest.mark.either_backend


class Transmitting(Recorder):
    """Acts at each ``transmit``, which aioquic calls after every datagram."""

    def __init__(self, *args, **kwargs):
        self.transmitted = []
        super().__init__(*args, **kwargs)

    def transmit(self):
        super().transmit()
        self.transmitted.append(len(self.events))


def test_transmit_is_called_after_each_batch_of_datagrams(
    run_anywhere, server_configuration, client_configuration
):
    async def main():
        async with (
            serving(server_configuration(), Echo) as (port, _),
            connect(
                "127.0.0.1",
                port,
                configuration=client_configuration(),
                create_protocol=Transmitting,
            ) as client,
        ):
            # The handshake is complete, and `transmit` was called after its event.
            await eventually(lambda: client.transmitted[-1] == len(client.events))
            for number in range(3):
                before = len(client.events)
                client._quic.send_stream_data(0, bytes([number]))
                client.transmit()
                client.transmitted.clear()
                await eventually(lambda: len(client.events) > before)  # noqa: B023 - awaited here
                await eventually(lambda: client.transmitted)
                assert client.transmitted[-1] == len(client.events)
            # An acknowledgement brings no event, and is a datagram.
            client._quic.send_ping(7)
            await client.wait_for(events.PingAcknowledged)
            calls = len(client.transmitted)
        assert calls > 0
        closed = len(client.transmitted)
        await rounds(20)
        assert len(client.transmitted) == closed

    run_anywhere(main())


def test_transmit_is_called_for_the_batch_that_makes_the_protocol(
    run_anywhere, server_configuration, client_configuration
):
    async def main():
        async with (
            serving(server_configuration(), Transmitting) as (port, protocols),
            connect("127.0.0.1", port, configuration=client_configuration()) as client,
        ):
            await client.ping()
            (server,) = protocols
            heard = [type(event) for event in server.events[: server.transmitted[0]]]
            assert events.HandshakeCompleted not in heard

    run_anywhere(main())


def test_data_sent_in_transmit_after_early_data_leaves_with_the_first_flight(
    run_anywhere, server_configuration, client_configuration
):
    class Answering(Recorder):
        heard = None

        def transmit(self):
            heard = [type(event) for event in self.events]
            if self.heard is None and events.StreamDataReceived in heard:
                self.heard = heard
                self._quic.send_stream_data(0, b"answer", end_stream=True)
            super().transmit()

    async def main():
        async with serving(server_configuration(early_data=True), Answering) as (port, protocols):
            ticket = await ticket_of(port, client_configuration())
            client_side = client_configuration(session_ticket=ticket)
            async with connecting(port, client_side) as client:
                client._quic.send_stream_data(0, b"question", end_stream=True)
                client.transmit()
                await client.wait_for(events.StreamDataReceived, data=b"answer")
                await client.wait_connected()
                assert completed(client) == (True, True)
            assert events.HandshakeCompleted not in protocols[1].heard

    run_anywhere(main())


def test_a_transmit_that_raises_is_reported_and_the_connection_lives(
    run_anywhere, server_configuration, client_configuration
):
    class Raising(Recorder):
        fails = False

        def transmit(self):
            super().transmit()
            if self.fails:
                self.fails = False
                raise ZeroDivisionError

    async def main():
        reports = []
        asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.append(report))
        async with (
            serving(server_configuration(), Echo) as (port, _),
            connect(
                "127.0.0.1", port, configuration=client_configuration(), create_protocol=Raising
            ) as client,
        ):
            await client.ping()
            client._quic.send_stream_data(0, b"echo", end_stream=True)
            client.transmit()
            client.fails = True
            await client.wait_for(events.StreamDataReceived, end_stream=True)
            await eventually(lambda: reports)
            await client.ping()
        assert isinstance(reports[0]["exception"], ZeroDivisionError)

    run_anywhere(main())


def test_streams_and_paths_are_found_in_the_connections_tables(
    run_anywhere, server_configuration, client_configuration
):
    async def main():
        async with (
            serving(server_configuration(), Recorder) as (port, protocols),
            connect("127.0.0.1", port, configuration=client_configuration()) as client,
        ):
            quic = client._quic
            assert quic._network_paths[0].addr[:2] == ("127.0.0.1", port)
            assert quic._network_paths[0].is_validated
            assert dict(quic._streams) == {} and quic._streams.get(0) is None
            quic.send_stream_data(0, b"question", end_stream=True)
            quic.send_stream_data(2, b"one way")
            client.transmit()
            assert list(quic._streams) == [0, 2] and 0 in quic._streams and 4 not in quic._streams
            stream = quic._streams[0]
            assert not stream.sender.is_finished and not stream.receiver.is_finished
            await client.ping()
            await eventually(lambda: stream.sender.is_finished)
            assert stream.sender.buffer_is_empty and not stream.is_finished
            (server,) = protocols
            assert server._quic._network_paths[0].addr[0] == "127.0.0.1"
            there = server._quic._streams[0]
            assert there.receiver.is_finished and there.sender._reset_error_code is None
            server._quic.send_stream_data(0, b"answer", end_stream=True)
            server.transmit()
            await eventually(lambda: 0 not in quic._streams)
            assert stream.is_finished and stream.receiver.is_finished
            with pytest.raises(KeyError):
                quic._streams[0]
            quic.reset_stream(2, 5)
            assert 2 not in quic._streams or quic._streams[2].sender._reset_error_code is not None
        assert len(quic._streams) == 0

    run_anywhere(main())


def test_tables_are_empty_before_the_connection_begins():
    quic = QuicConnection(configuration=QuicConfiguration(is_client=True))
    assert quic._network_paths == [] and len(quic._streams) == 0 and 0 not in quic._streams


def test_a_servers_transport_has_aioquics_name(run_anywhere, server_configuration):
    async def main():
        server = await serve("127.0.0.1", 0, configuration=server_configuration())
        async with server:
            assert server._transport.get_extra_info("sockname") == server.sockname

    run_anywhere(main())


@pytest.mark.parametrize("host", ["127.0.0.1", "::"])
def test_a_servers_transport_sends_datagrams_of_the_program(
    run_anywhere, host, server_configuration
):
    """Programs send STUN and open NAT bindings for peers from the server's port."""

    async def main():
        loop = asyncio.get_running_loop()
        server = await serve(host, 0, configuration=server_configuration())
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
            peer.bind(("127.0.0.1", 0))
            peer.setblocking(False)
            async with server:
                transport = server._transport
                for data in (b"hole", bytearray(b"punched"), memoryview(b"twice")):
                    transport.sendto(data, peer.getsockname())
                    received = await asyncio.wait_for(loop.sock_recv(peer, 2000), 20)
                    assert received == bytes(data)
                transport.sendto(b"where from", peer.getsockname())
                while True:
                    try:
                        _, sender = peer.recvfrom(2000)
                        break
                    except BlockingIOError:
                        await asyncio.sleep(0.01)
                assert sender[1] == server.sockname[1]
                transport.sendto(bytes(70_000), peer.getsockname())
                with pytest.raises(
                    TypeError, match="data: a bytes-like object is required, not 'str'"
                ):
                    transport.sendto("text", peer.getsockname())
                with pytest.raises(TypeError, match="addr: must be an"):
                    transport.sendto(b"x", "127.0.0.1")
                for addr, error, words in (
                    ((b"127.0.0.1", 1), TypeError, "addr: the host must be str, not bytes"),
                    (("127.0.0.1", "1"), TypeError, "addr: the port must be int, not str"),
                    (("127.0.0.1", 0), ValueError, "addr: the port must be from 1 to 65535, not 0"),
                    (("127.0.0.1", 70_000), ValueError, "addr: the port must be from 1"),
                    (("no.such.name.invalid", 1), OSError, None),
                ):
                    with pytest.raises(error, match=words):
                        transport.sendto(b"x", addr)
                # After all these errors the transport still sends; an address of four parts is valid too, and
                # so is a host name (which may resolve to IPv6 on such a socket).
                for name in (
                    "127.0.0.1",
                    "localhost" if host == "127.0.0.1" else "::ffff:127.0.0.1",
                ):
                    transport.sendto(b"still there", (name, peer.getsockname()[1], 0, 0))
                    assert await asyncio.wait_for(loop.sock_recv(peer, 2000), 20) == b"still there"
            transport.sendto(b"after the end", peer.getsockname())

    run_anywhere(main())


def test_a_servers_transport_reaches_peers_of_its_family(run_anywhere, server_configuration):
    async def main():
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as peer:
            peer.bind(("::1", 0))
            peer.setblocking(False)
            addr = peer.getsockname()
            async with await serve("::", 0, configuration=server_configuration()) as server:
                for form in (addr[:2], addr):
                    server._transport.sendto(b"version 6", form)
                    assert await asyncio.wait_for(loop.sock_recv(peer, 2000), 20) == b"version 6"
            async with await serve("127.0.0.1", 0, configuration=server_configuration()) as server:
                with pytest.raises(ValueError, match="addr: a socket for IPv4 does not reach ::1"):
                    server._transport.sendto(b"", addr)

    run_anywhere(main())


def test_a_datagram_to_a_dead_port_takes_nothing_with_it(run_anywhere, server_configuration):
    """The socket's next call reports the network's error, whatever its purpose."""

    async def main():
        loop = asyncio.get_running_loop()
        server = await serve("127.0.0.1", 0, configuration=server_configuration())
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
            peer.bind(("127.0.0.1", 0))
            peer.setblocking(False)
            async with server:
                for number in range(20):
                    server._transport.sendto(b"nobody", ("127.0.0.1", 9))
                    server._transport.sendto(b"%d" % number, peer.getsockname())
                for number in range(20):
                    heard = await asyncio.wait_for(loop.sock_recv(peer, 2000), 20)
                    assert heard == b"%d" % number
                if run_anywhere.kind == "asyncio":
                    return
                # The socket's error reports are read, so none of them keeps the loop awake.
                before = loop.stats()["turns"]
                await asyncio.sleep(0.3)
                assert loop.stats()["turns"] - before < 20

    run_anywhere(main())


def test_private_modules_and_names_are_where_programs_import_them():
    assert _buffer.Buffer is buffer.Buffer and _buffer.BufferReadError is buffer.BufferReadError
    assert [epoch.value for epoch in tls.Epoch] == [0, 1, 2, 3]
    assert h3.stream_is_unidirectional(2) and not h3.stream_is_unidirectional(4)


def test_a_server_without_authorities_requests_no_optional_certificate(
    run_anywhere, server_configuration, client_configuration
):
    async def main():
        server = server_configuration(verify_mode=ssl.CERT_OPTIONAL)
        async with (
            serving(server, Echo) as (port, _),
            connect("127.0.0.1", port, configuration=client_configuration()) as client,
        ):
            await client.ping()

    run_anywhere(main())


def test_a_queue_at_the_mark_reports_its_fall(
    run_anywhere, server_configuration, client_configuration
):
    """Otherwise a program that stops writing at the mark would wait forever."""

    async def main():
        narrow = {"send_buffer_high": 65536, "send_buffer_low": 16384}
        async with (
            serving(server_configuration(), Echo) as (port, _),
            connect(
                "127.0.0.1",
                port,
                configuration=client_configuration(**narrow),
                create_protocol=Recorder,
            ) as client,
        ):
            client._quic.send_stream_data(0, bytes(65536))
            assert client._quic.get_send_buffer_size(0) == 65536
            client.transmit()
            await client.wait_for(events.StreamWritable, stream_id=0)
            await client.wait_for(events.ConnectionWritable)

    run_anywhere(main())
