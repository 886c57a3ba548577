"""Every queue has a bound, and read data returns an equal amount of credit."""

from __future__ import annotations

import asyncio

import pytest

from tests.quic.harness import eventually, patterned
from tests.quic.native.connection_pairs import (
    client_config,
    connecting,
    listening,
    pair,
    server_config,
    settled,
    stream_pair,
)
from uringcore import quic

pytestmark = pytest.mark.either_backend


def test_an_unread_stream_stops_its_sender(run_anywhere, pki):
    async def main():
        client, server = {"send_buffer": 10_000}, {"receive_window": 30_000}
        async with stream_pair(pki, client, server) as (here, there):
            sent = 0

            async def send():
                nonlocal sent
                while True:
                    await here.send(bytes(1_000))
                    sent += 1_000

            sending = asyncio.ensure_future(send())
            await eventually(lambda: sent >= 30_000)
            for _ in range(3):
                await here.connection.ping()
            # At most: the window, the queue, and one message that still fitted.
            assert sent <= 30_000 + 10_000 + 2_000
            before = sent
            assert await there.readexactly(20_000) == bytes(20_000)
            await eventually(lambda: sent > before)
            for _ in range(3):
                await here.connection.ping()
            assert sent <= before + 20_000 + 2_000
            sending.cancel()
            await asyncio.wait([sending])

    run_anywhere(main())


def test_streams_together_stay_within_the_connections_window(run_anywhere, pki):
    async def main():
        client = {"send_buffer": 5_000}
        server = {"receive_window": 50_000, "connection_receive_window": 60_000}
        async with pair(pki, client, server) as (one, other):
            streams = [await one.open_uni_stream() for _ in range(10)]
            sending = [asyncio.ensure_future(s.send_all(patterned(100_000))) for s in streams]
            await settled(sending[0])
            for _ in range(3):
                await one.ping()
            assert other.stats()["bytes_received"] < 200_000
            assert not all(task.done() for task in sending)
            # Read each stream as soon as it arrives: its unread data uses up the credit of the others.
            reading = []
            for _ in streams:
                there = await other.accept_uni_stream()
                reading.append(asyncio.ensure_future(there.readexactly(100_000)))
            for got in await asyncio.gather(*reading):
                assert got == patterned(100_000)
            await asyncio.gather(*sending)

    run_anywhere(main())


def test_opening_waits_for_the_peers_limit(run_anywhere, pki):
    async def main():
        async with pair(pki, server={"max_streams": 2, "max_uni_streams": 1}) as (one, other):
            streams = [await one.open_stream() for _ in range(2)]
            uni = await one.open_uni_stream()
            third = await settled(asyncio.ensure_future(one.open_stream().__aenter__()))
            second_uni = await settled(asyncio.ensure_future(one.open_uni_stream().__aenter__()))
            assert not third.done() and not second_uni.done()
            await streams[0].send(b"x")
            await streams[0].finish()
            async with await other.accept_stream() as there:
                assert await there.read() == b"x"
            async with await third as stream:
                await stream.send(b"y")
            await uni.finish()
            assert await (await other.accept_uni_stream()).read() == b""
            async with await second_uni as stream:
                assert stream.id == uni.id + 4

    run_anywhere(main())


def test_unaccepted_streams_are_bounded(run_anywhere, pki):
    async def main():
        async with pair(pki, server={"max_streams": 5}) as (one, other):
            opened = []

            async def open_and_send():
                while True:
                    stream = await one.open_stream()
                    await stream.send(b"x")
                    opened.append(stream)

            task = asyncio.ensure_future(open_and_send())
            await eventually(lambda: len(opened) == 5)
            for _ in range(3):
                await one.ping()
            assert len(opened) == 5
            task.cancel()
            await asyncio.wait([task])
            ids = [(await other.accept_stream()).id for _ in range(5)]
            assert ids == [stream.id for stream in opened]

    run_anywhere(main())


def test_unread_datagrams_make_room_for_newer_ones(run_anywhere, pki):
    async def main():
        async with pair(pki, server={"datagram_buffer": 10_000}) as (one, other):
            for number in range(50):
                one.send_datagram(bytes([number]) * 1000)
                await one.ping()
            assert other.datagrams_dropped >= 40
            kept = await other.receive_datagrams()
            assert 1 <= len(kept) < 10
            assert kept[-1] == bytes([49]) * 1000
            assert [one[0] for one in kept] == sorted(one[0] for one in kept)

    run_anywhere(main())


def test_more_connections_than_may_wait_are_refused(run_anywhere, pki):
    async def main():
        async with listening(pki, backlog=2) as listener:
            first = [await connecting(pki, listener) for _ in range(2)]
            for one in first:
                await one.ping()
            refused = await connecting(pki, listener)
            await refused.wait_closed()
            with pytest.raises(quic.QuicConnectionRefusedError):
                await refused.ping()
            accepted = [await listener.accept() for _ in range(2)]
            async with connecting(pki, listener) as another:
                await another.ping()
            for one in first + accepted:
                one.close()
                await one.wait_closed()

    run_anywhere(main())


def test_connections_that_are_over_make_room_for_others(run_anywhere, pki):
    async def main():
        async with listening(pki, backlog=2) as listener:
            for number in range(5):
                async with connecting(pki, listener) as one:
                    await one.ping()
                    async with one.open_stream() as stream:
                        await stream.send(bytes([number]))
                    await one.wait_delivered()
                await eventually(lambda: listener.stats()["connections_closed"] > number)  # noqa: B023
            # The last two are still available, with their data.
            numbers = []
            for _ in range(2):
                other = await listener.accept()
                numbers.append(await (await other.accept_stream()).read())
            assert numbers == [b"\3", b"\4"]

    run_anywhere(main())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("alpn", "test"),
        ("alpn", [""]),
        ("idle_timeout", 0),
        ("keep_alive", -1),
        ("max_streams", -1),
        ("receive_window", -1),
        ("connection_receive_window", 1 << 70),
        ("send_buffer", 0),
        ("datagram_buffer", 0),
        ("congestion", "none"),
        ("close_timeout", -1),
        ("key_log", 1),
        ("qlog", 1),
    ],
)
def test_an_impossible_setting_is_named(pki, field, value):
    for config in (client_config, server_config):
        with pytest.raises(quic.QuicConfigurationError) as caught:
            config(pki, **{field: value})
        assert caught.value.field == field


def test_impossible_settings_of_one_side_are_named(pki):
    def refused(field, make, **fields):
        with pytest.raises(quic.QuicConfigurationError) as caught:
            make(pki, **fields)
        assert caught.value.field == field

    refused("authorities", client_config, authorities="/no/such/file")
    refused("authorities", client_config, authorities=b"no certificate")
    refused("certificate_hashes", client_config, certificate_hashes=[b"short"])
    refused("session_ticket", client_config, session_ticket="ticket")
    refused("certificate", client_config, certificate=("/no/such/file", "/nor/this"))
    refused("certificate", server_config, certificate=pki.server.certfile)
    refused("certificate", server_config, certificate=(pki.server.certfile, pki.client.keyfile))
    refused("backlog", server_config, backlog=0)


def test_settings_are_immutable(pki):
    config = client_config(pki)
    with pytest.raises(AttributeError):
        config.idle_timeout = 5
    with pytest.raises(TypeError):
        quic.listen("127.0.0.1", 0)
