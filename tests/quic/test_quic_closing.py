"""The ends of endpoints and connections: repeated closes, draining servers."""

from __future__ import annotations

import asyncio
import socket

import pytest

from tests.quic.harness import Echo, Recorder, eventually, serving
from tests.support.free_ports import free_port
from uringcore.asyncio import connect, serve
from uringcore.quic import events
from uringcore.quic._errors import (
    QuicConnectionError,
    QuicConnectionRefusedError,
)


class Forwarder(asyncio.DatagramProtocol):
    """A UDP path between one client and a server, to which a test can add loss and delay."""

    def __init__(self, server, delay):
        self.server = server
        self.delay = delay
        self.client = None
        # The number of coming datagrams to lose.
        self.lose_to_client = self.lose_to_server = 0
        self.lost = 0

    @classmethod
    async def start(cls, port, delay=0.0):
        loop = asyncio.get_running_loop()
        transport, self = await loop.create_datagram_endpoint(
            lambda: cls(("127.0.0.1", port), delay), local_addr=("127.0.0.1", 0)
        )
        return self, transport

    def connection_made(self, transport):
        self.transport = transport
        self.port = transport.get_extra_info("sockname")[1]

    def datagram_received(self, data, addr):
        if addr == self.server:
            if self.lose_to_client:
                self.lose_to_client -= 1
                self.lost += 1
            else:
                self.carry(data, self.client)
            return
        self.client = addr
        if self.lose_to_server:
            self.lose_to_server -= 1
            self.lost += 1
        else:
            self.carry(data, self.server)

    def carry(self, data, addr):
        if self.delay:
            asyncio.get_running_loop().call_later(self.delay, self.send, data, addr)
        else:
            self.send(data, addr)

    def send(self, data, addr):
        if not self.transport.is_closing():
            self.transport.sendto(data, addr)


class Lost(Recorder):
    """Records the reports of its end, in order."""

    def connection_made(self, transport):
        super().connection_made(transport)
        self.told = []

    def quic_event_received(self, event):
        super().quic_event_received(event)
        if isinstance(event, events.ConnectionTerminated):
            self.told.append(event)

    def connection_lost(self, exc):
        super().connection_lost(exc)
        self.told.append(exc)


def test_connection_lost_is_called_once_and_after_the_last_event(
    run_anywhere, server_configuration, client_configuration
):
    """The argument is the error, or ``None`` if the program closed the connection."""

    async def main():
        async with serving(server_configuration(), Lost) as (port, protocols):
            for code in (0, 0x100, None):
                protocols.clear()
                async with connect(
                    "127.0.0.1",
                    port,
                    configuration=client_configuration(),
                    create_protocol=Lost,
                ) as client:
                    await eventually(lambda: protocols)
                    if code is None:
                        client._quic.close(error_code=7, frame_type=6)
                        client.transmit()
                    else:
                        client.close(error_code=code)
                for protocol in (client, protocols[0]):
                    await eventually(lambda told=protocol.told: len(told) == 2)
                    terminated, exc = protocol.told
                    assert isinstance(terminated, events.ConnectionTerminated)
                    if code is None:
                        assert isinstance(exc, QuicConnectionError) and exc.error_code == 7
                    else:
                        assert exc is None

    run_anywhere(main())


async def settled(server):
    """Waits until the server has nothing more to send on its own."""
    sent = -1
    while sent != (sent := server.stats()["datagrams_sent"]):
        await asyncio.sleep(0.6)


@pytest.mark.parametrize("closing", ["connection", "endpoint"])
def test_a_lost_close_is_sent_again(
    run_anywhere, server_configuration, client_configuration, closing
):
    """The client never receives the first close; the server answers its next packet with a second one."""

    async def main():
        configuration = server_configuration(mtu_discovery=False)
        server = await serve("127.0.0.1", 0, configuration=configuration, create_protocol=Recorder)
        # The server keeps a closed connection for three probe time-outs only. A round trip of this length
        # makes them long enough for a busy machine.
        path, transport = await Forwarder.start(server.sockname[1], delay=0.1)
        async with connect(
            "127.0.0.1", path.port, configuration=client_configuration(), create_protocol=Recorder
        ) as client:
            await client.ping()
            await settled(server)
            path.lose_to_client = 1
            if closing == "connection":
                server.close_clients(7, "gone")
            else:
                server.transport.close()
            await eventually(lambda: path.lost == 1)
            assert not client._closed.is_set()
            client._quic.send_ping(1)
            client.transmit()
            end = await asyncio.wait_for(client.wait_for(events.ConnectionTerminated), 20)
            assert end.kind == "peer_application"
            assert end.error_code == (7 if closing == "connection" else 0)
        server.close()
        await asyncio.wait_for(server.wait_closed(), 10)
        transport.close()

    run_anywhere(main())


def test_a_closed_server_drains(run_anywhere, server_configuration, client_configuration):
    async def main():
        # A fixed port below the ephemeral range: the kernel may give one that it chose to others as soon as
        # it is free.
        port = free_port()
        server = await serve(
            "127.0.0.1", port, configuration=server_configuration(), create_protocol=Echo
        )
        assert server.is_serving()
        async with connect("127.0.0.1", port, configuration=client_configuration()) as client:
            reader, writer = await client.create_stream()
            server.close()
            server.close()
            assert not server.is_serving()
            waiting = asyncio.ensure_future(server.wait_closed())
            with pytest.raises(QuicConnectionRefusedError):
                async with connect("127.0.0.1", port, configuration=client_configuration()):
                    raise AssertionError("not refused")
            writer.write(b"still there")
            writer.write_eof()
            assert await reader.read() == b"still there"
            assert not waiting.done()
        await asyncio.wait_for(waiting, 30)
        # The address is free.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind(("127.0.0.1", port))

    run_anywhere(main())


def test_draining_has_a_deadline(run_anywhere, server_configuration, client_configuration):
    async def main():
        server = await serve(
            "127.0.0.1", 0, configuration=server_configuration(), create_protocol=Echo
        )
        async with connect(
            "127.0.0.1",
            server.sockname[1],
            configuration=client_configuration(),
            create_protocol=Recorder,
        ) as client:
            await client.ping()
            server.close()
            await asyncio.wait_for(server.wait_closed(timeout=0.2), 30)
            end = await client.wait_for(events.ConnectionTerminated)
            assert (end.kind, end.error_code) == ("peer_application", 0)

    run_anywhere(main())


def test_a_server_without_connections_closes_at_once(run_anywhere, server_configuration):
    async def main():
        server = await serve("127.0.0.1", 0, configuration=server_configuration())
        server.close()
        server.close_clients()
        await asyncio.wait_for(server.wait_closed(), 30)
        await server.wait_closed(timeout=1)
        server.close()
        server.close_clients()
        server.stop_accepting()

    run_anywhere(main())


def test_a_client_does_not_wait_for_the_answer_to_its_close(
    run, server_configuration, client_configuration
):
    """Its socket waits in the background, and is closed when the answer arrives."""

    async def main():
        loop = asyncio.get_running_loop()
        async with serving(server_configuration()) as (port, _):
            path, transport = await Forwarder.start(port)
            async with connect(
                "127.0.0.1", path.port, configuration=client_configuration()
            ) as client:
                await client.ping()
                path.lose_to_server = 1000
            # The server has not received the close, so the client's socket is still open, and the client did
            # not wait for it.
            assert loop.stats()["quic_endpoints"] == 2
            path.lose_to_server = 0
            await eventually(lambda: loop.stats()["quic_endpoints"] == 1)
            transport.close()

    run(main())


def test_a_chosen_local_port_is_free_again_at_the_end_of_the_block(
    run_anywhere, server_configuration, client_configuration
):
    async def main():
        chosen = free_port()
        async with serving(server_configuration()) as (port, _):
            for _ in range(3):
                async with connect(
                    "127.0.0.1",
                    port,
                    configuration=client_configuration(),
                    local_host="127.0.0.1",
                    local_port=chosen,
                ) as client:
                    await client.ping()

    run_anywhere(main())
