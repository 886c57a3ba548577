"""No resource is left behind: descriptors, slots, buffers and memory return to their initial state."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from tests.loop.harness import (
    Echo,
    Recorder,
    Runner,
    collect,
    connected_pair,
    listen,
    open_descriptors,
    rounds,
)
from tests.support.allocated_memory import grown, memory

GAUGES = ("ops_in_flight", "buffers_out", "streams", "datagrams", "readers", "writers")


def _gauges(run: Runner) -> dict[str, int]:
    """The loop's gauges; empty on stock asyncio, where only descriptors are counted."""
    if not run.ours:
        return {}
    stats: dict[str, int] = asyncio.get_running_loop().stats()  # type: ignore[attr-defined]
    return {name: stats[name] for name in GAUGES}


async def _settled(run: Runner, expected: dict[str, int], descriptors: int) -> None:
    """Wait until everything is back; fail with the difference where it does not come back."""
    for _ in range(200):
        collect()
        if _gauges(run) == expected and open_descriptors() == descriptors:
            return
        await asyncio.sleep(0.02)
    assert _gauges(run) == expected
    assert open_descriptors() == descriptors


async def _talk(address: tuple[str, int], message: bytes) -> None:
    transport, client = await asyncio.get_running_loop().create_connection(Recorder, *address)
    transport.write(message)
    await client.until(lambda: len(client.data) >= len(message))
    assert client.data == message
    transport.close()
    await client.until_call("lost")


def test_a_thousand_connections_one_after_another(run: Runner) -> None:
    async def main() -> None:
        server, address = await listen(Echo)
        for _ in range(100):
            await _talk(address, b"warm-up" * 100)
        await rounds(20)
        collect()
        gauges, descriptors, taken = _gauges(run), open_descriptors(), memory()
        for number in range(1000):
            await _talk(address, number.to_bytes(4, "big") * 200)
        await _settled(run, gauges, descriptors)
        # A leak of 1 KiB a connection would be 1,000, one of an object as many blocks.
        heap, blocks = grown(taken)
        assert heap < 500
        assert blocks < 1000
        server.close()
        await server.wait_closed()

    run(main(), timeout=100)


def test_two_hundred_connections_at_once(run: Runner) -> None:
    async def wave(address: tuple[str, int]) -> None:
        await asyncio.gather(
            *(_talk(address, bytes([number % 251]) * 20_000) for number in range(200))
        )

    async def main() -> None:
        server, address = await listen(Echo, backlog=512)
        # Twice to warm up: the first wave sizes tables and the allocator's arenas.
        await wave(address)
        await wave(address)
        await rounds(20)
        collect()
        gauges, descriptors, taken = _gauges(run), open_descriptors(), memory()
        for _ in range(5):
            await wave(address)
        await _settled(run, gauges, descriptors)
        # A leak of 1 KiB a connection would be 1,000, one of an object at each end 2,000 blocks:
        # stock asyncio has more by half of them.
        heap, blocks = grown(taken)
        assert heap < 500
        assert blocks < 2000
        server.close()
        await server.wait_closed()

    run(main(), timeout=100)


def test_aborted_and_reset_connections_leave_nothing(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        await rounds()
        collect()
        gauges, descriptors = _gauges(run), open_descriptors()
        for number in range(200):
            one, other = connected_pair()
            transport, client = await loop.create_connection(Recorder, sock=one)
            other.send(b"unread")
            transport.write(b"w" * (1 if number % 2 else 1_000_000))
            if number % 3 == 0:
                transport.abort()
                other.close()
            elif number % 3 == 1:
                other.close()
            else:
                transport.pause_reading()
                transport.close()
                other.close()
            await client.until_call("lost")
        await _settled(run, gauges, descriptors)

    run(main(), timeout=60)


def test_transports_that_are_dropped_without_close(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        await rounds()
        collect()
        gauges, descriptors = _gauges(run), open_descriptors()
        for _ in range(20):
            one, other = connected_pair()
            _, client = await loop.create_connection(Recorder, sock=one)
            # The peer's end makes an unreferenced transport close.
            other.close()
            await client.until_call("lost")
            del client
        await _settled(run, gauges, descriptors)

    run(main())


def test_datagram_endpoints_leave_nothing(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        await rounds()
        collect()
        gauges, descriptors = _gauges(run), open_descriptors()
        for _ in range(200):
            transport, _ = await loop.create_datagram_endpoint(
                asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0)
            )
            transport.sendto(b"to itself", transport.get_extra_info("sockname"))
            await asyncio.sleep(0)
            transport.close()
        await _settled(run, gauges, descriptors)

    run(main())


def test_watchers_leave_nothing(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        await rounds()
        collect()
        gauges, descriptors = _gauges(run), open_descriptors()
        for _ in range(300):
            one, other = socket.socketpair()
            readable = asyncio.Event()
            loop.add_reader(one, readable.set)
            loop.add_writer(other, lambda: None)
            other.send(b"x")
            await readable.wait()
            loop.remove_reader(one)
            loop.remove_writer(other)
            one.close()
            other.close()
        await _settled(run, gauges, descriptors)

    run(main())


def test_servers_leave_nothing(run: Runner) -> None:
    async def main() -> None:
        await rounds()
        collect()
        gauges, descriptors = _gauges(run), open_descriptors()
        for _ in range(100):
            server, address = await listen(Echo)
            await _talk(address, b"hello")
            server.close()
            await server.wait_closed()
        await _settled(run, gauges, descriptors)

    run(main())


def test_callbacks_are_released(run: Runner) -> None:
    import weakref

    class Thing:
        pass

    async def main() -> None:
        loop = asyncio.get_running_loop()
        things = [Thing() for _ in range(5)]
        references = [weakref.ref(thing) for thing in things]
        loop.call_soon(lambda thing: None, things[0])
        loop.call_later(0.001, lambda thing: None, things[1])
        # A cancelled handle lets go of its arguments at once.
        loop.call_later(3600, lambda thing: None, things[2]).cancel()
        loop.call_soon(lambda thing: None, things[3]).cancel()
        loop.call_soon_threadsafe(lambda thing: None, things[4])
        things.clear()
        await asyncio.sleep(0.002)  # later than the timer
        collect()
        assert [reference() for reference in references] == [None] * 5

    run(main())


def test_loops_made_and_closed_by_the_hundred(run: Runner) -> None:
    async def once() -> None:
        server, address = await listen(Echo)
        await _talk(address, b"one loop")
        server.close()
        await server.wait_closed()

    def lives(count: int) -> None:
        for _ in range(count):
            run(once())

    lives(20)
    collect()
    descriptors, taken = open_descriptors(), memory()
    lives(200)
    collect()
    assert open_descriptors() == descriptors
    # A leak of 2 KiB a loop would be 400, one of three objects 600 blocks.
    heap, blocks = grown(taken)
    assert heap < 400
    assert blocks < 600


def test_stats_name_what_is_open(run_ours: Runner) -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        before = loop.stats()
        server, address = await listen(Echo)
        transport, client = await loop.create_connection(Recorder, *address)
        transport.write(b"x")
        await client.until_call("data")
        datagram, _ = await loop.create_datagram_endpoint(
            asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0)
        )
        timer = loop.call_later(1000, print)
        stats = loop.stats()
        assert stats["streams"] == before["streams"] + 2
        assert stats["listeners"] == before["listeners"] + 1
        assert stats["datagrams"] == before["datagrams"] + 1
        assert stats["timers"] > before["timers"]
        assert stats["ops_in_flight"] <= stats["slots"]
        assert stats["syscalls"] > before["syscalls"]
        assert stats["completions"] > before["completions"]
        assert stats["turns"] > before["turns"]
        assert stats["syscalls"] >= stats["enters"] > before["enters"]
        assert 0 < stats["buffers_bytes"] < stats["memory_bytes"]
        assert all(isinstance(value, int) and value >= 0 for value in stats.values())
        # More than sockets accept, with no reader.
        transport.write(bytes(64 << 20))
        client.transport.pause_reading()
        assert 16 << 20 < loop.stats()["write_queue_bytes"] <= 64 << 20
        transport.abort()
        assert loop.stats()["write_queue_bytes"] == 0
        timer.cancel()
        datagram.close()
        transport.close()
        await client.until_call("lost")
        server.close()

    run_ours(main())
