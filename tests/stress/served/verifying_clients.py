"""Clients of several HTTP implementations: each makes one verified request after the other.

The trial decides which failures are violations.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import select
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx
from aioquic.buffer import Buffer
from aioquic.h3.connection import FrameType, StreamType
from aioquic.quic.events import QuicEvent, StreamDataReceived

from examples.aioquic_peer import Peer, connect_peer
from tests.http.http2.client import Client as HTTP2Client
from tests.http.http3_bytes import HIGHEST_REQUEST
from tests.stress.byte_pattern import Pattern, Violation
from uringcore.contrib.httpx import AsyncHTTP3Transport
from uringcore.http3 import Client, Timeouts

SIZES = (0, 1, 1000, 20_000, 100_000, 400_000)
REQUESTS_A_CONNECTION = 8
"""Requests for each connection of a client that reconnects now and then."""
ATTEMPTS = 5
"""Connections for a request that the server has not processed."""
COMPANY_SIZE = 3000
REFUSED_STREAM = 7
CLOSED = "connection closed: "
"""The text of a close without an error: the server has not processed requests beyond its GOAWAY."""
UNPROCESSED = ("stream reset: 0x10b", CLOSED)
"""Texts of errors that leave a request unprocessed: that close, and H3_REQUEST_REJECTED (RFC 9114 section
4.1.1).
"""


@dataclass(frozen=True)
class Target:
    """The server's URL and certificate."""

    url: str
    cafile: str
    """The authority that signs all of its certificates."""

    @property
    def port(self) -> int:
        port = urlsplit(self.url).port
        assert port is not None
        return port

    @property
    def certificate(self) -> str:
        return self.cafile


class Caller:
    """A client. `once` makes a request and checks the whole response."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._stack = contextlib.AsyncExitStack()

    async def once(self, rng: random.Random) -> None:
        """Raises `Violation` for a wrong response; other exceptions of the client pass through."""
        key, size = f"{rng.getrandbits(32):x}", rng.choice(SIZES)
        name = rng.choice(("take", "take", "slow", "give"))
        if name == "give":
            content = Pattern(key).take(size)
            status, body = await self.exchange("POST", f"/give/{key}", content)
            check(status, body == b"%d" % size, f"{body[:40]!r} instead of {size}")
            return
        status, body = await self.exchange("GET", f"/{name}/{size}/{key}", None)
        check_pattern(status, body, key, size)

    async def exchange(self, method: str, path: str, content: bytes | None) -> tuple[int, bytes]:
        """Makes one request and returns its whole response."""
        raise NotImplementedError

    def stream(self, path: str) -> Any:
        """Makes a GET as a context manager, which yields the status and an iterator of the content's
        parts.
        """
        raise NotImplementedError

    async def aclose(self) -> None:
        """Ends its connections."""
        await self._stack.aclose()


def check(status: int, is_right: bool, what: str) -> None:
    """Raises `Violation`: no fault excuses a wrong response."""
    if status != 200:
        raise Violation(f"status {status}")
    if not is_right:
        raise Violation(what)


def check_pattern(status: int, body: bytes | bytearray, key: str, size: int) -> None:
    """Checks that the body is the first `size` bytes of `key`."""
    check(status, len(body) == size, f"{len(body)} bytes instead of {size}")
    Pattern(key).check(body)


class Ours(Caller):
    """`uringcore.http3.Client`."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        # Without time-outs: the trial detects hangs of all clients.
        self._pool = Client(cafile=target.cafile, timeouts=Timeouts(None, None, None, None))
        self._stack.push_async_callback(self._pool.aclose)

    async def exchange(self, method: str, path: str, content: bytes | None) -> tuple[int, bytes]:
        response = await self._pool.request(method, self.target.url + path, content=content)
        return response.status, response.content

    @contextlib.asynccontextmanager
    async def stream(self, path: str) -> Any:
        async with self._pool.stream("GET", self.target.url + path) as response:
            yield response.status, response.iter_bytes()


class OursByHttpx(Caller):
    """httpx on our transport: HTTP/3 once the server's Alt-Svc offers it."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        transport = AsyncHTTP3Transport(verify=target.cafile, trust_env=False)
        self._client = httpx.AsyncClient(transport=transport, timeout=None, trust_env=False)
        self._stack.push_async_callback(self._client.aclose)

    async def exchange(self, method: str, path: str, content: bytes | None) -> tuple[int, bytes]:
        response = await self._client.request(method, self.target.url + path, content=content)
        return response.status_code, response.content


class Httpx(Caller):
    """httpx over HTTP/1.1, on a kept connection."""

    connections_kept = 1
    socket_options: tuple[tuple[int, int, int], ...] = ()

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        transport = httpx.AsyncHTTPTransport(
            verify=ssl.create_default_context(cafile=target.cafile),
            limits=httpx.Limits(max_keepalive_connections=self.connections_kept),
            trust_env=False,
            socket_options=self.socket_options,
        )
        self._client = httpx.AsyncClient(transport=transport, timeout=None, trust_env=False)
        self._stack.push_async_callback(self._client.aclose)

    async def exchange(self, method: str, path: str, content: bytes | None) -> tuple[int, bytes]:
        response = await self._client.request(method, self.target.url + path, content=content)
        return response.status_code, response.content

    @contextlib.asynccontextmanager
    async def stream(self, path: str) -> Any:
        async with self._client.stream("GET", self.target.url + path) as response:
            yield response.status_code, response.aiter_bytes()


class HttpxAnew(Httpx):
    """httpx over HTTP/1.1, with a connection for each request."""

    connections_kept = 0


class HttpxNarrow(Httpx):
    """httpx over HTTP/1.1 with a small receive buffer: unread data waits at the server."""

    # A smaller buffer would take a thousand turns of both sides, each of which is slow on a busy machine.
    socket_options = ((socket.SOL_SOCKET, socket.SO_RCVBUF, 131_072),)


def has_input(sock: ssl.SSLSocket) -> bool:
    return bool(sock.pending() or select.select([sock], [], [], 0)[0])


class Unprocessed(Exception):
    """The server has not processed a request, as RFC 9113 section 8.7 defines it: any may be repeated."""


class HTTP2(Caller):
    """The h2 package on a kept connection, in a thread. Each request has company on its connection.

    A request that the server has not processed, and only that, is made again on another connection.
    """

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._client: HTTP2Client | None = None
        self._left = 0

    async def exchange(self, method: str, path: str, content: bytes | None) -> tuple[int, bytes]:
        return await asyncio.to_thread(self._exchange, method, path, content)

    @contextlib.asynccontextmanager
    async def stream(self, path: str) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
        client = await asyncio.to_thread(self._usable)
        stream_id = client.begin(path)
        response = client.responses[stream_id]
        receive = functools.partial(self._receive, client, stream_id)
        while not response.status:
            await asyncio.to_thread(receive)

        async def parts() -> AsyncIterator[bytes]:
            while response.body or not response.ended:
                if response.body:
                    part, response.body = response.body, b""
                    yield part
                else:
                    await asyncio.to_thread(receive)

        yield response.status, parts()

    def _exchange(self, method: str, path: str, content: bytes | None) -> tuple[int, bytes]:
        for _ in range(ATTEMPTS):
            client = self._usable()
            try:
                return self._fetch(client, method, path, content)
            except Unprocessed:
                self._drop()
            except Exception:
                self._drop()
                raise
        raise Violation(f"{ATTEMPTS} connections in a row have refused a request")

    def _fetch(
        self, client: HTTP2Client, method: str, path: str, content: bytes | None
    ) -> tuple[int, bytes]:
        company = client.begin(f"/take/{COMPANY_SIZE}/company")
        stream_id = client.begin(path, method, end=content is None)
        response = client.responses[stream_id]
        rest = memoryview(content or b"")
        while rest and response.reset is None and not response.ended:
            size = min(client.h2.local_flow_control_window(stream_id), 16_384, len(rest))
            if size <= 0:
                self._receive(client, stream_id)
                continue
            client.h2.send_data(stream_id, bytes(rest[:size]))
            client.flush()
            rest = rest[size:]
        if content is not None and response.reset is None and not response.ended:
            client.h2.end_stream(stream_id)
            client.flush()
        while not response.ended:
            self._receive(client, stream_id)
        beside = client.responses[company]
        while not beside.ended:
            self._receive(client, company)
        check_pattern(beside.status, beside.body, "company", COMPANY_SIZE)
        del client.responses[stream_id], client.responses[company]
        return response.status, response.body

    def _receive(self, client: HTTP2Client, stream_id: int) -> None:
        """Receives once, for a response that has not ended."""
        is_open = client.more()
        response = client.responses[stream_id]
        if response.ended:
            return
        is_beyond_goaway = client.goaways and client.goaways[-1][0] < stream_id
        if is_beyond_goaway or response.reset == REFUSED_STREAM:
            raise Unprocessed
        if response.reset is not None:
            raise ConnectionError(f"stream reset: {response.reset:#x}")
        if not is_open:
            raise ConnectionError("the connection has ended")

    def _usable(self) -> HTTP2Client:
        """Returns a connection on which the server has not announced the end."""
        client = self._client
        if client is not None:
            while not client.is_closed and has_input(client.socket):
                client.more()
            if client.is_closed or client.goaways or not self._left:
                self._drop()
                client = None
        if client is None:
            client = self._client = HTTP2Client(self.target, secure=True)
            self._left = REQUESTS_A_CONNECTION
        self._left -= 1
        return client

    def _drop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    async def aclose(self) -> None:
        self._drop()
        await super().aclose()


class Hearing(Peer):
    """aioquic's connection, extended to record GOAWAY frames, which aioquic ignores."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._unidirectional: dict[int, bytes] = {}

    def quic_event_received(self, event: QuicEvent) -> None:
        """Called by aioquic."""
        if isinstance(event, StreamDataReceived) and event.stream_id % 4 == 3:
            so_far = self._unidirectional.get(event.stream_id, b"")
            self._unidirectional[event.stream_id] = so_far + event.data
        super().quic_event_received(event)

    def has_taken(self, stream_id: int) -> bool:
        """True if a GOAWAY says that the server takes this request and none above (RFC 9114 section 5.2)."""
        said = [number for data in self._unidirectional.values() for number in goaways(data)]
        return bool(said) and stream_id < said[-1] < HIGHEST_REQUEST


def goaways(stream: bytes) -> Iterator[int]:
    """Yields the ids in the GOAWAY frames of a one-way stream, if it is a control stream (RFC 9114 section
    6.2.1).
    """
    data = Buffer(data=stream)
    if not stream or data.pull_uint_var() != StreamType.CONTROL:
        return
    while not data.eof():
        kind, size = data.pull_uint_var(), data.pull_uint_var()
        frame = data.pull_bytes(size)
        if kind == FrameType.GOAWAY:
            yield Buffer(data=frame).pull_uint_var()


class Aioquic(Caller):
    """aioquic's client, which ignores GOAWAY: requests that the server has not taken are repeated here."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._peer: Any = None
        self._left = 0

    async def exchange(self, method: str, path: str, content: bytes | None) -> tuple[int, bytes]:
        try:
            return await self._fetch(method, path, content)
        except ConnectionError as error:
            stream_id = 4 * (REQUESTS_A_CONNECTION - self._left - 1)
            was_taken = str(error) == CLOSED and self._peer.has_taken(stream_id)
            await self._drop()
            if was_taken or str(error) not in UNPROCESSED:
                raise
        return await self._fetch(method, path, content)

    async def _fetch(self, method: str, path: str, content: bytes | None) -> tuple[int, bytes]:
        if not self._left:
            await self._drop()
            connecting = connect_peer(
                self.target.url, cafile=self.target.cafile, create_protocol=Hearing
            )
            self._peer = await self._stack.enter_async_context(connecting)
            self._left = REQUESTS_A_CONNECTION
        self._left -= 1
        parts = None if content is None else [content]
        response = await self._peer.fetch(method, path, content=parts)
        return response.status, bytes(response.body)

    async def _drop(self) -> None:
        self._left = 0
        await self._stack.aclose()


CALLERS: tuple[type[Caller], ...] = (
    Ours,
    Ours,
    OursByHttpx,
    Httpx,
    Httpx,
    HttpxAnew,
    HTTP2,
    HTTP2,
    Aioquic,
)
