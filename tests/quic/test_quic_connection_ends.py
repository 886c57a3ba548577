"""Every kind of end of a connection, seen from both sides: reported once, as the last event, and then
removed.
"""

from __future__ import annotations

import asyncio
import socket
import ssl

import pytest

from tests.loop.harness import rounds
from tests.quic.harness import Recorder, eventually, serving
from tests.support.free_ports import free_port
from tests.support.simulated_link import Conditions
from tests.support.udp_proxy import ImpairmentProxy
from uringcore.asyncio import QuicConnectionProtocol, connect
from uringcore.quic import events
from uringcore.quic._errors import QuicConnectionError
from uringcore.quic.connection import QuicConnection

pytestmark = pytest.mark.either_backend

DEAD = Conditions(loss=1.0)


async def _established(client, protocols):
    await client.wait_connected()
    await client.ping()
    return protocols[0]


async def client_closes(client, protocols, proxy):
    await _established(client, protocols)
    client.close(error_code=7, reason_phrase="enough")


async def server_closes(client, protocols, proxy):
    server = await _established(client, protocols)
    server.close(error_code=8, reason_phrase="enough")


async def both_close(client, protocols, proxy):
    server = await _established(client, protocols)
    server.close(error_code=8)
    client.close(error_code=7)


async def client_closes_as_transport(client, protocols, proxy):
    await _established(client, protocols)
    client._quic.close(error_code=0x0A, frame_type=0x06, reason_phrase="odd")
    client.transmit()


async def client_closes_with_data_and_waiters(client, protocols, proxy):
    server = await _established(client, protocols)
    client._quic.send_stream_data(0, bytes(8 << 20))
    client.transmit()
    await eventually(lambda: server.data)
    server._quic.pause_stream(0)
    client.close(error_code=7)


async def client_closes_in_the_handshake(client, protocols, proxy):
    client.close(error_code=7)


async def nobody_says_anything(client, protocols, proxy):
    await _established(client, protocols)


async def the_path_dies(client, protocols, proxy):
    server = await _established(client, protocols)
    proxy.set_conditions(DEAD)
    # Both sides have data to send that never arrives.
    client._quic.send_stream_data(0, bytes(100_000))
    server._quic.send_stream_data(1, bytes(100_000))
    client.transmit()
    server.transmit()


async def the_path_is_dead(client, protocols, proxy):
    proxy.set_conditions(DEAD)


async def the_handshake_decides(client, protocols, proxy):
    """The two configurations do not match."""


async def the_clients_socket_is_closed(client, protocols, proxy):
    await _established(client, protocols)
    client._transport.close()


async def the_servers_socket_is_closed(client, protocols, proxy):
    server = await _established(client, protocols)
    server._transport.close()


class Refusing(Recorder):
    def connection_made(self, transport):
        raise RuntimeError("this program takes nobody")


# name: the action, each side's expected event (its kind, and its code where it is fixed), settings.
WAYS = {
    "client closes": (client_closes, ("local", 7), ("peer_application", 7), {}),
    "server closes": (server_closes, ("peer_application", 8), ("local", 8), {}),
    "both close": (both_close, ("local", 7), ("local", 8), {}),
    "transport close": (
        client_closes_as_transport,
        ("local", 0x0A),
        ("peer_transport", 0x0A),
        {},
    ),
    "close in the middle": (
        client_closes_with_data_and_waiters,
        ("local", 7),
        ("peer_application", 7),
        # A small window: a larger burst would overrun the proxy, which would then lose the close.
        {"server": {"max_stream_data": 50_000}},
    ),
    "idle": (
        nobody_says_anything,
        ("idle_timeout", None),
        ("idle_timeout", None),
        {"client": {"idle_timeout": 1.5}, "server": {"idle_timeout": 1.5}},
    ),
    "path dies": (
        the_path_dies,
        ("idle_timeout", None),
        ("idle_timeout", None),
        {"client": {"idle_timeout": 1.5}, "server": {"idle_timeout": 1.5}},
    ),
    "keep-alive on a dead path": (
        the_path_dies,
        ("idle_timeout", None),
        ("idle_timeout", None),
        {
            "client": {"idle_timeout": 1.5, "keep_alive": 0.1},
            "server": {"idle_timeout": 1.5, "keep_alive": 0.1},
        },
    ),
    "no server": (
        the_path_is_dead,
        ("idle_timeout", None),
        None,
        {"client": {"idle_timeout": 0.4}},
    ),
    "no protocol in common": (
        the_handshake_decides,
        ("tls", 0x178),
        # The client's first packet is refused, so the server's program never gets a connection.
        None,
        {"client": {"alpn_protocols": ["other"]}},
    ),
    "client certificate missing": (
        the_handshake_decides,
        ("tls", 0x174),
        ("tls", 0x174),
        {"server": {"verify_mode": ssl.CERT_REQUIRED}},
    ),
    "client socket closed": (
        the_clients_socket_is_closed,
        ("local", 0),
        ("peer_application", 0),
        {},
    ),
    "server socket closed": (
        the_servers_socket_is_closed,
        ("peer_application", 0),
        ("local", 0),
        {},
    ),
}


def _check_end(protocol, wanted):
    ends = [event for event in protocol.events if isinstance(event, events.ConnectionTerminated)]
    assert len(ends) == 1, ends
    assert protocol.events[-1] is ends[0]
    kind, code = wanted
    assert ends[0].kind == kind, ends[0]
    assert code is None or ends[0].error_code == code, ends[0]


@pytest.mark.parametrize("way", WAYS)
def test_an_end_is_reported_once_to_both_sides(
    run_anywhere, pki, server_configuration, client_configuration, way
):
    happens, at_client, at_server, fields = WAYS[way]

    async def main():
        loop = asyncio.get_running_loop()
        server_side = server_configuration(**fields.get("server", {}))
        if server_side.verify_mode is not None:
            server_side.load_verify_locations(cafile=str(pki.authority.certfile))
        client_side = client_configuration(**fields.get("client", {}))
        async with (
            serving(server_side, Recorder) as (port, protocols),
            ImpairmentProxy(("127.0.0.1", port)) as proxy,
            connect(
                *proxy.address,
                configuration=client_side,
                create_protocol=Recorder,
                wait_connected=False,
            ) as client,
        ):
            await happens(client, protocols, proxy)
            await asyncio.wait_for(client.wait_closed(), 20)
            _check_end(client, at_client)
            if at_server is None:
                assert protocols == []
            else:
                await eventually(lambda: protocols)
                await asyncio.wait_for(protocols[0].wait_closed(), 20)
                _check_end(protocols[0], at_server)
            # Later calls raise the error, and no further event follows.
            for protocol in (client, *protocols):
                with pytest.raises(QuicConnectionError):
                    await protocol.ping()
                with pytest.raises(QuicConnectionError):
                    await protocol.wait_connected()
                protocol.close()
                protocol._quic.send_stream_data(0, b"late")
                protocol.transmit()
            await rounds(20)
            for protocol in (client, *protocols):
                assert isinstance(protocol.events[-1], events.ConnectionTerminated)
        if run_anywhere.kind != "asyncio":
            # Closed connections remain for three probe time-outs, to answer late packets (RFC 9000 section
            # 10.2).
            await eventually(lambda: loop.stats()["quic_connections"] == 0, 20)

    run_anywhere(main())


def test_a_close_before_the_handshake_is_reported_once(
    run_anywhere, server_configuration, client_configuration
):
    async def main():
        async with (
            serving(server_configuration(), Recorder) as (port, protocols),
            connect(
                "127.0.0.1",
                port,
                configuration=client_configuration(),
                create_protocol=Recorder,
                wait_connected=False,
            ) as client,
        ):
            await client_closes_in_the_handshake(client, protocols, None)
            await asyncio.wait_for(client.wait_closed(), 5)
            _check_end(client, ("local", 7))
            await rounds(20)
            # The server may not have a connection yet; if it has one, its program gets the event.
            for server in protocols:
                await asyncio.wait_for(server.wait_closed(), 15)
                assert len(server.events) >= 1
                assert isinstance(server.events[-1], events.ConnectionTerminated)

    run_anywhere(main())


def test_a_refusal_is_reported_once(run_anywhere, server_configuration, client_configuration):
    async def main():
        async with serving(server_configuration(), Recorder) as (port, protocols):
            async with connect("127.0.0.1", port, configuration=client_configuration()) as first:
                await first.ping()
                protocols[0]._transport.stop_accepting()
                async with connect(
                    "127.0.0.1",
                    port,
                    configuration=client_configuration(),
                    create_protocol=Recorder,
                    wait_connected=False,
                ) as client:
                    await asyncio.wait_for(client.wait_closed(), 5)
                    _check_end(client, ("peer_transport", 0x02))
                await first.ping()

    run_anywhere(main())


def test_a_program_that_fails_to_accept_closes_once(
    run, server_configuration, client_configuration
):
    async def main():
        reported = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
        async with (
            serving(server_configuration(), Refusing) as (port, _),
            connect(
                "127.0.0.1",
                port,
                configuration=client_configuration(),
                create_protocol=Recorder,
                wait_connected=False,
            ) as client,
        ):
            await asyncio.wait_for(client.wait_closed(), 10)
            # Before the handshake is complete, the reason is not sent (RFC 9000 section 10.2.3).
            _check_end(client, ("peer_transport", 0x0C))
        assert "this program takes nobody" in str(reported[0])
        await eventually(lambda: loop.stats()["quic_connections"] == 0, 20)

    run(main())


class Relay(asyncio.DatagramProtocol):
    """Forwards one client's datagrams to a server and can be absent: its port is closed then, and stays
    reserved.
    """

    def __init__(self, server):
        self.server = server
        self.client = None
        self.port = free_port()
        self.front = None
        self.back = None

    async def open(self):
        loop = asyncio.get_running_loop()
        relay = self

        class Back(asyncio.DatagramProtocol):
            def datagram_received(self, data, addr):
                if relay.front is not None and relay.client is not None:
                    relay.front.sendto(data, relay.client)

        if self.back is None:
            self.back, _ = await loop.create_datagram_endpoint(
                Back, local_addr=("127.0.0.1", 0), family=socket.AF_INET
            )
        self.front, _ = await loop.create_datagram_endpoint(
            lambda: self, local_addr=("127.0.0.1", self.port), family=socket.AF_INET
        )

    def datagram_received(self, data, addr):
        self.client = addr
        self.back.sendto(data, ("127.0.0.1", self.server))

    async def leave(self):
        self.front.close()
        self.front = None
        await rounds()


def test_an_established_connection_does_not_believe_icmp(
    run_anywhere, server_configuration, client_configuration
):
    """Anyone can send "port unreachable" about a connection (RFC 9000 section 21). The connection ends only
    at the idle time-out, and continues if the path returns before.
    """

    async def main():
        async with serving(server_configuration(), Recorder) as (port, protocols):
            relay = Relay(port)
            await relay.open()
            async with connect(
                "127.0.0.1",
                relay.port,
                configuration=client_configuration(idle_timeout=2.0),
                create_protocol=Recorder,
            ) as client:
                await client.ping()
                await relay.leave()
                # Each of these packets causes an ICMP error.
                client._quic.send_stream_data(0, bytes(20_000))
                client.transmit()
                await asyncio.sleep(0.5)
                assert not any(isinstance(e, events.ConnectionTerminated) for e in client.events)
                await relay.open()
                await eventually(lambda: len(protocols[0].data.get(0, b"")) == 20_000)
                await client.ping()
                # If the path does not return, the idle time-out reports the end, once.
                await relay.leave()
                await asyncio.wait_for(client.wait_closed(), 10)
                _check_end(client, ("idle_timeout", None))
            relay.back.close()

    run_anywhere(main())


def test_a_ping_that_sends_the_end_raises(run_anywhere, server_configuration, client_configuration):
    """On a program's datagram transport, a send delivers the queued event at once."""

    async def main():
        loop = asyncio.get_running_loop()
        async with serving(server_configuration(), Recorder) as (port, _):
            transport, client = await loop.create_datagram_endpoint(
                lambda: QuicConnectionProtocol(
                    QuicConnection(configuration=client_configuration(server_name="localhost"))
                ),
                local_addr=("127.0.0.1", 0),
            )
            client.connect(("127.0.0.1", port))
            await client.wait_connected()
            await client.ping()
            client._quic.close(error_code=7)
            with pytest.raises(QuicConnectionError) as caught:
                await asyncio.wait_for(client.ping(), 10)
            assert caught.value.error_code == 7
            assert not client._life._waiting
            transport.close()

    run_anywhere(main())


def test_a_closed_port_is_reported_once(run, client_configuration):
    async def main():
        port = free_port()
        async with connect(
            "127.0.0.1",
            port,
            configuration=client_configuration(),
            create_protocol=Recorder,
            wait_connected=False,
        ) as client:
            await asyncio.wait_for(client.wait_closed(), 30)
            _check_end(client, ("unreachable", None))

    run(main())


def test_keep_alive_and_ping_keep_a_connection_that_idles(
    run_anywhere, server_configuration, client_configuration
):
    async def main():
        server_side = server_configuration(idle_timeout=3.0)
        async with serving(server_side, Recorder) as (port, protocols):
            kept = client_configuration(idle_timeout=3.0, keep_alive=0.2)
            left = client_configuration(idle_timeout=3.0)
            async with (
                connect("127.0.0.1", port, configuration=kept) as first,
                connect("127.0.0.1", port, configuration=left) as second,
            ):
                await eventually(lambda: second._life.is_closed)
                assert not first._life.is_closed
                await first.ping()
                # The server's idle timer may fire a little later than the client's.
                await eventually(
                    lambda: sum(not protocol._life.is_closed for protocol in protocols) == 1
                )

    run_anywhere(main())


def test_protocols_of_ended_connections_are_not_kept(
    run, server_configuration, client_configuration
):
    """The table shrinks in Python too: nothing of a hundred connections remains."""
    import gc
    import weakref

    async def main():
        loop = asyncio.get_running_loop()
        alive = weakref.WeakSet()

        class Tracked(QuicConnectionProtocol):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
                alive.add(self)

        async with serving(server_configuration(), Tracked) as (port, protocols):
            configuration = client_configuration()
            for _ in range(100):
                async with connect(
                    "127.0.0.1", port, configuration=configuration, create_protocol=Tracked
                ) as client:
                    await client.ping()
            del client
            protocols.clear()
            await eventually(lambda: loop.stats()["quic_connections"] == 0, 20)

            def gone():
                gc.collect()
                return len(alive) <= 1

            await eventually(gone)

    run(main())
