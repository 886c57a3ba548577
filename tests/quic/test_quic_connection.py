"""Connections on the loop: handshake, streams, codes, datagrams, the end."""

from __future__ import annotations

import asyncio

import pytest

from tests.quic.harness import Echo, Recorder, eventually, patterned, serving
from uringcore.asyncio import QuicConnectionProtocol, connect
from uringcore.quic import events
from uringcore.quic._errors import QuicConnectionError, QuicIdleTimeoutError


def test_the_handshakes_event_contains_the_negotiated_values(
    run_anywhere, server_configuration, client_configuration
):
    async def main():
        server = server_configuration(alpn_protocols=["one", "two"])
        async with serving(server, Recorder) as (port, protocols):
            client = client_configuration(alpn_protocols=["two", "three"])
            async with connect(
                "localhost", port, configuration=client, create_protocol=Recorder
            ) as protocol:
                done = await protocol.wait_for(events.HandshakeCompleted)
                assert done == events.HandshakeCompleted("two", False, False)
                assert protocol.events[0] == events.ProtocolNegotiated(alpn_protocol="two")
                assert protocol._quic.alpn_protocol == "two"
                assert len(protocol._quic.get_peer_certificates()) == 1
                assert protocol._quic.get_peer_address()[1] == port
                await eventually(lambda: protocols)
                server_done = await protocols[0].wait_for(events.HandshakeCompleted)
                assert server_done.alpn_protocol == "two"
                assert protocols[0]._quic.server_name == "localhost"
            end = await protocols[0].wait_for(events.ConnectionTerminated)
            assert (end.error_code, end.frame_type, end.kind) == (0, None, "peer_application")

    run_anywhere(main())


def test_a_mebibyte_each_way_on_twenty_streams(
    run_anywhere, server_configuration, client_configuration
):
    async def exchange(client, number):
        reader, writer = await client.create_stream()
        sent = patterned(1 << 20, number)
        writer.write(sent)
        writer.write_eof()
        assert await reader.read() == sent

    async def main():
        async with (
            serving(server_configuration()) as (port, _),
            connect("127.0.0.1", port, configuration=client_configuration()) as client,
        ):
            await asyncio.gather(*(exchange(client, number) for number in range(20)))

    run_anywhere(main())


def test_stream_handlers_may_be_coroutine_functions(
    run_anywhere, server_configuration, client_configuration
):
    async def handler(reader, writer):
        writer.write((await reader.read()).upper())
        writer.write_eof()
        await writer.wait_closed()

    async def main():
        async with (
            serving(server_configuration(), QuicConnectionProtocol, stream_handler=handler) as (
                port,
                protocols,
            ),
            connect("127.0.0.1", port, configuration=client_configuration()) as client,
        ):
            for _ in range(3):
                reader, writer = await client.create_stream()
                writer.write(b"shout")
                writer.write_eof()
                assert await reader.read() == b"SHOUT"
            await eventually(lambda: not protocols[0]._streams and not client._streams)

    run_anywhere(main())


def test_unidirectional_streams_go_one_way(run, server_configuration, client_configuration):
    async def main():
        async with (
            serving(server_configuration(), Recorder) as (port, protocols),
            connect("127.0.0.1", port, configuration=client_configuration()) as client,
        ):
            reader, writer = await client.create_stream(is_unidirectional=True)
            assert writer.get_extra_info("stream_id") == 2
            writer.write(b"one way")
            writer.write_eof()
            assert await reader.read() == b""
            await eventually(lambda: protocols)
            await protocols[0].wait_for(events.StreamDataReceived, end_stream=True)
            assert protocols[0].data == {2: b"one way"}
            with pytest.raises(ValueError, match="stream 2"):
                protocols[0]._quic.send_stream_data(2, b"back")

    run(main())


def test_reset_and_stop_carry_their_codes(run_anywhere, server_configuration, client_configuration):
    async def main():
        async with (
            serving(server_configuration(), Recorder) as (port, protocols),
            connect(
                "127.0.0.1", port, configuration=client_configuration(), create_protocol=Recorder
            ) as client,
        ):
            client._quic.send_stream_data(0, b"begun")
            client.transmit()
            await eventually(lambda: protocols and protocols[0].data.get(0) == b"begun")
            server = protocols[0]
            client._quic.reset_stream(0, 77)
            client.transmit()
            assert await server.wait_for(events.StreamReset) == events.StreamReset(77, 0)
            client._quic.send_stream_data(4, b"more")
            client.transmit()
            await eventually(lambda: server.data.get(4) == b"more")
            server._quic.stop_stream(4, 88)
            server.transmit()
            stopped = await client.wait_for(events.StopSendingReceived)
            assert stopped == events.StopSendingReceived(error_code=88, stream_id=4)
            with pytest.raises(ConnectionResetError, match="stream 4") as caught:
                client._quic.send_stream_data(4, b"too late")
            # Programs for aioquic check for this exception, and answer a StopSendingReceived with a reset.
            assert isinstance(caught.value, RuntimeError)
            client._quic.reset_stream(4, 88)

    run_anywhere(main())


def test_misuse_of_streams_raises_and_names_the_stream(
    run, server_configuration, client_configuration
):
    async def main():
        async with (
            serving(server_configuration(), Recorder) as (port, _),
            connect("127.0.0.1", port, configuration=client_configuration()) as client,
        ):
            quic = client._quic
            with pytest.raises(ValueError, match="stream 1"):
                quic.send_stream_data(1, b"the server has not opened this")
            quic.send_stream_data(0, b"all", end_stream=True)
            with pytest.raises(RuntimeError, match="stream 0"):
                quic.send_stream_data(0, b"after the end")
            with pytest.raises(TypeError):
                quic.send_stream_data(4, "text")
            with pytest.raises(OverflowError):
                quic.send_stream_data(-1, b"")
            with pytest.raises(RuntimeError, match="once"):
                quic.connect(("127.0.0.1", port), 0.0)

    run(main())


def test_datagrams_go_both_ways_or_raise(run_anywhere, server_configuration, client_configuration):
    async def main():
        server = server_configuration(max_datagram_frame_size=65536)
        client = client_configuration(max_datagram_frame_size=65536)
        async with serving(server) as (port, _):
            async with connect(
                "127.0.0.1", port, configuration=client, create_protocol=Recorder
            ) as protocol:
                protocol._quic.send_datagram_frame(b"unreliable")
                protocol.transmit()
                echoed = await protocol.wait_for(events.DatagramFrameReceived)
                assert echoed == events.DatagramFrameReceived(data=b"unreliable")
                limit = protocol._quic.max_datagram_size
                assert 1000 < limit < 1500
                with pytest.raises(ValueError, match=str(limit)):
                    protocol._quic.send_datagram_frame(bytes(limit + 200))
            async with connect("127.0.0.1", port, configuration=client_configuration()) as without:
                with pytest.raises(ValueError, match="not supported"):
                    without._quic.send_datagram_frame(b"never")

    run_anywhere(main())


@pytest.mark.parametrize("code", [0, 1, 0x3FFFFFFF])
def test_close_codes_and_reasons_arrive(
    run_anywhere, server_configuration, client_configuration, code
):
    async def main():
        async with serving(server_configuration(), Recorder) as (port, protocols):
            async with connect(
                "127.0.0.1", port, configuration=client_configuration(), create_protocol=Recorder
            ) as client:
                await eventually(lambda: protocols)
                # Before the handshake is complete, the close would not carry the code (RFC 9000 section
                # 10.2.3).
                await protocols[0].wait_connected()
                protocols[0].close(error_code=code, reason_phrase="gone fishing")
                end = await client.wait_for(events.ConnectionTerminated)
                assert end == events.ConnectionTerminated(code, None, "gone fishing")
                assert end.kind == "peer_application"
                with pytest.raises(QuicConnectionError, match="gone fishing") as caught:
                    await client.ping()
                assert caught.value.error_code == code
            mine = await protocols[0].wait_for(events.ConnectionTerminated)
            assert mine.kind == "local"

    run_anywhere(main())


def test_silence_ends_with_the_idle_time_out(
    run_anywhere, server_configuration, client_configuration
):
    async def main():
        loop = asyncio.get_running_loop()
        server = server_configuration(idle_timeout=2.0)
        async with serving(server, Recorder) as (port, protocols):
            configuration = client_configuration(idle_timeout=2.0)
            # Taken before the connection starts: the moment of its last packet cannot be seen from here.
            started = loop.time()
            async with connect(
                "127.0.0.1", port, configuration=configuration, create_protocol=Recorder
            ) as client:
                end = await client.wait_for(events.ConnectionTerminated)
                assert end.kind == "idle_timeout"
                assert 1.9 < loop.time() - started < 30
                with pytest.raises(QuicIdleTimeoutError):
                    await client.wait_connected()
            await protocols[0].wait_for(events.ConnectionTerminated)

    run_anywhere(main())


def test_keep_alive_outlives_the_idle_time_out(run, server_configuration, client_configuration):
    async def main():
        async with serving(server_configuration(idle_timeout=2.0)) as (port, _):
            configuration = client_configuration(idle_timeout=2.0, keep_alive=0.1)
            async with connect("127.0.0.1", port, configuration=configuration) as client:
                await asyncio.sleep(2.5)
                reader, writer = await client.create_stream()
                writer.write(b"still here")
                writer.write_eof()
                assert await reader.read() == b"still here"

    run(main())


def test_ping_waits_for_the_answer(run_anywhere, server_configuration, client_configuration):
    async def main():
        async with (
            serving(server_configuration()) as (port, _),
            connect("127.0.0.1", port, configuration=client_configuration()) as client,
        ):
            await asyncio.wait_for(asyncio.gather(*(client.ping() for _ in range(5))), 5)
            client.request_key_update()
            await asyncio.wait_for(client.ping(), 5)
            client.change_connection_id()
            await asyncio.wait_for(client.ping(), 5)

    run_anywhere(main())


def test_statistics_count(run, server_configuration, client_configuration):
    async def main():
        loop = asyncio.get_running_loop()
        async with serving(server_configuration()) as (port, protocols):
            async with connect("127.0.0.1", port, configuration=client_configuration()) as client:
                reader, writer = await client.create_stream()
                writer.write(bytes(100_000))
                writer.write_eof()
                assert len(await reader.read()) == 100_000
                stats = client.stats()
                assert stats["bytes_sent"] > 100_000 and stats["bytes_received"] > 100_000
                assert 0 < stats["rtt"] < 5 and stats["path_mtu"] >= 1200
                assert loop.stats()["quic_endpoints"] == 2
                assert loop.stats()["quic_connections"] == 2
                counted = protocols[0]._transport.stats()
                assert counted["connections_accepted"] == 1
                assert counted["socket_sends"] > 0
            # Counters after the end are the final ones.
            assert client.stats()["bytes_sent"] >= stats["bytes_sent"]
        assert loop.stats()["quic_endpoints"] == 0
        assert loop.stats()["quic_connections"] == 0

    run(main())


def test_commands_before_connecting_are_carried_out(
    run_anywhere, server_configuration, client_configuration
):
    class Eager(Recorder):
        def __init__(self, quic, **kwargs):
            super().__init__(quic, **kwargs)
            self.ids = []
            for unidirectional in (True, True, False):
                stream_id = quic.get_next_available_stream_id(is_unidirectional=unidirectional)
                quic.send_stream_data(stream_id, b"hello", end_stream=not unidirectional)
                self.ids.append(stream_id)

    async def main():
        async with (
            serving(server_configuration()) as (port, protocols),
            connect(
                "127.0.0.1",
                port,
                configuration=client_configuration(),
                create_protocol=Eager,
                wait_connected=False,
            ) as client,
        ):
            assert client.ids == [2, 6, 0]
            await client.wait_for(events.StreamDataReceived, end_stream=True)
            assert client.data[0] == b"hello"
            await eventually(lambda: protocols[0].data.get(6) == b"hello")
            assert client._quic.get_next_available_stream_id() == 4

    run_anywhere(main())


def test_one_socket_carries_many_client_connections(
    run_anywhere, server_configuration, client_configuration
):
    async def main():
        from uringcore.quic._open_endpoint import create_quic_endpoint

        loop = asyncio.get_running_loop()
        configuration = client_configuration(server_name="localhost")
        async with serving(server_configuration()) as (port, _):
            transport, first = await create_quic_endpoint(
                loop, Recorder, remote_addr=("127.0.0.1", port), configuration=configuration
            )
            others = [
                transport.connect(Recorder, ("127.0.0.1", port), configuration=configuration)
                for _ in range(9)
            ]
            for number, protocol in enumerate((first, *others)):
                await protocol.wait_connected()
                protocol._quic.send_stream_data(0, b"%d" % number, end_stream=True)
                protocol.transmit()
            for number, protocol in enumerate((first, *others)):
                await protocol.wait_for(events.StreamDataReceived, end_stream=True)
                assert protocol.data[0] == b"%d" % number
            transport.close()
            await transport.wait_closed()
            for protocol in (first, *others):
                await asyncio.wait_for(protocol.wait_closed(), 5)

    run_anywhere(main())


def test_the_loops_own_method_opens_endpoints(run, server_configuration, client_configuration):
    async def main():
        loop = asyncio.get_running_loop()
        server, nothing = await loop.create_quic_endpoint(
            Echo, local_addr=("127.0.0.1", 0), configuration=server_configuration()
        )
        assert nothing is None
        port = server.get_extra_info("sockname")[1]
        transport, client = await loop.create_quic_endpoint(
            Recorder,
            remote_addr=("127.0.0.1", port),
            configuration=client_configuration(server_name="localhost"),
        )
        await client.wait_connected()
        await client.ping()
        transport.close()
        server.close()
        await transport.wait_closed()
        await server.wait_closed()

    run(main())


def test_retry_validates_the_address_first(run, server_configuration, client_configuration):
    async def main():
        async with (
            serving(server_configuration(), retry=True) as (port, protocols),
            connect("127.0.0.1", port, configuration=client_configuration()) as client,
        ):
            await client.ping()
            assert protocols[0]._transport.stats()["incoming_retried"] == 1

    run(main())


def test_ipv6_and_a_name_with_several_addresses(
    run_anywhere, server_configuration, client_configuration
):
    async def main():
        # No socket listens on ::1, which localhost may resolve to first.
        async with (
            serving(server_configuration(), host="127.0.0.1") as (port, _),
            connect("localhost", port, configuration=client_configuration()) as client,
        ):
            await client.ping()
        async with (
            serving(server_configuration(), host="::") as (port, _),
            connect("::1", port, configuration=client_configuration()) as client,
        ):
            await client.ping()
            async with connect("127.0.0.1", port, configuration=client_configuration()) as mapped:
                await mapped.ping()

    run_anywhere(main())
