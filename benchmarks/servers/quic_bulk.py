"""The QUIC bulk server on a named library: aioquic, aiopquic or uringcore.

Prints `READY <port>` and ends on SIGTERM. All three have `QuicConnectionProtocol` with
`quic_event_received`; where they differ is how a sender is kept from filling memory, and each gets
what its own users do about it.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import signal
import socket
from typing import Any

from benchmarks.servers.bulk import ALPN, IN_FLIGHT_MAX, WINDOW, Upload, pattern
from benchmarks.servers.loops import new_loop

LIBRARIES = ("aioquic", "aiopquic", "uringcore-uring", "uringcore-epoll")
BLOCK = pattern()


class Bulk:
    """The streams of one connection, whatever the library; mixed into its protocol class."""

    _quic: Any

    def start(self) -> None:
        """Set up the tables; the libraries' constructors differ."""
        self.uploads: dict[int, Upload] = {}
        self.downloads: dict[int, asyncio.Task[None]] = {}
        self.ended: set[int] = set()

    def stream_data(self, stream_id: int, data: Any, end_stream: bool) -> None:
        """One piece of a stream."""
        upload = self.uploads.get(stream_id)
        if upload is None and stream_id not in self.downloads:
            mode, data = bytes(data[:1]), data[1:]
            if mode == b"D":
                self.downloads[stream_id] = asyncio.ensure_future(self._send(stream_id))
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

    async def _send(self, stream_id: int) -> None:
        try:
            while stream_id not in self.ended:
                await self.send_block(stream_id)
            self._quic.send_stream_data(stream_id, b"", True)
            self.transmit()
        finally:
            # A stream whose id is seen again would be taken for a new one otherwise.
            self.ended.discard(stream_id)

    def stop(self) -> None:
        """The connection is gone: so are its senders."""
        for task in self.downloads.values():
            task.cancel()

    def transmit(self) -> None:
        """The library's own: send what is queued."""
        raise NotImplementedError

    async def send_block(self, stream_id: int) -> None:
        """Queue one block, as soon as the library's queue has room."""
        raise NotImplementedError


def aioquic_protocol() -> type:
    """aioquic has no back pressure: its users look at the private send buffer."""
    from aioquic.asyncio import QuicConnectionProtocol
    from aioquic.quic import events

    class Protocol(Bulk, QuicConnectionProtocol):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.start()
            self.room = asyncio.Event()

        def quic_event_received(self, event: Any) -> None:
            if isinstance(event, events.StreamDataReceived):
                self.stream_data(event.stream_id, event.data, event.end_stream)
            elif isinstance(event, events.ConnectionTerminated):
                self.stop()

        def datagram_received(self, data: Any, addr: Any) -> None:
            super().datagram_received(data, addr)
            self.room.set()

        def transmit(self) -> None:
            QuicConnectionProtocol.transmit(self)

        async def send_block(self, stream_id: int) -> None:
            stream = self._quic._streams.get(stream_id)
            while stream is not None and len(stream.sender._buffer) > IN_FLIGHT_MAX:
                self.room.clear()
                await self.room.wait()
            self._quic.send_stream_data(stream_id, BLOCK, False)
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
            elif isinstance(event, events.ConnectionTerminated):
                self.stop()

        def transmit(self) -> None:
            """Its engine sends by itself."""

        async def send_block(self, stream_id: int) -> None:
            await self._quic.send_stream_data_drained(stream_id, BLOCK, False)

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
            elif isinstance(event, events.ConnectionTerminated):
                self.stop()

        def transmit(self) -> None:
            QuicConnectionProtocol.transmit(self)

        async def send_block(self, stream_id: int) -> None:
            self._quic.send_stream_data(stream_id, BLOCK, False)
            await self.drain(stream_id)

    return Protocol


PROTOCOLS = {
    "aioquic": aioquic_protocol,
    "aiopquic": aiopquic_protocol,
    "uringcore": uringcore_protocol,
}


def configure(package: str, cert: str, key: str) -> Any:
    """The library's configuration, with the same windows for all."""
    module = importlib.import_module(f"{package}.quic.configuration")
    configuration = module.QuicConfiguration(
        is_client=False, alpn_protocols=[ALPN], max_data=2 * WINDOW, max_stream_data=WINDOW
    )
    if package == "aioquic":
        # Its default of 1,200 would cost it more packets than the others send.
        configuration.max_datagram_size = 1452
    configuration.load_cert_chain(cert, key)
    return configuration


async def serve(package: str, configuration: Any) -> None:
    """Listen on a free port of 127.0.0.1 until SIGTERM."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    # The servers do not all tell the port that they were given, so it is chosen here.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    library = importlib.import_module(f"{package}.asyncio")
    server = await library.serve(
        "127.0.0.1",
        port,
        configuration=configuration,
        create_protocol=PROTOCOLS[package](),
    )
    print("READY", port, flush=True)
    await stopped.wait()
    server.close()


def main() -> None:
    """Run the server named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", choices=LIBRARIES, required=True)
    parser.add_argument("--cert", required=True)
    parser.add_argument("--key", required=True)
    options = parser.parse_args()
    package = options.library.partition("-")[0]
    # The others run on the loop that their users have by default.
    loop = new_loop(options.library if package == "uringcore" else "asyncio")
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(serve(package, configure(package, options.cert, options.key)))
    finally:
        loop.close()


if __name__ == "__main__":
    main()
