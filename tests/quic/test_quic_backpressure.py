"""Every event of the stream wakes a waiter for a lower send queue."""

from __future__ import annotations

import asyncio

import pytest

from tests.quic.harness import Recorder, eventually, serving, still
from uringcore.asyncio import QuicConnectionProtocol, connect
from uringcore.quic import events

NARROW = {"send_buffer_high": 65536, "send_buffer_low": 16384}


class Silent(QuicConnectionProtocol):
    """Accepts streams and never reads them, so that the peer's queues fill up."""

    held: list

    def __init__(self, quic, stream_handler=None):
        self.held = []
        super().__init__(quic, stream_handler=lambda *stream: self.held.append(stream))


async def _filled(client, stream_id):
    """Queues more than the peer accepts, and returns a task that waits in ``drain``."""
    client._quic.send_stream_data(stream_id, bytes(4 << 20))
    client.transmit()
    waiting = asyncio.ensure_future(client.drain(stream_id))
    await still(client, lambda: client.get_send_buffer_size(stream_id))
    assert not waiting.done()
    return waiting


def test_abort_wakes_another_task_that_drains(
    run_anywhere, server_configuration, client_configuration
):
    async def main():
        async with (
            serving(server_configuration(max_stream_data=65536), Silent) as (port, _),
            connect("127.0.0.1", port, configuration=client_configuration(**NARROW)) as client,
        ):
            _, writer = await client.create_stream()
            writer.write(bytes(4 << 20))
            waiting = asyncio.ensure_future(writer.drain())
            await still(client, writer.transport.get_write_buffer_size)
            assert not waiting.done()
            writer.transport.abort()
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(waiting, 30)
            assert client._drain_waiters == {}

    run_anywhere(main())


def test_resetting_a_stream_wakes_exactly_its_draining_tasks(
    run_anywhere, server_configuration, client_configuration
):
    async def main():
        async with (
            serving(server_configuration(max_stream_data=65536), Silent) as (port, _),
            connect("127.0.0.1", port, configuration=client_configuration(**NARROW)) as client,
        ):
            first, other = await _filled(client, 0), await _filled(client, 4)
            second = asyncio.ensure_future(client.drain(0))
            await asyncio.sleep(0)
            client._quic.reset_stream(0, 7)
            client.transmit()
            for waiting in (first, second):
                with pytest.raises(ConnectionResetError, match="stream 0"):
                    await asyncio.wait_for(waiting, 30)
            assert not other.done()
            client.close()
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(other, 30)

    run_anywhere(main())


def test_a_client_that_gives_its_request_up_wakes_the_server(
    run_anywhere, server_configuration, client_configuration
):
    """The server answers the peer's reset with its own, as an HTTP layer does."""

    class Answering(Recorder):
        draining = None

        def quic_event_received(self, event):
            super().quic_event_received(event)
            if isinstance(event, events.StreamDataReceived) and self.draining is None:
                self._quic.send_stream_data(event.stream_id, bytes(4 << 20))
                self.draining = asyncio.ensure_future(self.drain(event.stream_id))
            elif isinstance(event, events.StreamReset):
                self._quic.reset_stream(event.stream_id, 0x10C)
            self.transmit()

    async def main():
        server = server_configuration(**NARROW)
        client_side = client_configuration(max_stream_data=65536)
        async with (
            serving(server, Answering) as (port, protocols),
            connect("127.0.0.1", port, configuration=client_side) as client,
        ):
            client._quic.send_stream_data(0, b"request")
            client._quic.pause_stream(0)
            client.transmit()
            await eventually(lambda: protocols and protocols[0].draining is not None)
            await still(protocols[0], lambda: protocols[0].get_send_buffer_size(0))
            assert not protocols[0].draining.done()
            client._quic.reset_stream(0, 0x10C)
            client.transmit()
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(protocols[0].draining, 30)
            assert protocols[0]._drain_waiters == {}

    run_anywhere(main())


def test_a_drain_waits_from_the_mark_on(run, server_configuration, client_configuration):
    async def main():
        async with (
            serving(server_configuration(), Recorder) as (port, _),
            connect("127.0.0.1", port, configuration=client_configuration(**NARROW)) as client,
        ):
            mark = NARROW["send_buffer_high"]
            for stream_id, size, waits in ((0, mark - 1, False), (4, 1, True), (8, mark, True)):
                client._quic.send_stream_data(stream_id, bytes(size))
                assert client._quic.get_send_buffer_size(stream_id) == size
                draining = [client.drain()]
                if stream_id != 4:
                    draining.append(client.drain(stream_id))
                for drain in draining:
                    try:
                        drain.send(None)
                    except StopIteration:
                        assert not waits
                    else:
                        assert waits
                        drain.close()
            for stream_id in (0, 4, 8, None):
                await client.drain(stream_id)

    run(main())


def test_a_cancelled_drain_leaves_nothing_behind(run, server_configuration, client_configuration):
    async def main():
        async with (
            serving(server_configuration(max_stream_data=65536), Silent) as (port, _),
            connect("127.0.0.1", port, configuration=client_configuration(**NARROW)) as client,
        ):
            staying = await _filled(client, 0)
            for _ in range(20):
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(client.drain(0), 0.005)
            assert {key: len(waiters) for key, waiters in client._drain_waiters.items()} == {0: 1}
            staying.cancel()
            await asyncio.wait([staying])
            assert client._drain_waiters == {}

    run(main())


def test_a_stream_that_is_over_is_reset_and_one_that_never_was_is_unknown(
    run, server_configuration, client_configuration
):
    async def main():
        async with (
            serving(server_configuration(), Recorder) as (port, protocols),
            connect("127.0.0.1", port, configuration=client_configuration()) as client,
        ):
            client._quic.send_stream_data(0, b"request")
            client._quic.stop_stream(0, 1)
            client._quic.reset_stream(0, 1)
            await eventually(lambda: protocols)
            server = protocols[0]
            await server.wait_for(events.StreamReset)
            await server.wait_for(events.StopSendingReceived)
            with pytest.raises(ConnectionResetError, match="stream 0") as caught:
                server._quic.send_stream_data(0, b"answer")
            assert isinstance(caught.value, ValueError), "as in aioquic"
            with pytest.raises(ConnectionResetError, match="stream 0"):
                server._quic.stop_stream(0, 1)
            with pytest.raises(ValueError, match="stream 4"):
                server._quic.send_stream_data(4, b"the client has not opened this")

    run(main())


@pytest.mark.parametrize("frame_type", [None, 0], ids=["application", "transport"])
def test_a_close_without_an_error_ends_readers_orderly(
    run, server_configuration, client_configuration, frame_type
):
    async def main():
        async with (
            serving(server_configuration(), Recorder) as (port, protocols),
            connect("127.0.0.1", port, configuration=client_configuration()) as client,
        ):
            reader, writer = await client.create_stream()
            writer.write(b"request")
            await eventually(lambda: protocols and protocols[0].data)
            protocols[0]._quic.close(error_code=0, frame_type=frame_type, reason_phrase="bye")
            assert await asyncio.wait_for(reader.read(), 5) == b""

    run(main())


def test_a_full_datagram_queue_drops_the_oldest(
    run_anywhere, server_configuration, client_configuration
):
    async def main():
        fields = {"max_datagram_frame_size": 65536}
        server = server_configuration(**fields)
        client_side = client_configuration(**fields)
        async with (
            serving(server, Recorder) as (port, protocols),
            connect("127.0.0.1", port, configuration=client_side) as client,
        ):
            await client.ping()
            # All these calls are in one turn, so nothing is sent in between.
            for number in range(2000):
                client._quic.send_datagram_frame(number.to_bytes(2, "big") + bytes(1000))
            dropped = client.stats()["datagram_frames_dropped"]
            assert 900 < dropped < 1100
            client.transmit()

            def numbers():
                return {
                    int.from_bytes(event.data[:2], "big")
                    for event in protocols[0].events
                    if isinstance(event, events.DatagramFrameReceived)
                }

            await eventually(lambda: 1999 in numbers())
            assert min(numbers()) >= dropped

    run_anywhere(main())


def test_a_server_that_stops_accepting_refuses_at_once(
    run_anywhere, server_configuration, client_configuration
):
    async def main():
        async with serving(server_configuration()) as (port, protocols):
            async with connect("127.0.0.1", port, configuration=client_configuration()) as client:
                await client.ping()
                protocols[0]._transport.stop_accepting()
                with pytest.raises(ConnectionError) as caught:
                    async with connect("127.0.0.1", port, configuration=client_configuration()):
                        raise AssertionError("not refused")
                assert caught.value.error_code == 0x02  # CONNECTION_REFUSED
                await client.ping()
                assert protocols[0]._transport.stats()["incoming_refused"] == 1

    run_anywhere(main())


def test_drain_without_a_stream_waits_for_all_of_them(
    run_anywhere, server_configuration, client_configuration
):
    """Each stream is below the mark, but their sum is above it, and each stream's peer grants credit late."""

    async def main():
        marks = {"send_buffer_high": 1_000_000, "send_buffer_low": 250_000}
        async with (
            serving(server_configuration(max_stream_data=65536), Silent) as (port, protocols),
            connect("127.0.0.1", port, configuration=client_configuration(**marks)) as client,
        ):
            await asyncio.wait_for(client.drain(), 30)
            for stream_id in range(0, 16, 4):
                client._quic.send_stream_data(stream_id, bytes(900_000), end_stream=True)
                await asyncio.wait_for(client.drain(stream_id), 30)
            client.transmit()
            waiting = [asyncio.ensure_future(client.drain()) for _ in range(3)]
            # Each StreamReader buffers half a mebibyte before it pauses its stream.
            await eventually(lambda: protocols and len(protocols[0].held) == 4)
            await still(
                client, lambda: [client.get_send_buffer_size(one) for one in range(0, 16, 4)]
            )
            assert not any(task.done() for task in waiting)
            for reader, _ in protocols[0].held:
                assert len(await asyncio.wait_for(reader.read(), 10)) == 900_000
            await asyncio.wait_for(asyncio.gather(*waiting), 10)
            assert client._drain_waiters == {}
            await asyncio.wait_for(client.drain(), 30)

    run_anywhere(main())


def test_a_close_wakes_who_drains_the_connection(
    run_anywhere, server_configuration, client_configuration
):
    async def main():
        async with (
            serving(server_configuration(max_stream_data=65536), Silent) as (port, _),
            connect("127.0.0.1", port, configuration=client_configuration(**NARROW)) as client,
        ):
            client._quic.send_stream_data(0, bytes(4 << 20))
            waiting = asyncio.ensure_future(client.drain())
            await still(client, lambda: client.get_send_buffer_size(0))
            assert client.get_send_buffer_size(0) > 3 << 20
            assert not waiting.done()
            client.close()
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(waiting, 30)
            with pytest.raises(ConnectionResetError):
                await client.drain()

    run_anywhere(main())


def test_drain_keeps_a_sender_of_datagrams_from_losing_them_here(
    run_anywhere, server_configuration, client_configuration
):
    async def main():
        fields = {"max_datagram_frame_size": 65536}
        async with (
            serving(server_configuration(**fields), Recorder) as (port, _),
            connect("127.0.0.1", port, configuration=client_configuration(**fields)) as client,
        ):
            await client.ping()
            for _ in range(4000):
                client._quic.send_datagram_frame(bytes(1000))
                await asyncio.wait_for(client.drain(), 10)
            assert client.stats()["datagram_frames_dropped"] == 0

    run_anywhere(main())


def test_a_reset_is_reported_while_the_reader_is_paused(
    run_anywhere, server_configuration, client_configuration
):
    """Unread data does not hide the peer's reset of the stream."""

    async def main():
        async with (
            serving(server_configuration(), Recorder) as (port, protocols),
            connect("127.0.0.1", port, configuration=client_configuration()) as client,
        ):
            client._quic.send_stream_data(0, b"request")
            client.transmit()
            await eventually(lambda: protocols and protocols[0].data)
            server = protocols[0]
            server._quic.pause_stream(0)
            client._quic.send_stream_data(0, bytes(100_000))
            client.transmit()
            await client.ping()
            client._quic.reset_stream(0, 0x10C)
            client.transmit()
            reset = await server.wait_for(events.StreamReset)
            assert (reset.stream_id, reset.error_code) == (0, 0x10C)
            assert server.data == {0: b"request"}

    run_anywhere(main())


def test_an_urgent_stream_overtakes_bulk(run_anywhere, server_configuration, client_configuration):
    async def main():
        wide = {"max_data": 64 << 20, "max_stream_data": 64 << 20}
        async with (
            serving(server_configuration(**wide), Recorder) as (port, protocols),
            connect("127.0.0.1", port, configuration=client_configuration()) as client,
        ):
            client._quic.send_stream_data(0, bytes(24 << 20), end_stream=True)
            client._quic.send_stream_data(4, b"", end_stream=False)
            client.set_stream_priority(4, 0)
            client.set_stream_priority(0, 7, incremental=True)
            client._quic.send_stream_data(4, bytes(200_000), end_stream=True)
            client.transmit()
            await eventually(lambda: protocols and len(protocols[0].data.get(4, b"")) == 200_000)
            assert client.get_send_buffer_size(0) > 8 << 20
            for urgency in (-1, 8, 1 << 70):
                with pytest.raises((ValueError, OverflowError), match="urgency|int"):
                    client.set_stream_priority(0, urgency)
            with pytest.raises(ValueError, match="stream 3"):
                client.set_stream_priority(3, 0)

    run_anywhere(main())
