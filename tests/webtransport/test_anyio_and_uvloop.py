"""Sessions on uvloop, and under anyio's task groups and time limits."""

from __future__ import annotations

import asyncio

import pytest

from tests.webtransport.session_pairs import connecting, serving


async def _echo(session):
    async for stream in session.streams():
        async with stream:
            await stream.send(await stream.read())


async def _ask(session, message):
    async with session.open_stream() as stream:
        await stream.send(message)
        await stream.finish()
        return await stream.read()


def test_uvloop(certificate):
    uvloop = pytest.importorskip("uvloop", reason="uvloop is not installed")

    async def main():
        async with serving(certificate, handler=_echo) as server:
            async with connecting(certificate, server) as session:
                for number in range(5):
                    assert await _ask(session, b"%d" % number) == b"%d" % number
                session.close(3, "enough")
            assert session.close_code == 3

    loop = uvloop.new_event_loop()
    try:
        loop.run_until_complete(asyncio.wait_for(main(), 60))
    finally:
        loop.close()


def test_anyio(run_anywhere, certificate):
    anyio = pytest.importorskip("anyio", reason="anyio comes with the extra that frameworks need")

    async def main():
        async with serving(certificate, handler=_echo) as server:
            async with connecting(certificate, server) as session:
                with anyio.move_on_after(0.01) as scope:
                    await session.accept_stream()
                assert scope.cancelled_caught
                async with anyio.create_task_group() as group:
                    for _ in range(5):
                        group.start_soon(_ask, session, b"x")
                with anyio.fail_after(30):
                    assert await _ask(session, b"after") == b"after"

    run_anywhere(main())
