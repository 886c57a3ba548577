"""Streams: sent data arrives through every way of reading, and each kind of end is distinct."""

from __future__ import annotations

import asyncio

import pytest

from tests.quic.harness import eventually, patterned
from tests.quic.native.connection_pairs import pair, settled, stream_pair
from uringcore import quic


def test_a_request_and_its_answer(run_anywhere, pki):
    async def serve(connection):
        async for stream in connection.streams():
            async with stream:
                await stream.send(b"re: " + await stream.read())

    async def main():
        async with pair(pki) as (one, other):
            server = asyncio.ensure_future(serve(other))
            for number in range(3):
                async with one.open_stream() as stream:
                    assert stream.id == number * 4
                    await stream.send(b"hello")
                    await stream.finish()
                    assert await stream.read() == b"re: hello"
            one.close()
            # The iteration ends with the connection.
            await server

    run_anywhere(main())


def test_one_class_is_both_others(run_anywhere, pki):
    async def main():
        async with pair(pki) as (one, other):
            async with one.open_stream() as both, one.open_uni_stream() as outgoing:
                assert isinstance(both, quic.BidirectionalStream)
                assert isinstance(both, quic.SendStream) and isinstance(both, quic.ReceiveStream)
                assert type(outgoing) is quic.SendStream and not hasattr(outgoing, "read")
                assert both.connection is one and outgoing.connection is one
                assert repr(both) == f"<BidirectionalStream {both.id}>"
                await outgoing.send(b"x")
                incoming = await other.accept_uni_stream()
                assert type(incoming) is quic.ReceiveStream and not hasattr(incoming, "send")
                assert incoming.id == outgoing.id and incoming.connection is other
            with pytest.raises(TypeError):
                quic.SendStream()

    run_anywhere(main())


def test_uni_streams_go_both_ways(run_anywhere, pki):
    async def main():
        async with pair(pki) as (one, other):
            for sender, receiver in ((one, other), (other, one)):
                for number in range(3):
                    async with sender.open_uni_stream() as stream:
                        await stream.send(bytes([number]) * 1000)
                    async with await receiver.accept_uni_stream() as stream:
                        assert await stream.read() == bytes([number]) * 1000

    run_anywhere(main())


def test_a_long_message_arrives_whole(run_anywhere, pki):
    message = patterned(3 << 20)

    async def send(stream):
        await stream.send_all(message)
        await stream.finish()

    async def main():
        async with stream_pair(pki) as (here, there):
            sending = asyncio.ensure_future(send(here))
            assert await there.read() == message
            await sending
            await here.wait_finished()

    run_anywhere(main())


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_send_all_takes_what_has_bytes(run_anywhere, pki, kind):
    message = patterned(1 << 20)

    async def main():
        async with stream_pair(pki) as (here, there):
            sending = asyncio.ensure_future(here.send_all(kind(message)))
            assert await there.readexactly(len(message)) == message
            await sending

    run_anywhere(main())


def test_a_mutable_message_is_sent_as_it_was(run_anywhere, pki):
    async def main():
        async with stream_pair(pki) as (here, there):
            data = bytearray(b"a" * 100)
            sending = here.send(data)
            data[:] = b"b" * 100
            await sending
            assert await there.readexactly(100) == b"a" * 100

    run_anywhere(main())


def test_every_way_of_reading(run_anywhere, pki):
    async def main():
        async with stream_pair(pki) as (here, there):
            await here.writelines(
                [b"line 1\n", bytearray(b"line 2\r\n"), memoryview(b"0123456789")]
            )
            await here.finish()
            assert await there.readuntil() == b"line 1\n"
            assert await there.readuntil(b"\r\n", limit=6) == b"line 2\r\n"
            assert await there.readexactly(4) == b"0123"
            assert await there.read(0) == b""
            target = bytearray(4)
            assert await there.readinto(target) == 4 and target == b"4567"
            assert await there.readexactly(0) == b""
            assert await there.read(100) == b"89"
            assert await there.read(100) == b""
            assert await there.read() == b""
            assert await there.readinto(target) == 0

    run_anywhere(main())


def test_pieces_come_as_they_arrive(run_anywhere, pki):
    async def main():
        async with stream_pair(pki) as (here, there):
            pieces = []

            async def collect():
                async for piece in there:
                    pieces.append(piece)

            reading = asyncio.ensure_future(collect())
            for number in range(1, 4):
                await here.send(bytes([number]))
                await eventually(lambda: len(b"".join(pieces)) == number)  # noqa: B023
            await here.finish()
            await reading
            assert b"".join(pieces) == b"\1\2\3"

    run_anywhere(main())


def test_the_exception_contains_the_incomplete_data(run_anywhere, pki):
    async def main():
        async with stream_pair(pki) as (here, there):
            await here.send(b"abc")
            await here.finish()
            with pytest.raises(asyncio.IncompleteReadError) as caught:
                await there.readexactly(5)
            assert (caught.value.partial, caught.value.expected) == (b"abc", 5)
        async with stream_pair(pki) as (here, there):
            await here.send(b"abc")
            await here.finish()
            with pytest.raises(asyncio.IncompleteReadError) as caught:
                await there.readuntil(b"\n")
            assert (caught.value.partial, caught.value.expected) == (b"abc", None)
            assert await there.read() == b""

    run_anywhere(main())


def test_a_line_that_is_too_long_stays_unread(run_anywhere, pki):
    async def main():
        async with stream_pair(pki) as (here, there):
            await here.send(b"a" * 100 + b"\n")
            with pytest.raises(asyncio.LimitOverrunError):
                await there.readuntil(limit=99)
            assert await there.readuntil(limit=100) == b"a" * 100 + b"\n"

    run_anywhere(main())


def test_invalid_arguments(run_anywhere, pki):
    async def main():
        async with stream_pair(pki) as (here, there):
            for call in (
                lambda: here.send("text"),
                lambda: here.send_all(1),
                lambda: here.writelines([1]),
                lambda: there.readinto(b"read only"),
                lambda: there.readuntil("text"),
            ):
                with pytest.raises(TypeError):
                    call()
            for call in (
                lambda: there.readexactly(-1),
                lambda: there.readuntil(b""),
                lambda: here.priority(8),
                lambda: here.priority(-1),
                lambda: here.reset(1 << 62),
                lambda: there.stop(1 << 62),
            ):
                with pytest.raises(ValueError):
                    call()
            await here.send(b"still open")
            assert await there.readexactly(10) == b"still open"

    run_anywhere(main())


def test_a_reset_has_its_code(run_anywhere, pki):
    async def main():
        async with stream_pair(pki) as (here, there):
            reading = await settled(asyncio.ensure_future(there.read()))
            here.reset(77)
            with pytest.raises(quic.StreamResetError) as caught:
                await reading
            assert (caught.value.code, caught.value.stream_id) == (77, here.id)
            assert isinstance(caught.value, quic.QuicError)
            assert isinstance(caught.value, ConnectionError)
            # The error is raised again for each later reader.
            with pytest.raises(quic.StreamResetError):
                await there.read(1)
            with pytest.raises(quic.StreamClosedError):
                await here.send(b"more")
            with pytest.raises(quic.StreamClosedError):
                await here.wait_finished()
            # The reset leaves the other direction open.
            await there.send(b"back")
            await there.finish()
            assert await here.read() == b"back"

    run_anywhere(main())


def test_a_stop_has_its_code(run_anywhere, pki):
    async def main():
        async with stream_pair(pki, client={"send_buffer": 10_000}) as (here, there):
            there.stop(78)
            with pytest.raises(quic.StreamStoppedError) as caught:
                while True:
                    await here.send(b"x" * 1000)
                    await asyncio.sleep(0)
            assert (caught.value.code, caught.value.stream_id) == (78, here.id)
            with pytest.raises(quic.StreamStoppedError):
                await here.finish()
            with pytest.raises(quic.StreamStoppedError):
                await here.wait_finished()
            with pytest.raises(quic.StreamClosedError):
                await there.read()

    run_anywhere(main())


def test_a_stop_wakes_a_waiting_sender(run_anywhere, pki):
    async def main():
        client, server = {"send_buffer": 10_000}, {"receive_window": 20_000}
        async with stream_pair(pki, client, server) as (here, there):
            sending = await settled(asyncio.ensure_future(here.send_all(bytes(1 << 20))))
            assert not sending.done()
            there.stop(5)
            with pytest.raises(quic.StreamStoppedError):
                await sending

    run_anywhere(main())


def test_a_reader_and_a_sender_get_the_error_of_their_own_side(run_anywhere, pki):
    async def main():
        client, server = {"send_buffer": 10_000}, {"receive_window": 20_000}
        async with stream_pair(pki, client, server) as (here, _):
            reading = await settled(asyncio.ensure_future(here.read()))
            sending = await settled(asyncio.ensure_future(here.send_all(bytes(1 << 20))))
            delivered = await settled(asyncio.ensure_future(here.wait_finished()))
            here.stop()
            here.reset()
            for waiting in (reading, sending, delivered):
                with pytest.raises(quic.StreamClosedError):
                    await waiting

    run_anywhere(main())


def test_after_the_finish_nothing_is_sent(run_anywhere, pki):
    async def main():
        async with stream_pair(pki) as (here, there):
            await here.finish()
            await here.finish()
            with pytest.raises(quic.StreamClosedError):
                await here.send(b"more")
            assert await there.read() == b""
            await here.wait_finished()
            # The stream has ended: a reset and a new priority have no effect.
            here.reset()
            here.priority(1)

    run_anywhere(main())


def test_the_last_message_finishes_the_stream(run_anywhere, pki):
    async def main():
        async with stream_pair(pki) as (here, there):
            await here.send(b"first, ")
            await here.send(b"last", finish=True)
            await here.finish()
            for more in (here.send(b"more"), here.send(b"", finish=True)):
                with pytest.raises(quic.StreamClosedError):
                    await more
            assert await there.read() == b"first, last"
            await there.send(b"", finish=True)
            assert await here.read() == b""
            await here.wait_finished()

    run_anywhere(main())


def test_the_last_message_waits_for_room_and_the_end_alone_does_not(run_anywhere, pki):
    async def main():
        client, server = {"send_buffer": 10_000}, {"receive_window": 20_000}
        for last in (b"last", b""):
            async with stream_pair(pki, client, server) as (here, there):
                await here.send(bytes(1 << 16))
                sending = await settled(asyncio.ensure_future(here.send(last, finish=True)))
                assert sending.done() == (not last)
                assert await there.read() == bytes(1 << 16) + last
                await sending

    run_anywhere(main())


def test_the_end_is_known_with_the_last_byte(run_anywhere, pki):
    async def main():
        async with stream_pair(pki) as (here, there):
            await here.send(b"ab")
            assert not there.at_eof()
            assert await there.readexactly(2) == b"ab"
            assert not there.at_eof()
            await here.send(b"cd", finish=True)
            await here.wait_finished()
            # The data has arrived and is unread.
            assert not there.at_eof()
            assert await there.read(1) == b"c"
            assert not there.at_eof()
            assert await there.read(1) == b"d"
            assert there.at_eof()
            assert await there.read(1) == b""

    run_anywhere(main())


def test_a_stream_that_was_reset_is_at_no_end(run_anywhere, pki):
    async def main():
        async with stream_pair(pki) as (here, there):
            await here.send(b"ab")
            here.reset(4)
            with pytest.raises(quic.StreamResetError):
                while True:
                    await there.read(1)
            assert not there.at_eof()

    run_anywhere(main())


def test_wait_finished_waits_for_all_of_it(run_anywhere, pki):
    async def main():
        async with stream_pair(pki, server={"receive_window": 10_000}) as (here, there):
            await here.send(bytes(100_000))
            waiting = await settled(asyncio.ensure_future(here.wait_finished()))
            await here.finish()
            await settled(waiting)
            assert not waiting.done()
            assert len(await there.read()) == 100_000
            await waiting

    run_anywhere(main())


def test_leaving_a_block_ends_the_stream(run_anywhere, pki):
    async def main():
        async with pair(pki) as (one, other):
            async with one.open_stream() as stream:
                await stream.send(b"done")
            there = await other.accept_stream()
            assert await there.read() == b"done"
            with pytest.raises(quic.StreamStoppedError):
                while True:
                    await there.send(b"nobody reads this")
                    await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="of the program"):
                async with one.open_stream() as stream:
                    await stream.send(b"not done")
                    raise RuntimeError("of the program")
            there = await other.accept_stream()
            with pytest.raises(quic.StreamResetError):
                await there.read()

    run_anywhere(main())


def test_streams_of_little_urgency_still_arrive(run_anywhere, pki):
    async def main():
        async with pair(pki) as (one, other):
            for number in range(8):
                async with one.open_uni_stream() as stream:
                    stream.priority(7 - number, incremental=number % 2 == 0)
                    await stream.send(bytes([number]) * 10_000)
            got = set()
            for _ in range(8):
                async with await other.accept_uni_stream() as stream:
                    got.add(await stream.read())
            assert got == {bytes([number]) * 10_000 for number in range(8)}

    run_anywhere(main())


def test_a_send_with_room_and_a_read_with_data_need_no_turn(run_anywhere, pki):
    async def main():
        async with stream_pair(pki) as (here, there):
            turns = []
            asyncio.get_running_loop().call_soon(turns.append, 1)
            await here.send(b"x" * 100)
            await here.finish()
            assert turns == []
            # The read waits for the first byte; the rest needs no further turn.
            assert await there.readexactly(1) == b"x"
            turns.clear()
            asyncio.get_running_loop().call_soon(turns.append, 1)
            assert await there.readexactly(50) == b"x" * 50
            assert await there.read() == b"x" * 49
            assert turns == []

    run_anywhere(main())


def test_nothing_happens_before_an_awaitable_is_awaited(run_anywhere, pki):
    async def main():
        async with stream_pair(pki) as (here, there):
            never = here.send(b"never")
            with pytest.warns(RuntimeWarning, match="never awaited"):
                del never
            late = here.send(b"late")
            await here.send(b"early ")
            await late
            with pytest.raises(RuntimeError, match="already awaited"):
                await late
            assert await there.readexactly(10) == b"early late"

    run_anywhere(main())


def test_hundreds_of_streams_at_once(run_anywhere, pki):
    async def serve(connection):
        async def answer(stream):
            async with stream:
                await stream.send(await stream.read())

        tasks = [asyncio.ensure_future(answer(stream)) async for stream in connection.streams()]
        await asyncio.gather(*tasks)

    async def ask(connection, number):
        async with connection.open_stream() as stream:
            message = patterned(100, number)
            await stream.send(message)
            await stream.finish()
            assert await stream.read() == message

    async def main():
        # More streams than the peer allows at a time.
        async with pair(pki, server={"max_streams": 50}) as (one, other):
            server = asyncio.ensure_future(serve(other))
            await asyncio.gather(*(ask(one, number) for number in range(300)))
            one.close()
            await server

    run_anywhere(main())
