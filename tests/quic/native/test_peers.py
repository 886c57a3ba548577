"""The typed API against programs with aioquic's API, written for uringcore and for aioquic, in both roles."""

from __future__ import annotations

import asyncio

import pytest

from tests.quic.aioquic_peer import (
    AioquicEcho,
    AioquicRecorder,
    aioquic_asyncio,
    aioquic_client,
    aioquic_events,
    aioquic_serving,
)
from tests.quic.harness import Echo, Recorder, eventually, patterned, serving
from tests.quic.native.connection_pairs import client_config, listening
from uringcore import quic
from uringcore.asyncio import connect as asyncio_connect
from uringcore.quic import events

pytestmark = pytest.mark.either_backend


async def _echoes(port, config):
    """Checks that a server echoes."""
    async with quic.connect("127.0.0.1", port, config) as connection:
        for size in (0, 1, 1000, 200_000):
            message = patterned(size)
            async with connection.open_stream() as stream:

                async def send(stream=stream, message=message):
                    await stream.send_all(message)
                    await stream.finish()

                sending = asyncio.ensure_future(send())
                assert await stream.read() == message
                await sending
                await stream.wait_finished()
        connection.send_datagrams([b"one", b"two"])
        got = []
        while len(got) < 2:
            got += await connection.receive_datagrams()
        assert sorted(got) == [b"one", b"two"]


async def _serve(listener):
    """Echoes the streams and datagrams of one connection."""

    async def echo(stream):
        async with stream:
            async for piece in stream:
                await stream.send(piece)

    async def datagrams(connection):
        async for data in connection.datagrams():
            connection.send_datagram(data)

    async with await listener.accept() as connection:
        tasks = [asyncio.ensure_future(datagrams(connection))]
        async for stream in connection.streams():
            tasks.append(asyncio.ensure_future(echo(stream)))
        await asyncio.gather(*tasks)


def test_our_protocols_server(run_anywhere, pki, server_configuration):
    async def main():
        configuration = server_configuration(max_datagram_frame_size=65536)
        async with serving(configuration, Echo) as (port, _):
            await _echoes(port, client_config(pki))

    run_anywhere(main())


def test_our_protocols_client(run_anywhere, pki, client_configuration):
    async def main():
        async with listening(pki) as listener:
            server = asyncio.ensure_future(_serve(listener))
            configuration = client_configuration(max_datagram_frame_size=65536)
            async with asyncio_connect(
                *listener.address, configuration=configuration, create_protocol=Recorder
            ) as client:
                reader, writer = await client.create_stream()
                writer.write(patterned(200_000))
                writer.write_eof()
                assert await reader.read() == patterned(200_000)
                client._quic.send_datagram_frame(b"datagram")
                client.transmit()
                await client.wait_for(events.DatagramFrameReceived, data=b"datagram")
            await server

    run_anywhere(main())


def test_aioquics_server(run_anywhere, pki):
    async def main():
        async with aioquic_serving(pki, AioquicEcho, max_datagram_frame_size=65536) as port:
            await _echoes(port, client_config(pki))

    run_anywhere(main())


def test_aioquics_client(run_anywhere, pki):
    async def main():
        async with listening(pki) as listener:
            server = asyncio.ensure_future(_serve(listener))
            configuration = aioquic_client(pki, max_datagram_frame_size=65536)
            async with aioquic_asyncio.connect(
                *listener.address, configuration=configuration, create_protocol=AioquicRecorder
            ) as client:
                reader, writer = await client.create_stream()
                writer.write(patterned(50_000))
                writer.write_eof()
                assert await reader.read() == patterned(50_000)
                client._quic.send_datagram_frame(b"datagram")
                client.transmit()
                await eventually(
                    lambda: any(
                        isinstance(e, aioquic_events.DatagramFrameReceived) for e in client.events
                    )
                )
            await server

    run_anywhere(main())


def test_aioquics_resets_stops_and_close(run_anywhere, pki):
    async def main():
        async with listening(pki) as listener:
            configuration = aioquic_client(pki)
            async with aioquic_asyncio.connect(
                *listener.address, configuration=configuration, create_protocol=AioquicRecorder
            ) as client:
                other = await listener.accept()
                client._quic.send_stream_data(0, b"x")
                client._quic.reset_stream(0, 11)
                client._quic.send_stream_data(4, b"y")
                client._quic.stop_stream(4, 12)
                client.transmit()
                first, second = await other.accept_stream(), await other.accept_stream()
                with pytest.raises(quic.StreamResetError) as reset:
                    await first.read()
                assert reset.value.code == 11
                with pytest.raises(quic.StreamStoppedError) as stopped:
                    while True:
                        await second.send(b"z")
                        await asyncio.sleep(0)
                assert stopped.value.code == 12
                first.reset(13)
                second.stop(14)
                kinds = (aioquic_events.StreamReset, aioquic_events.StopSendingReceived)

                def codes():
                    return {e.error_code for e in client.events if isinstance(e, kinds)}

                await eventually(lambda: {13, 14} <= codes())
                client.close(error_code=15, reason_phrase="enough")
                with pytest.raises(quic.ConnectionClosedError) as closed:
                    await other.accept_stream()
                assert (closed.value.code, closed.value.reason) == (15, "enough")

    run_anywhere(main())
