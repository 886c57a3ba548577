"""0-RTT data through ``uringcore.quic``: sent and answered before the handshake is complete."""

from __future__ import annotations

import asyncio

import pytest

from tests.quic.harness import eventually
from tests.quic.native.connection_pairs import connecting, listening
from uringcore import quic

pytestmark = pytest.mark.either_backend


async def ticket_of(pki, listener):
    async with connecting(pki, listener) as one:
        await eventually(lambda: one.session_ticket is not None)
        return one.session_ticket


async def answer(listener, seen):
    """Echoes one stream of each connection; appends to ``seen`` if it was early data."""
    async for connection in listener:
        async with connection:
            async for stream in connection.streams():
                async with stream:
                    seen.append(connection.early_data)
                    await stream.send(await stream.read())


async def ask(connection, question):
    async with connection.open_stream() as stream:
        await stream.send(question)
        await stream.finish()
        return await stream.read()


def test_a_request_leaves_with_the_handshake_and_is_answered_with_it(run_anywhere, pki):
    async def main():
        seen = []
        async with listening(pki, early_data=True) as listener:
            server = asyncio.ensure_future(answer(listener, seen))
            ticket = await ticket_of(pki, listener)
            async with connecting(pki, listener, session_ticket=ticket, early_data=True) as one:
                assert not one.is_resumed and not one.early_data
                assert await ask(one, b"early") == b"early"
                await one.wait_connected()
                assert one.is_resumed and one.early_data
            assert seen == [True]
            # The server accepts early data with a ticket only once. The second time it arrives as 1-RTT data.
            async with connecting(pki, listener, session_ticket=ticket, early_data=True) as two:
                assert await ask(two, b"late") == b"late"
                assert not two.early_data
            assert seen == [True, False]
            listener.close()
            await server

    run_anywhere(main())


def test_rejected_early_data_arrives_later(run_anywhere, pki):
    async def main():
        seen = []
        async with listening(pki, early_data=True) as before:
            ticket = await ticket_of(pki, before)
        # A restarted server, which has no stored session.
        async with listening(pki, early_data=True) as listener:
            server = asyncio.ensure_future(answer(listener, seen))
            config = {"session_ticket": ticket, "early_data": True}
            async with connecting(pki, listener, **config) as one:
                assert await ask(one, bytes(5000)) == bytes(5000)
                assert not one.early_data and not one.is_resumed
            assert seen == [False]
            listener.close()
            await server

    run_anywhere(main())


def test_a_failed_handshake_raises_in_every_waiter(run_anywhere, pki):
    async def main():
        async with listening(pki, early_data=True) as before:
            ticket = await ticket_of(pki, before)
        async with listening(pki, alpn=["other"]) as listener:
            one = await connecting(pki, listener, session_ticket=ticket, early_data=True)
            with pytest.raises(quic.QuicAlpnError):
                await ask(one, b"x")
            with pytest.raises(quic.QuicAlpnError):
                await one.wait_connected()
            await one.wait_closed()

    run_anywhere(main())


def test_without_a_ticket_connecting_waits_for_the_handshake(run_anywhere, pki):
    async def main():
        async with listening(pki) as listener:
            async with connecting(pki, listener, early_data=True) as one:
                await one.wait_connected()
                assert not one.early_data
                async with await listener.accept() as other:
                    await other.wait_connected()
                    assert not other.early_data

    run_anywhere(main())
