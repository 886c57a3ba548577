"""Unreferenced objects are closed and collected, and debug mode names the line that made them."""

from __future__ import annotations

import asyncio
import gc
import sys
import warnings
import weakref

import pytest

from tests.quic.harness import eventually
from tests.quic.native.test_garbage_collection import gone
from tests.webtransport.session_pairs import accepting, connecting, serving, session_pair
from uringcore.quic import StreamResetError
from uringcore.webtransport import SessionClosedError, SessionRefusedError


def test_a_forgotten_session_is_closed(run_anywhere, certificate):
    async def main():
        accepted = []
        async with serving(certificate) as server, accepting(server, accepted):
            one = await connecting(certificate, server)
            ref = weakref.ref(one)
            del one
            await gone([ref])
            await accepted[0].wait_closed()
            assert accepted[0].close_code == 0
            one = await connecting(certificate, server)
            ref = weakref.ref(accepted.pop())
            await gone([ref])
            await one.wait_closed()

    run_anywhere(main())


def test_a_stream_keeps_its_session(run_anywhere, certificate):
    async def main():
        accepted = []
        async with serving(certificate) as server, accepting(server, accepted):
            stream = await (await connecting(certificate, server)).open_stream()
            gc.collect()
            await stream.send(b"x")
            there = await accepted[0].accept_stream()
            assert await there.readexactly(1) == b"x"
            stream.connection.close()
            await stream.connection.wait_closed()

    run_anywhere(main())


def test_a_forgotten_stream_is_ended(run_anywhere, certificate):
    async def main():
        async with session_pair(certificate) as (one, other):
            stream = await one.open_stream()
            await stream.send(b"half of")
            there = await other.accept_stream()
            ref = weakref.ref(stream)
            del stream
            await gone([ref])
            with pytest.raises(StreamResetError):
                await there.read()

    run_anywhere(main())


def test_sessions_go_when_they_are_over(run_anywhere, certificate):
    async def main():
        refs = []

        async def handler(session):
            refs.append(weakref.ref(session))
            async for stream in session.streams():
                refs.append(weakref.ref(stream))
                await stream.read()

        async with serving(certificate, handler=handler) as server:
            for _ in range(5):
                async with connecting(certificate, server) as session:
                    async with session.open_stream() as stream:
                        await stream.send(b"x")
                        await stream.finish()
                        refs += map(weakref.ref, (session, stream, session._link))
            refs.append(weakref.ref(server))
        del session, stream, server
        await gone(refs)

    run_anywhere(main())


def test_debug_mode_names_the_line_that_made_an_unreferenced_session(run_anywhere, certificate):
    async def main():
        asyncio.get_running_loop().set_debug(True)
        accepted = []
        async with serving(certificate) as server, accepting(server, accepted):
            one = await connecting(certificate, server)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                del one
                gc.collect()
            messages = [str(one.message) for one in caught if one.category is ResourceWarning]
            (message,) = (text for text in messages if "unclosed session" in text)
            assert f"made at {__file__}:" in message
            await accepted[0].wait_closed()

    run_anywhere(main())


def test_debug_mode_names_the_line_that_made_an_unreferenced_stream(run_anywhere, certificate):
    async def main():
        asyncio.get_running_loop().set_debug(True)
        async with session_pair(certificate) as ends:
            for session in ends:
                stream = await session.open_uni_stream()
                line = sys._getframe().f_lineno - 1
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    del stream
                    gc.collect()
                messages = [str(one.message) for one in caught]
                assert f"made at {__file__}:{line}" in "".join(messages)

    run_anywhere(main())


def test_objects_that_another_thread_collects_are_ended(run_anywhere, certificate):
    async def main():
        loop = asyncio.get_running_loop()
        accepted, collected = [], []
        async with serving(certificate) as server:
            asking = asyncio.ensure_future(connecting(certificate, server))
            collected.append(await anext(server))
            await loop.run_in_executor(None, collected.clear)
            with pytest.raises(SessionRefusedError):
                await asking
            async with accepting(server, accepted):
                collected.append(await connecting(certificate, server))
                await loop.run_in_executor(None, collected.clear)
                await accepted[0].wait_closed()

    run_anywhere(main())


def test_sessions_that_end_in_order_cause_no_warning(run_anywhere, certificate):
    async def main():
        asyncio.get_running_loop().set_debug(True)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            async with serving(certificate, handler=lambda s: s.wait_closed()) as server:
                async with connecting(certificate, server):
                    pass
                async with connecting(certificate, server) as one:
                    server.close(2)
                    with pytest.raises(SessionClosedError):
                        await one.accept_stream()
            gc.collect()
        assert not [one.message for one in caught if "unclosed" in str(one.message)]

    run_anywhere(main())


def test_a_loop_that_is_closed_with_open_sessions(run_anywhere, certificate):
    kept = []

    async def main():
        server = await serving(certificate, handler=lambda s: s.wait_closed())
        one = await connecting(certificate, server)
        stream = await one.open_stream()
        await stream.send(b"x")
        kept.extend([server, one, stream])

    run_anywhere(main())
    kept.clear()
    gc.collect()


def test_sessions_of_clients_whose_connections_end_leave_nothing(run_anywhere, certificate):
    async def main():
        refs, kept = [], []

        async def handler(session):
            refs.append(weakref.ref(session))
            async for stream in session.streams():
                refs.append(weakref.ref(stream))

        async with serving(certificate, {"idle_timeout": 5.0}, handler=handler) as server:
            for _ in range(20):
                one = await connecting(certificate, server)
                stream = await one.open_stream()
                await stream.send(b"x")
                kept.append((one, stream))
            await eventually(lambda: len(refs) == 40)
            for one, _ in kept:
                # The connection ends without a close of the session.
                one._link.connection.transport.drop()
            await eventually(lambda: server.stats()["sessions_open"] == 0)
            assert not server._transports
            kept.clear()
            del one, stream
            await gone(refs)

    run_anywhere(main())
