"""Connections survive changes of address: by the client, by a NAT, and to the server's preferred address."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from tests.quic.harness import Echo, Recorder, eventually, patterned, serving
from tests.support.free_ports import free_port
from tests.support.simulated_link import Conditions
from tests.support.udp_proxy import ImpairmentProxy
from uringcore.asyncio import connect
from uringcore.quic import events
from uringcore.quic._errors import QuicConfigurationError, QuicConnectionError

DATA = patterned(3 << 20, seed=5)


async def _echoed(client, middle=None):
    """Sends DATA on a stream and reads it back; calls ``between`` in the middle."""
    reader, writer = await client.create_stream()

    async def send():
        for start in range(0, len(DATA), 65536):
            writer.write(DATA[start : start + 65536])
            await writer.drain()
        writer.write_eof()

    sending = asyncio.ensure_future(send())
    received = await reader.readexactly(500_000)
    if middle is not None:
        await middle()
    received += await asyncio.wait_for(reader.read(), 40)
    await sending
    assert received == DATA


def test_a_client_migrates_in_the_middle_of_a_transfer(
    run_anywhere, server_configuration, client_configuration
):
    async def main():
        async with (
            serving(server_configuration(), host="0.0.0.0") as (port, protocols),
            connect("127.0.0.1", port, configuration=client_configuration()) as client,
        ):
            transport = client._transport
            for host in ("127.0.0.2", "127.0.0.3"):
                await _echoed(client, lambda host=host: client.migrate((host, 0)))
                name = transport.get_extra_info("sockname")
                assert name[0] == host
                assert protocols[0]._quic.get_peer_address() == name
            # The system chooses the new port; the connection is idle.
            await client.migrate()
            await client.ping()
            await eventually(lambda: protocols[0]._quic.get_peer_address()[1] != name[1])
            # After a while the abandoned sockets are closed.
            held = transport.get_extra_info("quic_endpoint")
            assert held.connections == 1

    run_anywhere(main())


def test_an_unanswered_migration_times_out_on_the_old_path(
    run_anywhere, server_configuration, client_configuration
):
    async def main():
        async with (
            serving(server_configuration()) as (port, protocols),
            ImpairmentProxy(("127.0.0.1", port)) as proxy,
            connect(*proxy.address, configuration=client_configuration()) as client,
        ):
            await client.ping()
            before = client._transport.get_extra_info("sockname")

            async def fail():
                # Packets from any address but the client's first are dropped.
                first = {flow.client for flow in proxy.flows}
                carry = proxy._carry

                def only_the_first(up, flow, data, ecn):
                    if flow.client in first:
                        carry(up, flow, data, ecn)

                proxy._carry = only_the_first
                with pytest.raises(TimeoutError, match="127.0.0.2 port .* 0.7 seconds.*old path"):
                    await client.migrate(("127.0.0.2", 0), timeout=0.7)
                proxy._carry = carry

            await _echoed(client, fail)
            assert client._transport.get_extra_info("sockname") == before
            assert len(protocols) == 1
            await client.migrate(("127.0.0.2", 0))
            await client.ping()

    run_anywhere(main())


def test_a_move_behind_one_that_was_given_up_is_a_move_of_its_own(
    run_anywhere, server_configuration, client_configuration
):
    async def main():
        async with (
            serving(server_configuration()) as (port, _),
            connect("127.0.0.1", port, configuration=client_configuration()) as client,
        ):
            await client.ping()
            for turns in range(4):
                before = client._quic._path[0]
                moving = asyncio.ensure_future(client.migrate())
                while client._quic._path[0] == before:
                    await asyncio.sleep(0)
                for _ in range(turns):
                    await asyncio.sleep(0)
                moving.cancel()
                given_up = client._quic._path[0]
                with contextlib.suppress(asyncio.CancelledError):
                    await moving
                await client.migrate()
                assert client._quic._path[0] not in (before, given_up)
                _, local_port = client._transport.get_extra_info("sockname")
                await client.ping()
                assert local_port == client._transport.get_extra_info("sockname")[1]

    run_anywhere(main())


def test_a_nat_that_changes_port_and_address_is_followed(
    run_anywhere, server_configuration, client_configuration
):
    async def main():
        async with (
            serving(server_configuration()) as (port, protocols),
            ImpairmentProxy(("127.0.0.1", port), up=Conditions(delay=0.002)) as proxy,
            connect(*proxy.address, configuration=client_configuration()) as client,
        ):
            seen = set()
            for host in (None, "127.0.0.2", "127.0.0.3", None):

                async def rebind(host=host):
                    proxy.rebind(host)

                await _echoed(client, rebind)
                seen.add(protocols[0]._quic.get_peer_address())
            assert len(seen) == 4
            assert {address[0] for address in seen} == {"127.0.0.1", "127.0.0.2", "127.0.0.3"}
            assert len(protocols) == 1

    run_anywhere(main())


def test_an_idle_clients_next_packet_shows_its_new_address(
    run, server_configuration, client_configuration
):
    async def main():
        async with (
            serving(server_configuration()) as (port, protocols),
            ImpairmentProxy(("127.0.0.1", port)) as proxy,
            connect(*proxy.address, configuration=client_configuration()) as client,
        ):
            await client.ping()
            proxy.rebind("127.0.0.9")
            await asyncio.wait_for(client.ping(), 10)
            # The client then answers the server's challenge.
            await eventually(lambda: protocols[0]._quic.get_peer_address()[0] == "127.0.0.9")
            # The server can also start an exchange at the new address.
            await asyncio.wait_for(protocols[0].ping(), 10)

    run(main())


def test_refused_migrations_raise_the_reason(
    run_anywhere, server_configuration, client_configuration
):
    async def main():
        async with (
            serving(server_configuration()) as (port, protocols),
            connect("127.0.0.1", port, configuration=client_configuration()) as client,
        ):
            await client.ping()
            with pytest.raises(RuntimeError, match="a server does not migrate"):
                await protocols[0].migrate()
            with pytest.raises(OSError, match="binding to"):
                await client.migrate(("192.0.2.1", 0))
            with pytest.raises(ValueError, match="cannot reach 127.0.0.1"):
                await client.migrate(("::1", 0))
            first = asyncio.ensure_future(client.migrate())
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="under way"):
                await client.migrate()
            await first
        with pytest.raises(QuicConnectionError):
            await client.migrate()

    run_anywhere(main())


def test_a_connection_that_ends_ends_its_migration(
    run_anywhere, server_configuration, client_configuration
):
    async def main():
        async with (
            serving(server_configuration()) as (port, _),
            connect("127.0.0.1", port, configuration=client_configuration()) as client,
        ):
            await client.ping()
            moving = asyncio.ensure_future(client.migrate())
            await asyncio.sleep(0)
            client.close()
            with pytest.raises(QuicConnectionError):
                await asyncio.wait_for(moving, 30)

    run_anywhere(main())


def test_the_servers_preferred_address_is_used(run, server_configuration, client_configuration):
    async def main():
        preferred = ("127.0.0.5", free_port())
        server = server_configuration(preferred_address=[preferred])
        async with (
            serving(server) as (port, protocols),
            connect("127.0.0.1", port, configuration=client_configuration()) as client,
        ):
            await client.ping()
            await eventually(lambda: client._quic.get_peer_address() == preferred)
            await _echoed(client)
            assert client._quic.get_peer_address() == preferred
            # From the preferred address the client may move again.
            await _echoed(client, lambda: client.migrate(("127.0.0.6", 0)))
            assert protocols[0]._quic.get_peer_address()[0] == "127.0.0.6"
            async with connect(
                "127.0.0.1", port, configuration=client_configuration(use_preferred_address=False)
            ) as other:
                await other.ping()
                await other.ping()
                assert other._quic.get_peer_address() == ("127.0.0.1", port)

    run(main())


def test_the_preferred_address_may_see_the_client_at_another_address(
    run, server_configuration, client_configuration
):
    """Only the first address is behind a NAT, so the challenge comes from a new address."""

    async def main():
        preferred = ("127.0.0.5", free_port())
        server = server_configuration(preferred_address=[preferred])
        async with (
            serving(server) as (port, protocols),
            ImpairmentProxy(("127.0.0.1", port)) as proxy,
            connect(*proxy.address, configuration=client_configuration()) as client,
        ):
            await client.ping()
            await eventually(lambda: client._quic.get_peer_address() == preferred)
            await client.ping()
            name = client._transport.get_extra_info("sockname")
            assert protocols[0]._quic.get_peer_address()[1] == name[1]

    run(main())


def test_a_server_on_all_addresses_answers_from_the_preferred_one(
    run, server_configuration, client_configuration
):
    async def main():
        port = free_port()
        server = server_configuration(preferred_address=[("127.0.0.7", port)])
        from uringcore.asyncio import serve

        listening = await serve("0.0.0.0", port, configuration=server, create_protocol=Echo)
        async with connect("127.0.0.1", port, configuration=client_configuration()) as client:
            await client.ping()
            await eventually(lambda: client._quic.get_peer_address() == ("127.0.0.7", port))
            await _echoed(client)
            assert client._quic.get_peer_address() == ("127.0.0.7", port)
        listening.close()
        await asyncio.wait_for(listening.wait_closed(), 10)

    run(main())


def test_impossible_preferred_addresses_name_the_field(
    run, server_configuration, client_configuration
):
    async def main():
        for wrong in (
            [("localhost", 1)],
            [("127.0.0.1", 0)],
            [("0.0.0.0", 1)],
            [("127.0.0.1", 1), ("127.0.0.2", 1)],
            ["127.0.0.1"],
        ):
            with pytest.raises(QuicConfigurationError, match="preferred_address"):
                server_configuration(preferred_address=wrong).setup()
        with pytest.raises(QuicConfigurationError, match="preferred_address"):
            client_configuration(preferred_address=[("127.0.0.1", 1)]).setup()
        # An address that is not this machine's.
        with pytest.raises(OSError, match="binding to"):
            async with serving(server_configuration(preferred_address=[("192.0.2.1", 1)])):
                raise AssertionError("bound to it")

    run(main())


def test_unsupported_calls_on_stock_asyncio_raise(server_configuration):
    async def main():
        with pytest.raises(QuicConfigurationError, match="preferred_address"):
            async with serving(server_configuration(preferred_address=[("127.0.0.1", 1)])):
                raise AssertionError("served")

    asyncio.run(main())


def test_a_move_is_not_reported_after_the_connections_end(
    run, server_configuration, client_configuration
):
    async def main():
        async with serving(server_configuration()) as (port, _):
            for _ in range(10):
                async with connect(
                    "127.0.0.1",
                    port,
                    configuration=client_configuration(),
                    create_protocol=Recorder,
                ) as client:
                    await client.ping()
                    moving = asyncio.ensure_future(client.migrate())
                    while client._quic._path[0] == 0 and not moving.done():
                        await asyncio.sleep(0)
                    client._quic.send_stream_data(0, b"answer me")
                    client.transmit()
                    client.close()
                    await client.wait_closed()
                    await asyncio.gather(moving, return_exceptions=True)
                    # The server answers the close, and the data before it, at the new address.
                    await asyncio.sleep(0.02)
                    kinds = [type(event) for event in client.events]
                    assert kinds[-1] is events.ConnectionTerminated, kinds
                    assert kinds.count(events.ConnectionTerminated) == 1

    run(main())
