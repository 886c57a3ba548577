"""Unreferenced objects are closed and collected; finished objects leave nothing in memory."""

from __future__ import annotations

import asyncio
import gc
import re
import sys
import time
import warnings
import weakref

import pytest

from tests.quic.harness import eventually
from tests.quic.native.connection_pairs import (
    cancelled,
    client_config,
    connecting,
    listening,
    pair,
    settled,
)
from uringcore import quic


async def gone(refs):
    """Waits until all of them are collected: the latest turn may keep the last ones for a moment."""
    for _ in range(200):
        gc.collect()
        if not any(ref() for ref in refs):
            return
        await asyncio.sleep(0.02)
    raise AssertionError([ref() for ref in refs if ref()])


def test_connections_streams_and_listeners_go(run_anywhere, pki):
    async def main():
        refs = []
        async with listening(pki) as listener:
            for _ in range(5):
                async with connecting(pki, listener) as one:
                    async with await listener.accept() as other:
                        async with one.open_stream() as here:
                            await here.send(b"x")
                            async with await other.accept_stream() as there:
                                await there.readexactly(1)
                                refs += map(weakref.ref, (one, other, here, there))
                del one, other, here, there
            refs.append(weakref.ref(listener))
        del listener
        await gone(refs)

    run_anywhere(main())


def test_a_forgotten_stream_is_ended(run_anywhere, pki):
    async def main():
        async with pair(pki) as (one, other):
            stream = await one.open_stream()
            await stream.send(b"half of")
            there = await other.accept_stream()
            ref = weakref.ref(stream)
            del stream
            await gone([ref])
            with pytest.raises(quic.StreamResetError):
                await there.read()
            with pytest.raises(quic.StreamStoppedError):
                while True:
                    await there.send(b"x")
                    await asyncio.sleep(0)

    run_anywhere(main())


def test_a_forgotten_stream_that_was_finished_arrives(run_anywhere, pki):
    async def main():
        async with pair(pki) as (one, other):
            stream = await one.open_uni_stream()
            await stream.send(bytes(500_000))
            await stream.finish()
            ref = weakref.ref(stream)
            del stream
            await gone([ref])
            assert len(await (await other.accept_uni_stream()).read()) == 500_000

    run_anywhere(main())


def test_streams_leave_their_places_to_others(run_anywhere, pki):
    async def main():
        async with pair(pki, server={"max_streams": 3}) as (one, other):
            for _ in range(20):
                stream = await one.open_stream()
                await stream.send(b"x")
                there = await other.accept_stream()
                del stream, there
            await eventually(lambda: one.stats()["streams_open"] <= 3)

    run_anywhere(main())


def test_a_forgotten_stream_leaves_no_cancelled_waiters(run_anywhere, pki):
    async def main():
        async with pair(pki) as (one, _):
            stream = await one.open_stream()
            reading = await settled(asyncio.ensure_future(stream.read(1)))
            # The future is asyncio's, in its C and its Python version.
            refs = [weakref.ref(reading._fut_waiter)]
            await cancelled(reading)
            del stream, reading
            await gone(refs)

    run_anywhere(main())


def test_a_forgotten_connection_is_closed(run_anywhere, pki):
    async def main():
        async with listening(pki) as listener:
            one = await connecting(pki, listener)
            other = await listener.accept()
            ref = weakref.ref(one)
            del one
            await gone([ref])
            await other.wait_closed()
            with pytest.raises(quic.ConnectionClosedError):
                await other.accept_stream()

    run_anywhere(main())


def test_a_stream_keeps_its_connection(run_anywhere, pki):
    async def main():
        async with listening(pki) as listener:
            stream = await (await connecting(pki, listener)).open_stream()
            gc.collect()
            await stream.send(b"x")
            async with await listener.accept() as other:
                there = await other.accept_stream()
                assert await there.readexactly(1) == b"x"
                stream.connection.close()
                await stream.connection.wait_closed()

    run_anywhere(main())


def test_a_forgotten_listener_is_closed(run_anywhere, pki):
    async def main():
        listener = await listening(pki)
        address, ref = listener.address, weakref.ref(listener)
        async with quic.connect(*address, client_config(pki)) as one:
            other = await listener.accept()
            del listener
            await gone([ref])
            await one.wait_closed()
            await other.wait_closed()
        with pytest.raises(quic.QuicConnectionError):
            await quic.connect(*address, client_config(pki, idle_timeout=2))

    run_anywhere(main())


async def forgotten_elsewhere(things):
    """Lets another thread collect the object in ``things``, as part of a cycle, while the loop sleeps."""
    cycle = [things.pop()]
    cycle.append(cycle)
    ref = weakref.ref(cycle[0])
    gc.disable()
    try:
        del cycle

        def collect():
            time.sleep(0.1)
            gc.collect()

        await asyncio.get_running_loop().run_in_executor(None, collect)
        assert ref() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("debug", [False, True])
def test_a_connection_that_another_thread_collects_is_closed(run_anywhere, pki, debug):
    async def main():
        asyncio.get_running_loop().set_debug(debug)
        async with listening(pki) as listener:
            things, said = [await connecting(pki, listener)], []
            other = await listener.accept()
            with warnings.catch_warnings():
                warnings.simplefilter("always")
                # Store the text alone: a recorded warning would keep its object alive.
                warnings.showwarning = lambda message, *about: said.append(str(message))
                await forgotten_elsewhere(things)
                await other.wait_closed()
            assert len([text for text in said if "unclosed connection" in text]) == debug

    run_anywhere(main())


def test_a_listener_that_another_thread_collects_is_closed(run_anywhere, pki):
    async def main():
        things = [await listening(pki)]
        async with connecting(pki, things[0]) as one:
            other = await things[0].accept()
            await forgotten_elsewhere(things)
            await one.wait_closed()
            await other.wait_closed()

    run_anywhere(main())


def test_a_warning_that_is_an_error_keeps_nothing_open(run_anywhere, pki, monkeypatch):
    raised = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: raised.append(report.exc_value))

    async def main():
        asyncio.get_running_loop().set_debug(True)
        with warnings.catch_warnings():
            warnings.simplefilter("error", ResourceWarning)
            listener = await listening(pki)
            one = await connecting(pki, listener)
            other = await listener.accept()
            del one
            gc.collect()
            await other.wait_closed()
            async with connecting(pki, listener) as two:
                del listener
                gc.collect()
                await two.wait_closed()
        assert [type(error) for error in raised] == [ResourceWarning] * 2

    run_anywhere(main())


def test_debug_mode_names_the_line_that_made_an_unreferenced_object(run_anywhere, pki):
    async def said(caught, pattern):
        def is_said():
            gc.collect()
            newest = [str(one.message) for one in caught[-1:] if one.category is ResourceWarning]
            return any(re.fullmatch(pattern, message) for message in newest)

        await eventually(is_said)

    def here(lines_before):
        return f"made at {__file__}:{sys._getframe(1).f_lineno - lines_before}"

    async def main():
        asyncio.get_running_loop().set_debug(True)
        listener = await listening(pki)
        listener_made = here(1)
        one = await connecting(pki, listener)
        one_made = here(1)
        other = await listener.accept()
        stream = await one.open_stream()
        stream_made = here(1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del stream
            await said(caught, f"unclosed stream 0, {stream_made}")
            del one
            await said(caught, f"unclosed connection <Connection open .*>, {one_made}")
            await other.wait_closed()
            del listener
            await said(caught, f"unclosed listener <Listener open>, {listener_made}")
            assert len(caught) == 3

    run_anywhere(main())


def test_ended_objects_cause_no_warning(run_anywhere, pki):
    async def main():
        asyncio.get_running_loop().set_debug(True)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            async with pair(pki) as (one, other):
                stream = await one.open_stream()
                await stream.send(b"x")
                await stream.finish()
                async with await other.accept_stream() as there:
                    assert await there.read() == b"x"
                assert await stream.read() == b""
                left = await one.open_uni_stream()
                left.reset()
                del stream, there, left
                gc.collect()
        assert not [one.message for one in caught if "unclosed" in str(one.message)]

    run_anywhere(main())


def test_connections_that_a_listener_closes_cause_no_warning(run_anywhere, pki):
    async def main():
        asyncio.get_running_loop().set_debug(True)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            async with listening(pki) as listener:
                async with connecting(pki, listener) as one:
                    # A reply means that the handshake is complete on both sides.
                    await one.ping()
                    listener.close()
                    await one.wait_closed()
            gc.collect()
        assert not [one.message for one in caught if "unclosed connection" in str(one.message)]

    run_anywhere(main())


def test_waiters_of_a_dead_connection_go(run_anywhere, pki):
    async def main():
        async with pair(pki) as (one, other):
            tasks = [asyncio.ensure_future(one.accept_stream()) for _ in range(10)]
            await asyncio.sleep(0)
            refs = [weakref.ref(task) for task in tasks]
            other.close(3)
            await asyncio.wait(tasks)
            assert all(isinstance(task.exception(), quic.ConnectionClosedError) for task in tasks)
        tasks.clear()
        await gone(refs)

    run_anywhere(main())


def test_a_loop_that_is_closed_with_open_streams(run_anywhere, pki):
    kept = []

    async def main():
        listener = await listening(pki)
        one = await connecting(pki, listener)
        stream = await one.open_stream()
        await stream.send(b"x")
        kept.extend([listener, one, stream])

    run_anywhere(main())
    stream = kept.pop()
    stream.reset()
    with pytest.raises((quic.QuicError, RuntimeError)):
        stream.send(b"x").send(None)
    del stream
    kept.clear()
    gc.collect()
