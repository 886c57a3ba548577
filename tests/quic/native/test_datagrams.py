"""Datagrams: one by one, in batches, and invalid ones."""

from __future__ import annotations

import asyncio

import pytest

from tests.quic.native.connection_pairs import pair
from uringcore import quic


def test_one_by_one_and_both_ways(run_anywhere, pki):
    async def main():
        async with pair(pki) as (one, other):
            for number in range(20):
                one.send_datagram(bytes([number]))
                assert await other.receive_datagram() == bytes([number])
                other.send_datagram(bytearray([number, number]))
                assert await one.receive_datagram() == bytes([number, number])

    run_anywhere(main())


def test_batches(run_anywhere, pki):
    async def main():
        async with pair(pki) as (one, other):
            sent = [bytes([number]) * 500 for number in range(100)]
            one.send_datagrams(sent)
            got = []
            while len(got) < 100:
                batch = await asyncio.wait_for(other.receive_datagrams(), 30)
                assert isinstance(batch, list) and batch
                got += batch
            assert got == sent
            assert other.datagrams_dropped == 0

    run_anywhere(main())


def test_the_iteration_ends_with_the_connection(run_anywhere, pki):
    async def main():
        async with pair(pki) as (one, other):

            async def collect():
                return [data async for data in other.datagrams()]

            collecting = asyncio.ensure_future(collect())
            one.send_datagrams([b"a", b"b"])
            await one.ping()
            one.close()
            assert await collecting == [b"a", b"b"]
            with pytest.raises(quic.ConnectionClosedError):
                await other.receive_datagram()
            with pytest.raises(quic.ConnectionClosedError):
                other.send_datagram(b"late")

    run_anywhere(main())


def test_an_error_is_raised_by_the_iteration(run_anywhere, pki):
    async def main():
        async with pair(pki) as (one, other):
            one.close(5, "enough")
            with pytest.raises(quic.ConnectionClosedError) as caught:
                async for _ in other.datagrams():
                    pass
            assert (caught.value.code, caught.value.reason) == (5, "enough")
            with pytest.raises(quic.ConnectionClosedError):
                async for _ in other.streams():
                    pass

    run_anywhere(main())


def test_one_that_is_too_long_is_refused_and_so_is_its_batch(run_anywhere, pki):
    async def main():
        async with pair(pki) as (one, other):
            most = one.max_datagram_size
            assert most > 1000
            for refused in (bytes(most + 100_000), bytes(70_000)):
                with pytest.raises(quic.DatagramSendError, match="at most"):
                    one.send_datagram(refused)
            with pytest.raises(quic.DatagramSendError):
                one.send_datagrams([b"fits", bytes(most + 100_000)])
            with pytest.raises(TypeError):
                one.send_datagrams(["text"])
            one.send_datagram(b"the only one")
            assert await other.receive_datagrams() == [b"the only one"]

    run_anywhere(main())


def test_a_side_that_takes_none(run_anywhere, pki):
    async def main():
        async with pair(pki, server={"datagrams": False}) as (one, other):
            assert one.max_datagram_size is None
            with pytest.raises(quic.DatagramSendError, match="not supported") as caught:
                one.send_datagram(b"x")
            # The exception belongs to the family of errors that a peer may cause, and to ValueError.
            assert isinstance(caught.value, quic.QuicError) and isinstance(caught.value, ValueError)
            with pytest.raises(quic.DatagramSendError):
                one.send_datagrams([b"x"])
            await one.ping()

    run_anywhere(main())


def test_datagrams_after_a_close_raise(run_anywhere, pki):
    """The error occurs at once, although the end itself is reported in the next turn."""

    async def main():
        async with pair(pki) as (one, _):
            one.close(3)
            with pytest.raises(quic.ConnectionClosedError):
                one.send_datagram(b"x")
            with pytest.raises(quic.ConnectionClosedError):
                one.send_datagrams([b"x"])
            await one.wait_closed()
            with pytest.raises(quic.ConnectionClosedError):
                one.send_datagram(b"x")

    run_anywhere(main())
