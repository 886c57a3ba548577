"""Buffers of the kernel's ring: returned before the callback with their bytes runs."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any

import pytest

from tests.loop.harness import Complaints, Recorder, Runner, connected_pair
from tests.loop.test_tls_data import end, tls_pair


def _out() -> int:
    loop: Any = asyncio.get_running_loop()
    return int(loop.stats()["buffers_out"])


class Counting(Recorder, asyncio.DatagramProtocol):
    """Counts the outstanding buffers when it receives bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.out: list[int] = []

    def data_received(self, data: bytes) -> None:
        self.out.append(_out())
        super().data_received(data)

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.data_received(data)


class CountingBuffers(Counting, asyncio.BufferedProtocol):
    """A counter with a buffer of its own that is smaller than the received data."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = bytearray(700)
        self.out_before: list[int] = []

    def get_buffer(self, sizehint: int) -> bytearray:
        self.out_before.append(_out())
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self.buffer[:nbytes]))


@pytest.mark.parametrize("make", [Counting, CountingBuffers])
def test_a_streams_bytes_arrive_in_memory_of_their_own(run_ours: Runner, make: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = connected_pair()
        _, protocol = await loop.create_connection(make, sock=one)
        for number in range(5):
            other.send(bytes([number]) * 2000)
            await protocol.until(lambda: len(protocol.data) >= 2000 * (number + 1))  # noqa: B023
        assert protocol.data == b"".join(bytes([number]) * 2000 for number in range(5))
        assert set(protocol.out) == {0}
        if make is CountingBuffers:
            assert len(protocol.out) >= 15
            assert max(protocol.out_before) <= 1
        protocol.transport.abort()
        other.close()

    run_ours(main())


def test_a_datagram_arrives_in_memory_of_its_own(run_ours: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_datagram_endpoint(Counting, local_addr=("127.0.0.1", 0))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
            peer.sendto(bytes(5000), protocol.transport.get_extra_info("sockname"))
        await protocol.until(lambda: len(protocol.data) == 5000)
        assert protocol.out == [0]
        protocol.transport.abort()

    run_ours(main())


@pytest.mark.parametrize("make", [Counting, CountingBuffers])
def test_tls_bytes_arrive_in_memory_of_their_own(
    run_ours: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext, make: Any
) -> None:
    async def main() -> None:
        client, served, server = await tls_pair(server_tls, client_tls, make)
        client.transport.write(bytes(3000))
        await served.until(lambda: len(served.data) == 3000)
        assert set(served.out) == {0}
        await end(client, server)

    run_ours(main())


@pytest.mark.parametrize("act", ["pause", "close", "abort", "raise", "switch"])
def test_the_ring_gets_its_buffers_back_after_every_get_buffer(run_ours: Runner, act: str) -> None:
    class Acts(Recorder, asyncio.BufferedProtocol):
        asked = 0

        def get_buffer(self, sizehint: int) -> bytearray:
            self.asked += 1
            if act == "pause":
                self.transport.pause_reading()
            elif act == "close":
                self.transport.close()
            elif act == "abort":
                self.transport.abort()
            elif act == "switch":
                self.transport.set_protocol(Recorder())
            else:
                raise LookupError("no buffer")
            return bytearray(10)

        def buffer_updated(self, nbytes: int) -> None:
            self._note("updated")

    complaints = Complaints()

    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        loop.set_exception_handler(complaints)
        many = min(400, 2 * loop.stats()["buffers_total"])
        pairs = [connected_pair() for _ in range(many)]
        made = [(await loop.create_connection(Acts, sock=one))[1] for one, _ in pairs]
        for _, other in pairs:
            other.send(bytes(5000))
        for protocol in made:
            while not protocol.asked:
                await asyncio.sleep(0.001)
        # The others' bytes, if any wait, are in memory of their own.
        await asyncio.sleep(0)
        assert _out() == 0
        one, other = connected_pair()
        _, witness = await loop.create_connection(Recorder, sock=one)
        for number in range(100):
            other.send(b"w" * 1000)
            await witness.until(lambda: len(witness.data) == 1000 * (number + 1))  # noqa: B023
        for protocol in (*made, witness):
            protocol.transport.abort()
        other.close()
        for _, other in pairs:
            other.close()
        await asyncio.sleep(0)

    run_ours(main())
    assert set(complaints.errors) == ({LookupError} if act == "raise" else set())
