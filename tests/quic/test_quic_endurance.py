"""Many connections over a bad network, and peers that stall: resources are returned, and every queue is
bounded.

`src/quic/tests/mutated_datagrams.rs` sends mutated datagrams to a connection in each state.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random

import pytest

from tests.quic.harness import Echo, Recorder, eventually, serving
from tests.support.allocated_memory import memory
from tests.support.interpreter_roles import is_oldest_interpreter
from tests.support.simulated_link import Conditions
from tests.support.udp_proxy import ImpairmentProxy
from uringcore.asyncio import connect
from uringcore.quic import events
from uringcore.quic.limits import ServerLimits

CONNECTIONS = 5000
AT_ONCE = 25
FIRST = 1000
LOSS = Conditions(loss=0.05)


def _tables(loop):
    stats = loop.stats()
    names = ("quic_endpoints", "quic_connections", "ops_in_flight", "buffers_out", "timers")
    return {name: stats[name] for name in names}, len(os.listdir("/proc/self/fd"))


@pytest.mark.timeout(600)
def test_five_thousand_connections_at_five_per_cent_loss_leave_nothing_behind(
    run_long, server_configuration, client_configuration
):
    if not is_oldest_interpreter():
        pytest.skip("it takes a minute, so it runs on one interpreter")
    seed = random.randrange(1 << 16)
    print(f"seed {seed}")

    async def life(address, configuration, number):
        """Runs one connection: a handshake, a stream there and back, a close; any packet may be lost."""
        async with connect(*address, configuration=configuration) as client:
            reader, writer = await client.create_stream()
            writer.write(b"%d" % number)
            writer.write_eof()
            assert await reader.read() == b"%d" % number

    async def lives(address, configuration, first, count):
        left = iter(range(first, first + count))

        async def one_after_the_other():
            for number in left:
                await life(address, configuration, number)

        await asyncio.gather(*(one_after_the_other() for _ in range(AT_ONCE)))

    async def forgotten(loop, protocols):
        # Only the idle time-out detects a lost close.
        await eventually(lambda: loop.stats()["quic_connections"] == 0, 100)
        protocols.clear()
        gc.collect()

    async def main():
        loop = asyncio.get_running_loop()
        # The delays of a busy machine must not look like repeated losses: a client doubles its probe time-out
        # with each until the handshake is done (RFC 9002 section 6.2.1).
        fields = {"initial_rtt": 0.1, "idle_timeout": 45.0}
        # Nor may the server abandon a handshake whose last flight is lost repeatedly.
        limits = ServerLimits(handshake_timeout=45.0)
        async with serving(server_configuration(**fields), limits=limits) as (port, protocols):
            configuration = client_configuration(**fields)
            async with ImpairmentProxy(("127.0.0.1", port), up=LOSS, seed=seed) as proxy:
                await lives(proxy.address, configuration, 0, FIRST)
            await forgotten(loop, protocols)
            before, taken = _tables(loop), memory()
            async with ImpairmentProxy(("127.0.0.1", port), up=LOSS, seed=seed + 1) as proxy:
                await lives(proxy.address, configuration, 0, CONNECTIONS - FIRST)
                assert proxy.up.lost > CONNECTIONS / 10
                assert proxy.down.lost > CONNECTIONS / 10
            await forgotten(loop, protocols)
            assert _tables(loop) == before
            heap, blocks = (now - then for now, then in zip(memory(), taken, strict=True))
            # If a kilobyte of each connection remained, the heap would grow by 4,000 KiB.
            assert heap < 2048, f"{heap} KiB more than before 4,000 connections"
            assert blocks < 4000, f"{blocks} blocks more than before 4,000 connections"

    run_long(main())


def test_a_peer_that_the_network_swallows_costs_a_bounded_queue_and_is_forgotten(
    run, server_configuration, client_configuration
):
    """The path dies in the middle of a transfer whose producer never stops."""

    class Producing(Recorder):
        written = 0
        failure = None

        def quic_event_received(self, event):
            super().quic_event_received(event)
            if isinstance(event, events.StreamDataReceived):
                self.producing = asyncio.ensure_future(self._produce(event.stream_id))

        async def _produce(self, stream_id):
            try:
                while True:
                    self._quic.send_stream_data(stream_id, bytes(65536))
                    self.written += 65536
                    await self.drain(stream_id)
            except ConnectionError as exc:
                self.failure = exc

    async def main():
        loop = asyncio.get_running_loop()
        server = server_configuration(
            idle_timeout=2.0, send_buffer_high=262144, send_buffer_low=65536
        )
        async with serving(server, Producing) as (port, protocols):
            async with ImpairmentProxy(("127.0.0.1", port)) as proxy:
                configuration = client_configuration(idle_timeout=2.0)
                async with connect(
                    *proxy.address, configuration=configuration, create_protocol=Recorder
                ) as client:
                    client._quic.send_stream_data(0, b"go")
                    await eventually(lambda: len(client.data.get(0, b"")) > 1 << 20)
                    server_side = protocols[0]
                    proxy.set_conditions(Conditions(loss=1.0))
                    delivered = len(client.data[0])
                    await server_side.wait_for(events.ConnectionTerminated)
                    await eventually(lambda: server_side.failure is not None)
                    # At most: the client's credit, the queue, and the data that one turn may add to it.
                    assert server_side.written - delivered < 8 << 20
                    assert server_side._quic.get_send_buffer_size(0) <= 262144 + 65536
                    ends = [
                        event
                        for event in server_side.events
                        if isinstance(event, events.ConnectionTerminated)
                    ]
                    assert [end.kind for end in ends] == ["idle_timeout"]
                    await client.wait_for(events.ConnectionTerminated)
            await eventually(lambda: loop.stats()["quic_connections"] == 0)
            assert loop.stats()["buffers_out"] == 0

    run(main())


def test_a_reader_that_is_slow_holds_its_own_stream_back_and_no_other(
    run, server_configuration, client_configuration
):
    async def main():
        server = server_configuration(max_data=1 << 20)
        client_side = client_configuration(max_stream_data=65536, max_data=1 << 20)
        async with (
            serving(server, Echo) as (port, protocols),
            ImpairmentProxy(("127.0.0.1", port), up=Conditions(loss=0.02), seed=4) as proxy,
            connect(*proxy.address, configuration=client_side, create_protocol=Recorder) as client,
        ):
            client._quic.send_stream_data(0, bytes(1))
            await client.wait_for(events.StreamDataReceived, stream_id=0)
            client._quic.pause_stream(0)
            client._quic.send_stream_data(0, bytes(500_000))
            for stream_id in range(4, 44, 4):
                client._quic.send_stream_data(stream_id, bytes(100_000), end_stream=True)
            for stream_id in range(4, 44, 4):
                await client.wait_for(
                    events.StreamDataReceived, stream_id=stream_id, end_stream=True
                )
                assert len(client.data[stream_id]) == 100_000
            # The client's program got no further byte, and the server keeps the data for which the client has
            # no room.
            assert len(client.data[0]) == 1
            await eventually(lambda: len(protocols[0].data[0]) == 500_001)
            assert protocols[0]._quic.get_send_buffer_size(0) >= 500_001 - 65536 - 1
            client._quic.resume_stream(0)
            await eventually(lambda: len(client.data[0]) == 500_001)

    run(main())
