"""Two cases of our own for features that the public ones omit: DATAGRAM frames and error codes.

They run over the application protocol `probe`, one command a stream:

    ECHO <data>        the server echoes the data
    RESET <code>       the server resets its side with the code
    STOP <code>        the server sends STOP_SENDING with the code
    CLOSE <code>       the server closes the connection with the code and the reason "as asked"

and the server echoes every DATAGRAM. If a peer's library does not report an event, the case is
unsupported there. Like `examples.interop`, the module uses names that all libraries with aioquic's
API have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from uringcore.asyncio import QuicConnectionProtocol, connect, serve
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.events import (
    ConnectionTerminated,
    DatagramFrameReceived,
    HandshakeCompleted,
    StopSendingReceived,
    StreamDataReceived,
    StreamReset,
)

ALPN = "probe"
CASES = ("datagram", "closecodes")
DATAGRAMS = 100
DATAGRAM_BYTES = 1000
RESET, STOP, CLOSE = 0x2A, 0x3FFF, 0x1234567
REASON = "as asked"
SECONDS = 20.0


def configure(is_client: bool, certificates: Path) -> QuicConfiguration:
    configuration = QuicConfiguration(
        is_client=is_client, alpn_protocols=[ALPN], max_datagram_frame_size=65535
    )
    if is_client:
        configuration.load_verify_locations(str(certificates / "ca.pem"))
    else:
        configuration.load_cert_chain(certificates / "cert.pem", certificates / "priv.key")
    return configuration


class ProbeServer(QuicConnectionProtocol):
    """Executes the commands."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._heard: dict[int, bytes] = {}

    def quic_event_received(self, event: Any) -> None:
        if isinstance(event, DatagramFrameReceived):
            self._quic.send_datagram_frame(bytes(event.data))
        elif isinstance(event, StreamDataReceived):
            heard = self._heard.pop(event.stream_id, b"") + bytes(event.data)
            if event.end_stream:
                self._obey(event.stream_id, *heard.split(b" ", 1))
            elif heard.startswith(b"STOP ") and heard.endswith(b"\n"):
                # The stream stays open, or the client would have no data to stop.
                self._obey(event.stream_id, *heard.split(b" ", 1))
            else:
                self._heard[event.stream_id] = heard
        self.transmit()

    def _obey(self, stream_id: int, order: bytes, argument: bytes) -> None:
        if order == b"ECHO":
            self._quic.send_stream_data(stream_id, argument, True)
        elif order == b"RESET":
            self._quic.reset_stream(stream_id, int(argument))
        elif order == b"STOP":
            self._quic.stop_stream(stream_id, int(argument))
        elif order == b"CLOSE":
            self._quic.close(error_code=int(argument), reason_phrase=REASON)


class ProbeClient(QuicConnectionProtocol):
    """Stores events, and lets the case wait for them."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.heard: list[Any] = []
        self._changed = asyncio.Event()

    def quic_event_received(self, event: Any) -> None:
        # aiopquic's data is a view of memory that it reuses.
        if isinstance(event, DatagramFrameReceived):
            event = (DatagramFrameReceived, bytes(event.data))
        elif isinstance(event, StreamDataReceived):
            event = (StreamDataReceived, event.stream_id, bytes(event.data), event.end_stream)
        self.heard.append(event)
        self._changed.set()

    def order(self, line: bytes, end_stream: bool = True) -> int:
        stream_id: int = self._quic.get_next_available_stream_id()
        self._quic.send_stream_data(stream_id, line, end_stream)
        self.transmit()
        return stream_id

    async def wait(self, matches: Callable[[Any], bool], what: str) -> Any:
        async def wait() -> Any:
            while True:
                for event in self.heard:
                    if matches(event):
                        return event
                self._changed.clear()
                await self._changed.wait()

        try:
            return await asyncio.wait_for(wait(), SECONDS)
        except asyncio.TimeoutError:
            seen = [event for event in self.heard if not isinstance(event, HandshakeCompleted)][-5:]
            raise ValueError(f"{what} did not come; the last events were {seen}") from None


async def datagrams(client: ProbeClient) -> None:
    """Every datagram is echoed, whole; on loopback and a few at a time none is lost."""
    sent = [b"%04d" % number + bytes(DATAGRAM_BYTES - 4) for number in range(DATAGRAMS)]
    for number, data in enumerate(sent):
        client._quic.send_datagram_frame(data)
        client.transmit()
        await client.wait(lambda event, data=data: event == (DatagramFrameReceived, data), number)


async def close_codes(client: ProbeClient) -> None:
    """Codes and reasons arrive unchanged, on streams and for the connection."""
    stream_id = client.order(b"RESET %d" % RESET)
    reset = await client.wait(lambda event: isinstance(event, StreamReset), "RESET_STREAM")
    _expect("RESET_STREAM", (reset.stream_id, reset.error_code), (stream_id, RESET))
    stream_id = client.order(b"STOP %d\n" % STOP, end_stream=False)
    stop = await client.wait(lambda event: isinstance(event, StopSendingReceived), "STOP_SENDING")
    _expect("STOP_SENDING", (stop.stream_id, stop.error_code), (stream_id, STOP))
    client.order(b"CLOSE %d" % CLOSE)
    end = await client.wait(lambda event: isinstance(event, ConnectionTerminated), "the close")
    _expect("CONNECTION_CLOSE", (end.error_code, end.reason_phrase), (CLOSE, REASON))


def _expect(what: str, found: Any, wanted: Any) -> None:
    if found != wanted:
        raise ValueError(f"{what}: {found!r} arrived, not {wanted!r}")


async def serve_probe(certificates: Path, host: str, port: int, stopped: asyncio.Event) -> None:
    server = await serve(
        host,
        port,
        configuration=configure(False, certificates),
        create_protocol=ProbeServer,
    )
    print("READY", server.sockname[1], flush=True)
    await stopped.wait()
    server.close()
    server.close_clients()
    await server.wait_closed()


async def run_probe(case: str, certificates: Path, request: str) -> None:
    url = urlsplit(request)
    async with connect(
        url.hostname or "",
        url.port or 443,
        configuration=configure(True, certificates),
        create_protocol=ProbeClient,
    ) as client:
        await client.wait(lambda event: isinstance(event, HandshakeCompleted), "the handshake")
        await {"datagram": datagrams, "closecodes": close_codes}[case](client)
