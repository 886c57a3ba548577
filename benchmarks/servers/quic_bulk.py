"""The QUIC server on a named library: aioquic, qh3, aiopquic or uringcore.

Prints `READY <port>` and ends on SIGTERM. All libraries have `QuicConnectionProtocol` with
`quic_event_received`. They differ in the way that keeps a sender from filling memory; for each library the
server uses its users' way.
"""

from __future__ import annotations

import asyncio
import importlib
import signal
from collections.abc import Callable
from typing import Any

from benchmarks.servers.bulk import ALPN, IN_FLIGHT_MAX, WINDOW, Upload, pattern
from benchmarks.servers.bulk_streams import READ, Tasks, begin
from benchmarks.servers.program import run_library
from tests.support.free_ports import free_port

LIBRARIES = ("aioquic", "qh3", "aiopquic", "uringcore-uring", "uringcore-epoll")
BLOCK = pattern()
# The size of a download's writes, by the mode; `native/quic_load.rs` describes the protocol.
WRITES = {b"D": len(BLOCK), b"d": 1024}


class Bulk:
    """The streams of one connection, for any library; a mix-in of its protocol class."""

    _quic: Any

    def start(self) -> None:
        """Set up the tables; not a constructor, because the libraries' constructors differ."""
        self.uploads: dict[int, Upload] = {}
        self.downloads: dict[int, asyncio.Task[None]] = {}
        self.ended: set[int] = set()
        self.echoes: set[int] = set()

    def stream_data(self, stream_id: int, data: Any, end_stream: bool) -> None:
        """Process one piece of a stream."""
        if stream_id in self.echoes:
            self._echo(stream_id, data, end_stream)
            return
        upload = self.uploads.get(stream_id)
        if upload is None and stream_id not in self.downloads:
            mode, data = bytes(data[:1]), data[1:]
            if mode == b"E":
                self.echoes.add(stream_id)
                self._echo(stream_id, data, end_stream)
                return
            if mode in WRITES:
                sending = self._send(stream_id, WRITES[mode])
                self.downloads[stream_id] = asyncio.ensure_future(sending)
            else:
                upload = self.uploads[stream_id] = Upload(hashed=mode == b"V")
        if upload is not None:
            upload.feed(data)
        if end_stream:
            if upload is not None:
                self._quic.send_stream_data(stream_id, upload.answer(), True)
                del self.uploads[stream_id]
            else:
                self.ended.add(stream_id)

    def _echo(self, stream_id: int, data: Any, end_stream: bool) -> None:
        if data or end_stream:
            self._quic.send_stream_data(stream_id, bytes(data), end_stream)
            self.transmit()
        if end_stream:
            self.echoes.discard(stream_id)

    def datagram(self, data: Any) -> None:
        """Send a DATAGRAM back."""
        self._quic.send_datagram_frame(bytes(data))
        self.transmit()

    async def _send(self, stream_id: int, write: int) -> None:
        pieces = [BLOCK[at : at + write] for at in range(0, len(BLOCK), write)]
        try:
            while stream_id not in self.ended:
                for piece in pieces:
                    await self.send_piece(stream_id, piece)
            self._quic.send_stream_data(stream_id, b"", True)
            self.transmit()
        finally:
            # A stream id that is used again would be taken for a new one otherwise.
            self.ended.discard(stream_id)

    def stop(self) -> None:
        """Cancel the senders: the connection has ended."""
        for task in self.downloads.values():
            task.cancel()

    def transmit(self) -> None:
        """Send the queued data; each library has its own method."""
        raise NotImplementedError

    async def send_piece(self, stream_id: int, piece: bytes) -> None:
        """Queue one write, once the library's queue has room."""
        raise NotImplementedError


def aioquic_protocol() -> type:
    """aioquic has no back pressure: its users read the private send buffer's size."""
    from aioquic.asyncio import QuicConnectionProtocol
    from aioquic.quic import events

    def queued(quic: Any, stream_id: int) -> int:
        stream = quic._streams.get(stream_id)
        return 0 if stream is None else len(stream.sender._buffer)

    return _polling_protocol(QuicConnectionProtocol, events, queued)


def qh3_protocol() -> type:
    """qh3 has the queue's size, but no method to wait for room."""
    from qh3.asyncio import QuicConnectionProtocol
    from qh3.quic import events

    return _polling_protocol(
        QuicConnectionProtocol, events, lambda quic, stream_id: quic.get_send_buffer_size(stream_id)
    )


def _polling_protocol(base: Any, events: Any, queued: Callable[[Any, int], int]) -> type:
    """A sender that checks its queue again whenever datagrams have arrived."""

    class Protocol(Bulk, base):  # type: ignore[misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.start()
            self.room = asyncio.Event()

        def quic_event_received(self, event: Any) -> None:
            if isinstance(event, events.StreamDataReceived):
                self.stream_data(event.stream_id, event.data, event.end_stream)
            elif isinstance(event, events.DatagramFrameReceived):
                self.datagram(event.data)
            elif isinstance(event, events.ConnectionTerminated):
                self.stop()

        def datagram_received(self, data: Any, addr: Any) -> None:
            super().datagram_received(data, addr)
            self.room.set()

        def datagrams_received(self, data: Any, addr: Any) -> None:
            # qh3's method for several datagrams at once.
            super().datagrams_received(data, addr)
            self.room.set()

        def transmit(self) -> None:
            base.transmit(self)

        async def send_piece(self, stream_id: int, piece: bytes) -> None:
            while queued(self._quic, stream_id) > IN_FLIGHT_MAX:
                self.room.clear()
                await self.room.wait()
            self._quic.send_stream_data(stream_id, piece, False)
            self.transmit()

    return Protocol


def aiopquic_protocol() -> type:
    """aiopquic has `send_stream_data_drained`."""
    from aiopquic.asyncio.protocol import QuicConnectionProtocol
    from aiopquic.quic import events

    class Protocol(Bulk, QuicConnectionProtocol):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.start()

        def quic_event_received(self, event: Any) -> None:
            if isinstance(event, events.StreamDataReceived):
                self.stream_data(event.stream_id, event.data, event.end_stream)
            elif isinstance(event, events.DatagramFrameReceived):
                self.datagram(event.data)
            elif isinstance(event, events.ConnectionTerminated):
                self.stop()

        def transmit(self) -> None:
            """aiopquic's engine sends by itself."""

        async def send_piece(self, stream_id: int, piece: bytes) -> None:
            await self._quic.send_stream_data_drained(stream_id, piece, False)

    return Protocol


def uringcore_protocol() -> type:
    """uringcore has `drain`."""
    from uringcore.asyncio import QuicConnectionProtocol
    from uringcore.quic import events

    class Protocol(Bulk, QuicConnectionProtocol):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.start()

        def quic_event_received(self, event: Any) -> None:
            if isinstance(event, events.StreamDataReceived):
                self.stream_data(event.stream_id, event.data, event.end_stream)
            elif isinstance(event, events.DatagramFrameReceived):
                self.datagram(event.data)
            elif isinstance(event, events.ConnectionTerminated):
                self.stop()

        def transmit(self) -> None:
            QuicConnectionProtocol.transmit(self)

        async def send_piece(self, stream_id: int, piece: bytes) -> None:
            self._quic.send_stream_data(stream_id, piece, False)
            await self.drain(stream_id)

    return Protocol


PROTOCOLS = {
    "aioquic": aioquic_protocol,
    "qh3": qh3_protocol,
    "aiopquic": aiopquic_protocol,
    "uringcore": uringcore_protocol,
}


def configure(package: str, cert: str, key: str) -> Any:
    """The library's configuration, with equal windows for all libraries."""
    module = importlib.import_module(f"{package}.quic.configuration")
    configuration = module.QuicConfiguration(
        is_client=False,
        alpn_protocols=[ALPN],
        max_data=2 * WINDOW,
        max_stream_data=WINDOW,
        max_datagram_frame_size=65535,
    )
    if package in ("aioquic", "qh3"):
        # Their defaults of 1,200 and 1,280 bytes would need more packets than the other libraries send.
        configuration.max_datagram_size = 1452
    configuration.load_cert_chain(cert, key)
    return configuration


def echo_handler() -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
    """aioquic's other interface: a reader and a writer for each stream; a task sends back the received
    bytes."""
    tasks: Tasks = set()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        piece = (await reader.read(READ))[1:]
        while not reader.at_eof():
            writer.write(piece)
            piece = await reader.read(READ)
        writer.write(piece)
        writer.write_eof()

    return lambda reader, writer: begin(tasks, echo(reader, writer))


async def start_server(package: str, port: int, configuration: Any, streams: bool) -> Any:
    """Start the server on a port of 127.0.0.1, with a protocol of events or with a stream handler."""
    library = importlib.import_module(f"{package}.asyncio")
    answering = (
        {"stream_handler": echo_handler()} if streams else {"create_protocol": PROTOCOLS[package]()}
    )
    return await library.serve("127.0.0.1", port, configuration=configuration, **answering)


async def serve(package: str, cert: str, key: str, streams: bool) -> None:
    """Listen on a free port of 127.0.0.1 until SIGTERM."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    # Not all servers report the port that they were given, so it is chosen here.
    port = free_port()
    server = await start_server(package, port, configure(package, cert, key), streams)
    print("READY", port, flush=True)
    await stopped.wait()
    server.close()


if __name__ == "__main__":
    run_library(__doc__, LIBRARIES, serve, streams="only echoes, by stream_handler")
