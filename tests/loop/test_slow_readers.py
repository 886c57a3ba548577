"""Readers that pause repeatedly: all data arrives in order, and waiting data is not scanned again."""

from __future__ import annotations

import asyncio
import hashlib
import random
import socket
import ssl
import sys
import threading

import pytest

from tests.loop.harness import Runner, connected_pair, rounds

SIZE = 24 << 20
COLLECTED = 64 * 1024


class SlowReader(asyncio.Protocol):
    """As in servers, reading pauses until the application has processed the collected data."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.received = hashlib.sha256()
        self.size = 0
        self.collected = 0
        self.pauses = 0
        self.backlog = 0
        self.paused = False
        self.over: asyncio.Future[None] = self.loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        """Collect, and pause once that is enough."""
        assert not self.paused
        self.received.update(data)
        self.size += len(data)
        self.collected += len(data)
        if self.collected > COLLECTED:
            self.paused = True
            self.pauses += 1
            self.transport.pause_reading()
            self.loop.call_soon(self.take)

    def take(self) -> None:
        """The application took it."""
        if hasattr(self.loop, "stats"):
            self.backlog = max(self.backlog, self.loop.stats()["backlog_bytes"])
        self.collected = 0
        self.paused = False
        self.transport.resume_reading()

    def eof_received(self) -> None:
        """All data has arrived, including data from a pause in reading. (TLS reports the end with the last
        record.)
        """
        assert not self.paused or self.transport.get_extra_info("sslcontext")

    def connection_lost(self, exc: BaseException | None) -> None:
        """The end."""
        if not self.over.done():
            self.over.set_result(None)


class SlowBufferedReader(SlowReader, asyncio.BufferedProtocol):
    """Uses a small buffer of its own, so that it pauses in the middle of received data."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = bytearray(5000)

    def get_buffer(self, sizehint: int) -> bytearray:
        """One small buffer."""
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Like data_received."""
        self.data_received(bytes(self.buffer[:nbytes]))


@pytest.mark.parametrize("kind", [SlowReader, SlowBufferedReader])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_an_upload_to_a_reader_that_pauses(
    run: Runner,
    kind: type[SlowReader],
    tls: bool,
    server_tls: ssl.SSLContext,
    client_tls: ssl.SSLContext,
) -> None:
    if run.name == "stock" and tls and kind is SlowBufferedReader:
        pytest.skip("asyncio's own TLS mixes up the bytes for a small buffer and a pause")
    if run.name == "stock" and tls and sys.version_info < (3, 11):
        pytest.skip("asyncio's own TLS of Python 3.10 goes on delivering after a pause")
    sent = random.Random(1).randbytes(SIZE)

    def upload(address: tuple[str, int]) -> None:
        with socket.create_connection(address) as plain:
            if not tls:
                plain.sendall(sent)
                return
            with client_tls.wrap_socket(plain, server_hostname="localhost") as wrapped:
                wrapped.sendall(sent)
                wrapped.unwrap()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        readers: list[SlowReader] = []

        def make() -> SlowReader:
            readers.append(kind())
            return readers[-1]

        server = await loop.create_server(make, "127.0.0.1", 0, ssl=server_tls if tls else None)
        address = server.sockets[0].getsockname()[:2]
        thread = threading.Thread(target=upload, args=(address,))
        thread.start()
        while not readers:
            await asyncio.sleep(0.001)
        await readers[0].over
        await loop.run_in_executor(None, thread.join)
        (reader,) = readers
        assert reader.size == SIZE
        assert reader.received.digest() == hashlib.sha256(sent).digest()
        assert reader.pauses >= SIZE // (COLLECTED + 256 * 1024)
        if run.ours:
            stats = loop.stats()  # type: ignore[attr-defined]
            # Each byte waited once at most; some came before the reader was known to pause.
            assert stats["bytes_held"] <= SIZE * 1.1
            assert stats["backlog_bytes"] == 0
            assert reader.backlog <= 2 * stats["buffers_bytes"]
        server.close()
        await server.wait_closed()

    run(main(), timeout=60)


def test_datagrams_to_a_reader_that_pauses_after_each(run: Runner) -> None:
    count = 150

    class Reader(asyncio.DatagramProtocol):
        """Pauses with the methods of uringcore's transport; asyncio's lacks them."""

        def __init__(self) -> None:
            self.received: list[bytes] = []
            self.paused = False

        def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
            self.transport = transport

        def datagram_received(self, data: bytes, addr: object) -> None:
            assert not self.paused
            self.received.append(data)
            if run.ours:
                self.paused = True
                self.transport.pause_reading()  # type: ignore[attr-defined]
                asyncio.get_running_loop().call_soon(self.resume)

        def resume(self) -> None:
            self.paused = False
            self.transport.resume_reading()  # type: ignore[attr-defined]

    async def main() -> None:
        loop = asyncio.get_running_loop()
        transport, reader = await loop.create_datagram_endpoint(Reader, local_addr=("127.0.0.1", 0))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
            for number in range(count):
                peer.sendto(str(number).encode(), transport.get_extra_info("sockname"))
        while len(reader.received) < count:
            await asyncio.sleep(0.001)
        assert reader.received == [str(number).encode() for number in range(count)]
        if run.ours:
            assert loop.stats()["datagrams_held"] <= count  # type: ignore[attr-defined]
        transport.close()

    run(main())


def test_the_end_comes_after_all_that_waited(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = connected_pair()
        transport, reader = await loop.create_connection(SlowReader, sock=one)
        await rounds()
        transport.pause_reading()
        reader.paused = True
        other.setblocking(False)
        sent = 0
        while sent < 200_000:
            try:
                sent += other.send(bytes(50_000))
            except BlockingIOError:
                break
        other.close()
        await rounds()
        assert reader.size == 0
        reader.take()
        await reader.over
        assert reader.size == sent

    run(main())
