"""A client that sends arbitrary data, valid or invalid, and records the server's responses.

aioquic carries its packets, so that both sides cannot share a bug of ours. http3_bytes.py builds its data;
the client itself sends only acknowledgements.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import pylsqpack
import pytest
from aioquic import tls
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.buffer import Buffer
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import (
    DatagramFrameReceived,
    StopSendingReceived,
    StreamDataReceived,
    StreamReset,
)

from tests.http import http3_bytes

WAIT_SECONDS = 40.0
"""Time limit for events on a busy machine."""

CLOSE_SECONDS = 15.0
"""Time limit for an answer to a fault, which depends on the server alone."""

# CPython 3.10 gets an aioquic with other internals.
needs_recent_aioquic = pytest.mark.skipif(
    tuple(int(part) for part in version("aioquic").split(".")[:2]) < (1, 7),
    reason="the hostile client uses private names of aioquic 1.7",
)


@dataclass(frozen=True)
class Close:
    """The server's close of the connection."""

    code: int
    is_transport: bool = False
    reason: str = field(default="", compare=False)


@dataclass
class Incoming:
    """The data received on one stream."""

    data: bytearray = field(default_factory=bytearray)
    ended: bool = False
    reset: int | None = None
    stopped: int | None = None

    @property
    def over(self) -> bool:
        """True if no more data can arrive."""
        return self.ended or self.reset is not None

    @property
    def codes(self) -> set[int]:
        """The error codes with which the server ended the stream, in one direction or both."""
        return {code for code in (self.reset, self.stopped) if code is not None}


@dataclass
class Answer:
    """A response, as far as it has arrived."""

    status: int = 0
    fields: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""


class RawConnection(QuicConnection):
    """aioquic's connection, with the changes that a hostile client needs.

    - ``grants``: true if the server gets more credit than the transport parameters gave.
    - ``said``: QUIC frames that are sent in place of the next PING.
    - ``parameters``, ``extensions``: written over the transport parameters' bytes, and over the TLS
      extension that carries them.
    - ``handshake_frame``, ``before_finished``, ``after_finished``: inserted into the Handshake
      packets: a QUIC frame, TLS messages around the Finished.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.grants = True
        self.said: list[bytes] = []
        self.parameters: Callable[[bytes], bytes] = lambda parameters: parameters
        self.extensions: Callable[[list[Any]], list[Any]] = lambda extensions: extensions
        self.handshake_frame = b""
        self.before_finished = b""
        self.after_finished = b""

    def _write_connection_limits(self, *args: Any, **kwargs: Any) -> None:
        if self.grants:
            super()._write_connection_limits(*args, **kwargs)

    def _write_stream_limits(self, *args: Any, **kwargs: Any) -> None:
        if self.grants:
            super()._write_stream_limits(*args, **kwargs)

    def _write_ping_frame(self, builder: Any, *args: Any, **kwargs: Any) -> None:
        if not self.said:
            super()._write_ping_frame(builder, *args, **kwargs)
        while self.said:
            write_frame(builder, self.said[0])
            self.said.pop(0)

    def _serialize_transport_parameters(self) -> bytes:
        return self.parameters(super()._serialize_transport_parameters())

    def _initialize(self, peer_cid: bytes) -> None:
        super()._initialize(peer_cid)
        self.tls.handshake_extensions = self.extensions(self.tls.handshake_extensions)

    def _write_crypto_frame(self, builder: Any, space: Any, stream: Any) -> Any:
        if self.handshake_frame and space is self._spaces[tls.Epoch.HANDSHAKE]:
            said, self.handshake_frame = self.handshake_frame, b""
            write_frame(builder, said)
        return super()._write_crypto_frame(builder=builder, space=space, stream=stream)

    def _push_crypto_data(self) -> None:
        finished = self._crypto_buffers[tls.Epoch.HANDSHAKE].tell() > 0
        stream = self._crypto_streams[tls.Epoch.HANDSHAKE].sender
        if finished and self.before_finished:
            stream.write(self.before_finished)
        super()._push_crypto_data()
        if finished and self.after_finished:
            stream.write(self.after_finished)


def write_frame(builder: Any, raw: bytes) -> None:
    """Writes one QUIC frame, not split over two packets."""
    head = Buffer(data=raw)
    kind = head.pull_uint_var()
    builder.start_frame(kind, capacity=len(raw)).push_bytes(raw[head.tell() :])


class Elsewhere:
    """A transport whose datagrams leave from another address, where no host responds."""

    def __init__(self, transport: Any, host: str) -> None:
        self._transport = transport
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sock.setblocking(False)
        self._sock.bind((host, 0))
        self.address: tuple[str, int] = self._sock.getsockname()
        self.sent_bytes = 0
        self._received_bytes = 0

    def sendto(self, data: bytes, addr: Any) -> None:
        """Called by aioquic."""
        self._sock.sendto(data, addr)
        self.sent_bytes += len(data)

    def received(self) -> list[bytes]:
        """Returns the datagrams that have arrived there since the last call."""
        found = []
        with contextlib.suppress(BlockingIOError):
            while True:
                found.append(self._sock.recv(65536))
        self._received_bytes += sum(map(len, found))
        return found

    @property
    def received_bytes(self) -> int:
        """Returns the number of bytes that have arrived there in total."""
        self.received()
        return self._received_bytes

    async def wait_received(self) -> list[bytes]:
        """Waits until a datagram has arrived."""
        while not (found := self.received()):
            await asyncio.sleep(0.001)
        return found

    def shut(self) -> None:
        """Releases the address."""
        self._sock.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Raw(QuicConnectionProtocol):
    """One connection of the hostile client. Each write is sent at once."""

    _quic: RawConnection

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.streams: dict[int, Incoming] = {}
        self.datagrams: list[bytes] = []
        self.received_bytes = 0
        self.delayed: list[tuple[bytes | str, Any]] | None = None
        """Delayed datagrams, while `delaying` is active; otherwise None."""
        self._changed = asyncio.Event()

    # The server's side

    @property
    def quic(self) -> RawConnection:
        """aioquic's connection."""
        return self._quic

    @property
    def closed(self) -> Close | None:
        """The server's close of the connection, if it closed it."""
        event = self._quic._close_event
        if event is None:
            return None
        return Close(event.error_code, event.frame_type is not None, event.reason_phrase)

    def incoming(self, stream_id: int) -> Incoming:
        """Returns the data received on a stream."""
        return self.streams.setdefault(stream_id, Incoming())

    def datagram_received(self, data: bytes | str, addr: Any) -> None:
        """Called by the loop."""
        self._changed.set()
        if self.delayed is not None:
            self.delayed.append((data, addr))
            return
        super().datagram_received(data, addr)
        self.received_bytes += len(data)

    @contextlib.contextmanager
    def delaying(self) -> Iterator[list[tuple[bytes | str, Any]]]:
        """Datagrams that arrive during the block are received at its end, so that data sent
        meanwhile crosses them.
        """
        self.delayed = delayed = []
        try:
            yield delayed
        finally:
            self.delayed = None
            for datagram in delayed:
                self.datagram_received(*datagram)

    def quic_event_received(self, event: Any) -> None:
        """Called by aioquic."""
        if isinstance(event, StreamDataReceived):
            stream = self.incoming(event.stream_id)
            stream.data += event.data
            stream.ended = stream.ended or event.end_stream
        elif isinstance(event, StreamReset):
            self.incoming(event.stream_id).reset = event.error_code
        elif isinstance(event, DatagramFrameReceived):
            self.datagrams.append(event.data)
        elif isinstance(event, StopSendingReceived):
            self.incoming(event.stream_id).stopped = event.error_code

    async def wait(self, condition: Callable[[], Any], seconds: float = WAIT_SECONDS) -> Any:
        """Waits until the condition holds; returns its value."""

        async def holds() -> Any:
            while not (found := condition()):
                assert self.closed is None, self.closed
                self._changed.clear()
                await self._changed.wait()
            return found

        return await asyncio.wait_for(holds(), seconds)

    async def wait_closed_by_server(self) -> Close:
        """Returns the server's close of the connection."""
        return await self.wait(lambda: self.closed, CLOSE_SECONDS)

    async def wait_over(self, stream_id: int) -> Incoming:
        """Returns the data of a stream, once it is complete or reset."""
        stream = self.incoming(stream_id)
        await self.wait(lambda: stream.over)
        return stream

    async def wait_answer(self, stream_id: int) -> Answer:
        """Returns a complete response."""
        await self.wait_over(stream_id)
        return self.answer(stream_id)

    def frames(self, stream_id: int) -> Iterator[tuple[int, bytes]]:
        """Returns the complete frames received on a stream; for a unidirectional stream without its
        type.
        """
        data = Buffer(data=bytes(self.incoming(stream_id).data))
        if stream_id & 2:
            data.pull_uint_var()
        while not data.eof():
            kind, size = data.pull_uint_var(), data.pull_uint_var()
            if size > data.capacity - data.tell():
                return
            yield kind, data.pull_bytes(size)

    def answer(self, stream_id: int) -> Answer:
        """Returns a response as far as it has arrived."""
        found, decoder = Answer(), pylsqpack.Decoder(0, 0)
        for kind, payload in self.frames(stream_id):
            if kind == http3_bytes.DATA:
                found.body += payload
            elif kind == http3_bytes.HEADERS and not found.status:
                _, found.fields = decoder.feed_header(stream_id, payload)
                found.status = int(dict(found.fields)[b":status"])
        return found

    @property
    def their_control(self) -> int | None:
        """The server's control stream, once its type has arrived."""
        for stream_id, stream in self.streams.items():
            if stream_id & 3 == 3 and stream.data[:1] == b"\0":
                return stream_id
        return None

    def their_frames(self, kind: int) -> list[bytes]:
        """Returns the frames of this type on the server's control stream."""
        stream_id = self.their_control
        frames = () if stream_id is None else self.frames(stream_id)
        return [payload for found, payload in frames if found == kind]

    def goaways(self) -> list[int]:
        """The first stream that the server will not process, from each of its GOAWAYs."""
        said = self.their_frames(http3_bytes.GOAWAY)
        return [Buffer(data=payload).pull_uint_var() for payload in said]

    async def wait_settings(self) -> dict[int, int]:
        """Returns the values in the server's SETTINGS."""
        (payload,) = await self.wait(lambda: self.their_frames(http3_bytes.SETTINGS))
        data = Buffer(data=payload)
        found = {}
        while not data.eof():
            identifier = data.pull_uint_var()
            found[identifier] = data.pull_uint_var()
        return found

    # The client's side

    def uni(self, data: bytes, *, fin: bool = False) -> int:
        """Opens a unidirectional stream with these bytes, including its type."""
        stream_id = self._quic.get_next_available_stream_id(is_unidirectional=True)
        self.write(stream_id, data, fin=fin)
        return stream_id

    def control(self, values: dict[int, int] | None = None, more: bytes = b"") -> int:
        """Opens the control stream."""
        return self.uni(
            http3_bytes.varint(http3_bytes.CONTROL) + http3_bytes.settings(values or {}) + more
        )

    def bidi(self, data: bytes, *, fin: bool = False) -> int:
        """Opens a request stream with these bytes."""
        stream_id = self._quic.get_next_available_stream_id()
        self.write(stream_id, data, fin=fin)
        return stream_id

    def request(self, path: str = "/", *more: tuple[bytes, bytes], **pseudo: str | None) -> int:
        """A request without a body."""
        return self.bidi(http3_bytes.request(path, *more, **pseudo), fin=True)

    def write(self, stream_id: int, data: bytes, *, fin: bool = False) -> None:
        """Sends more bytes on a stream of ours."""
        self._quic.send_stream_data(stream_id, data, fin)
        self.transmit()

    def datagram(self, stream_id: int, data: bytes) -> None:
        """An HTTP datagram of a request (RFC 9297 section 2.1)."""
        self._quic.send_datagram_frame(http3_bytes.varint(stream_id // 4) + data)
        self.transmit()

    def reset(self, stream_id: int, code: int) -> None:
        """Resets our direction of a stream."""
        self._quic.reset_stream(stream_id, code)
        self.transmit()

    def stop(self, stream_id: int, code: int) -> None:
        """Stops the server's direction of a stream."""
        self._quic.stop_stream(stream_id, code)
        self.transmit()

    def give_up(self, stream_id: int, code: int) -> None:
        """Ends both directions of a stream, as far as they are open."""
        if stream_id in self._quic._streams:
            self._quic.reset_stream(stream_id, code)
            self._quic.stop_stream(stream_id, code)
        self.transmit()

    def say(self, *frames: bytes) -> None:
        """Sends raw QUIC frames; without any, a PING."""
        self._quic.said.extend(frames)
        self._quic.send_ping(0)
        self.transmit()

    async def confirmed(self) -> None:
        """Waits until the server has confirmed the handshake too."""
        await self.wait(lambda: self._quic._handshake_confirmed)

    async def wait_sent(self) -> None:
        """Waits until all written data has left, as far as the server's credit allows."""

        def queued() -> bool:
            return any(
                not stream.sender.buffer_is_empty
                for stream in self._quic._streams.values()
                if not stream.is_blocked
            )

        while self.closed is None and queued():
            await asyncio.sleep(0.001)

    async def wait_room(self, count: int = 1) -> int:
        """Returns how many request streams the server now permits, once that many are permitted."""

        def room() -> int:
            quic = self._quic
            return quic._remote_max_streams_bidi - quic.get_next_available_stream_id() // 4

        await self.wait(lambda: room() >= count)
        return room()

    @contextlib.contextmanager
    def elsewhere(self, host: str) -> Iterator[Elsewhere]:
        """Datagrams sent during the block come from another address, which gets no answers."""
        here = self._transport
        self._transport = there = Elsewhere(here, host)
        try:
            yield there
        finally:
            self._transport = here
            there.shut()

    async def keep_alive(self) -> None:
        """Sends PINGs until cancelled."""
        while True:
            self.say()
            await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def connect_raw(
    server: Any,
    *,
    prepare: Callable[[RawConnection], None] = lambda quic: None,
    wait_connected: bool = True,
    ticket_handler: Callable[[Any], None] | None = None,
    source: str = "127.0.0.1",
    token_handler: Callable[[bytes], None] | None = None,
    **configuration: Any,
) -> AsyncIterator[Raw]:
    """Connects from the address ``source`` to a server of tests/server/harness.py; ``configuration`` is
    aioquic's."""
    configuration.setdefault("alpn_protocols", ["h3"])
    given = QuicConfiguration(
        is_client=True, server_name="localhost", verify_mode=ssl.CERT_NONE, **configuration
    )
    quic = RawConnection(
        configuration=given, session_ticket_handler=ticket_handler, token_handler=token_handler
    )
    prepare(quic)
    loop = asyncio.get_running_loop()
    transport, raw = await loop.create_datagram_endpoint(
        lambda: Raw(quic), local_addr=(source, 0), family=socket.AF_INET
    )
    try:
        raw.connect(("127.0.0.1", server.port))
        if wait_connected:
            await raw.wait(lambda: raw.quic._handshake_complete)
        yield raw
    finally:
        raw.close(0x100)
        if raw._timer is not None:
            raw._timer.cancel()
        transport.close()
