"""With aioquic's names: a close, a reset or a stop with an invalid argument raises and changes nothing."""

from __future__ import annotations

import contextlib

import pytest

import uringcore
from tests.quic.harness import Echo, Recorder, serving
from tests.support.close_argument_checks import all_codes_refused, all_refused
from uringcore.asyncio import connect, serve
from uringcore.quic import events
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.connection import QuicConnection

LARGEST = (1 << 62) - 1
NAMES = {"code": "error_code", "reason": "reason_phrase"}


@contextlib.asynccontextmanager
async def recording(server_configuration, client_configuration):
    """A server and a client that records its events; yields the client."""
    async with (
        serving(server_configuration) as (port, _),
        connect(
            "127.0.0.1", port, configuration=client_configuration, create_protocol=Recorder
        ) as client,
    ):
        yield client


def closing(quic):
    return lambda code, reason: quic.close(error_code=code, reason_phrase=reason)


def test_a_connection_and_its_protocol(run_anywhere, server_configuration, client_configuration):
    async def main():
        async with recording(server_configuration(), client_configuration()) as client:
            quic = client._quic
            all_refused(client.close, 62, **NAMES)
            all_refused(closing(quic), 62, **NAMES)
            all_codes_refused(lambda kind: quic.close(frame_type=kind or -1), 62, code="frame_type")
            await client.ping()
            client.close(LARGEST, "enough")
            end = await client.wait_for(events.ConnectionTerminated)
            assert (end.error_code, end.reason_phrase) == (LARGEST, "enough")
            all_refused(client.close, 62, **NAMES)
            all_refused(closing(quic), 62, **NAMES)

    run_anywhere(main())


def test_streams(run_anywhere, server_configuration, client_configuration):
    async def main():
        async with recording(server_configuration(), client_configuration()) as client:
            quic = client._quic
            quic.send_stream_data(0, b"one")
            all_codes_refused(lambda code: quic.reset_stream(0, code), 62, code="error_code")
            all_codes_refused(lambda code: quic.stop_stream(0, code), 62, code="error_code")
            quic.send_stream_data(0, b" two", end_stream=True)
            client.transmit()
            await client.wait_for(events.StreamDataReceived, stream_id=0, end_stream=True)
            assert client.data[0] == b"one two"

    run_anywhere(main())


def test_a_protocol_that_has_not_begun():
    heard = []

    class Protocol(Recorder):
        def quic_event_received(self, event):
            heard.append(event)

    async def main():
        quic = QuicConnection(configuration=QuicConfiguration(is_client=True))
        protocol = Protocol(quic)
        all_refused(protocol.close, 62, **NAMES)
        all_refused(closing(quic), 62, **NAMES)
        assert not heard
        protocol.close(LARGEST, "never begun")
        assert [event.error_code for event in heard] == [LARGEST]

    uringcore.run(main())


def test_a_server(run_anywhere, server_configuration, client_configuration):
    async def main():
        server = await serve(
            "127.0.0.1", 0, configuration=server_configuration(), create_protocol=Echo
        )
        async with server:
            port = server.sockname[1]
            async with connect(
                "127.0.0.1",
                port,
                configuration=client_configuration(),
                create_protocol=Recorder,
            ) as client:
                all_refused(server.close_clients, 62, **NAMES)
                all_refused(server.transport.close_connections, 62, **NAMES)
                await client.ping()
                server.close_clients(LARGEST, "enough")
                end = await client.wait_for(events.ConnectionTerminated)
                assert (end.error_code, end.reason_phrase) == (LARGEST, "enough")
            server.transport.close()
            with pytest.raises(ValueError, match="error_code"):
                server.close_clients(-1)

    run_anywhere(main())
