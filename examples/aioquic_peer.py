"""A small HTTP/3 client on aioquic and stock asyncio: the independent peer of the demonstration.

It deliberately uses nothing of uringcore: any resource that it can fetch, other clients can fetch
too.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, QuicEvent, StreamReset

# aioquic has no backpressure: above this many queued bytes the upload waits until they are sent.
QUEUE_MAX_BYTES = 1 << 20


@dataclass
class Answer:
    """A response that is being received."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    trailers: dict[str, str] = field(default_factory=dict)
    interim: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    done: asyncio.Event = field(default_factory=asyncio.Event)
    error: str | None = None


class Peer(QuicConnectionProtocol):
    """One connection; requests are made with :meth:`fetch`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.http = H3Connection(self._quic)
        self.answers: dict[int, Answer] = {}
        self.authority = ""

    def quic_event_received(self, event: QuicEvent) -> None:
        """Called for every event of the connection."""
        if isinstance(event, ConnectionTerminated):
            for answer in self.answers.values():
                answer.error = answer.error or f"connection closed: {event.reason_phrase}"
                answer.done.set()
        if isinstance(event, StreamReset) and event.stream_id in self.answers:
            self.answers[event.stream_id].error = f"stream reset: {event.error_code:#x}"
            self.answers[event.stream_id].done.set()
        for http_event in self.http.handle_event(event):
            stream_id = getattr(http_event, "stream_id", -1)
            if stream_id not in self.answers:
                continue
            answer = self.answers[stream_id]
            if isinstance(http_event, HeadersReceived):
                fields = {name.decode(): value.decode() for name, value in http_event.headers}
                status = fields.pop(":status", None)
                if status is None:
                    answer.trailers = fields
                elif int(status) < 200:
                    answer.interim.append((int(status), fields))
                else:
                    answer.status, answer.headers = int(status), fields
            elif isinstance(http_event, DataReceived):
                answer.body += http_event.data
            if getattr(http_event, "stream_ended", False):
                answer.done.set()

    async def fetch(
        self,
        method: str,
        path: str,
        *,
        content: Iterable[bytes] | None = None,
        headers: Iterable[tuple[bytes, bytes]] = (),
    ) -> Answer:
        """Makes one request and returns its whole response. Raises ``ConnectionError`` if it is cut
        off.
        """
        stream_id, answer = self.open(method, path, headers, end_stream=content is None)
        if content is not None:
            for part in content:
                if answer.done.is_set():
                    break
                self.http.send_data(stream_id, part, end_stream=False)
                self.transmit()
                while self._queued(stream_id) > QUEUE_MAX_BYTES and not answer.done.is_set():
                    await asyncio.sleep(0.001)
            if not answer.done.is_set():
                self.http.send_data(stream_id, b"", end_stream=True)
                self.transmit()
        await answer.done.wait()
        del self.answers[stream_id]
        if answer.error is not None:
            raise ConnectionError(answer.error)
        return answer

    def open(
        self,
        method: str,
        path: str,
        headers: Iterable[tuple[bytes, bytes]] = (),
        *,
        end_stream: bool = False,
    ) -> tuple[int, Answer]:
        """Sends a request's headers; the answer fills as data arrives."""
        stream_id = self._quic.get_next_available_stream_id()
        answer = self.answers[stream_id] = Answer()
        fields = [
            (b":method", method.encode()),
            (b":scheme", b"https"),
            (b":authority", self.authority.encode()),
            (b":path", path.encode()),
            *headers,
        ]
        self.http.send_headers(stream_id, fields, end_stream=end_stream)
        self.transmit()
        return stream_id, answer

    def _queued(self, stream_id: int) -> int:
        return len(self._quic._streams[stream_id].sender._buffer)


@asynccontextmanager
async def connect_peer(
    url: str, *, cafile: str | None = None, create_protocol: type[Peer] = Peer
) -> AsyncIterator[Peer]:
    """Connects to the origin of ``url``; without ``cafile`` it accepts any certificate."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    configuration = QuicConfiguration(
        is_client=True,
        alpn_protocols=H3_ALPN,
        server_name=parts.hostname,
        max_data=16 << 20,
        max_stream_data=4 << 20,
        verify_mode=None if cafile else ssl.CERT_NONE,
    )
    if cafile is not None:
        configuration.load_verify_locations(cafile=cafile)
    async with connect(
        parts.hostname,
        parts.port or 443,
        configuration=configuration,
        create_protocol=create_protocol,
    ) as protocol:
        peer = cast(Peer, protocol)
        peer.authority = parts.netloc
        yield peer
