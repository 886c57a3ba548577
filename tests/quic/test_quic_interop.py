"""aioquic as an independent peer, in both directions; tests/interop/test_peers.py moves megabytes."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from tests.quic.aioquic_peer import AioquicRecorder, aioquic_client, aioquic_serving
from tests.quic.harness import Echo, Recorder, eventually, patterned, serving
from uringcore.asyncio import connect
from uringcore.quic import events

pytestmark = pytest.mark.either_backend

aioquic_asyncio = pytest.importorskip("aioquic.asyncio")
aioquic_configuration = pytest.importorskip("aioquic.quic.configuration")
aioquic_events = pytest.importorskip("aioquic.quic.events")


async def _exchange(protocol, number):
    reader, writer = await protocol.create_stream()
    sent = patterned(1 << 20, number)
    for start in range(0, len(sent), 65536):
        writer.write(sent[start : start + 65536])
    writer.write_eof()
    assert await reader.read() == sent


def test_our_client_and_the_codes_of_their_server(run, pki, client_configuration):
    class Coding(aioquic_asyncio.QuicConnectionProtocol):
        def quic_event_received(self, event):
            if isinstance(event, aioquic_events.StreamDataReceived):
                if event.data == b"reset":
                    self._quic.reset_stream(event.stream_id, 11)
                elif event.data == b"stop":
                    self._quic.stop_stream(event.stream_id, 12)
                elif event.data == b"close":
                    self._quic.close(error_code=13, reason_phrase="as you like")
            self.transmit()

    async def main():
        async with (
            aioquic_serving(pki, Coding) as port,
            connect(
                "127.0.0.1", port, configuration=client_configuration(), create_protocol=Recorder
            ) as client,
        ):
            for stream_id, order in ((0, b"reset"), (4, b"stop"), (8, b"close")):
                client._quic.send_stream_data(stream_id, order)
            assert await client.wait_for(events.StreamReset) == events.StreamReset(11, 0)
            stopped = await client.wait_for(events.StopSendingReceived)
            assert stopped == events.StopSendingReceived(12, 4)
            end = await client.wait_for(events.ConnectionTerminated)
            assert end == events.ConnectionTerminated(13, None, "as you like")

    run(main())


def test_our_server_and_the_codes_of_their_client(run, pki, server_configuration):
    async def main():
        async with serving(server_configuration(), Recorder) as (port, protocols):
            async with aioquic_asyncio.connect(
                "127.0.0.1",
                port,
                configuration=aioquic_client(pki),
                create_protocol=AioquicRecorder,
            ) as client:
                client._quic.send_stream_data(0, b"begun")
                client.transmit()
                await eventually(lambda: protocols and protocols[0].data.get(0) == b"begun")
                server = protocols[0]
                client._quic.reset_stream(0, 21)
                client.transmit()
                assert await server.wait_for(events.StreamReset) == events.StreamReset(21, 0)
                server._quic.send_stream_data(1, b"ours")
                await eventually(lambda: len(client._stream_readers) == 1)
                server._quic.reset_stream(1, 22)
                wanted = aioquic_events.StreamReset(error_code=22, stream_id=1)
                await eventually(lambda: wanted in client.events)
                server.close(error_code=23, reason_phrase="enough")
                await asyncio.wait_for(client.wait_closed(), 5)
                assert client.events[-1] == aioquic_events.ConnectionTerminated(
                    error_code=23, frame_type=None, reason_phrase="enough"
                )

    run(main())


def test_datagrams_with_their_server(run, pki, client_configuration):
    async def main():
        configuration = client_configuration(max_datagram_frame_size=65536)
        async with (
            aioquic_serving(pki, max_datagram_frame_size=65536) as port,
            connect(
                "127.0.0.1", port, configuration=configuration, create_protocol=Recorder
            ) as client,
        ):
            client._quic.send_datagram_frame(b"there and back")
            echoed = await client.wait_for(events.DatagramFrameReceived)
            assert echoed.data == b"there and back"

    run(main())


def test_datagrams_with_their_client(run, pki, server_configuration):
    async def main():
        async with serving(server_configuration(max_datagram_frame_size=65536), Echo) as (port, _):
            async with aioquic_asyncio.connect(
                "127.0.0.1",
                port,
                configuration=aioquic_client(pki, max_datagram_frame_size=65536),
                create_protocol=AioquicRecorder,
            ) as client:
                client._quic.send_datagram_frame(b"there and back")
                client.transmit()
                wanted = aioquic_events.DatagramFrameReceived(data=b"there and back")
                await eventually(lambda: wanted in client.events)

    run(main())


def test_their_client_with_retry_and_key_update(run, pki, server_configuration):
    async def main():
        async with serving(server_configuration(), retry=True) as (port, _):
            async with aioquic_asyncio.connect(
                "127.0.0.1", port, configuration=aioquic_client(pki)
            ) as client:
                await client.ping()
                client.request_key_update()
                await client.ping()
                client.change_connection_id()
                await _exchange(client, 1)

    run(main())


def test_their_client_refuses_our_certificate(run, pki, server_configuration):
    async def main():
        async with serving(server_configuration(), Recorder) as (port, protocols):
            configuration = aioquic_configuration.QuicConfiguration(
                is_client=True, alpn_protocols=["test"]
            )
            configuration.load_verify_locations(str(pki.stranger.certfile))
            with pytest.raises(ConnectionError):
                async with aioquic_asyncio.connect("127.0.0.1", port, configuration=configuration):
                    pass
            end = await protocols[0].wait_for(events.ConnectionTerminated)
            assert end.kind == "tls"

    run(main())


def test_our_client_against_their_silent_verification(run, pki, client_configuration):
    async def main():
        async with aioquic_serving(pki) as port:
            configuration = client_configuration(verify_mode=ssl.CERT_NONE)
            configuration.load_verify_locations(cafile=None)
            async with connect("127.0.0.1", port, configuration=configuration) as client:
                await _exchange(client, 3)

    run(main())
