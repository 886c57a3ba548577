"""Clients, each of one implementation and way: one verified request after the other.

What becomes of their failures is the trial's business.
"""

from __future__ import annotations

import contextlib
import random
import ssl
from dataclasses import dataclass
from typing import Any

import httpx

from examples.aioquic_peer import connect_peer
from tests.stress.pattern import Pattern, Violation
from uringcore.http3 import Pool, Timeouts
from uringcore.httpx import AsyncHTTP3Transport

SIZES = (0, 1, 1000, 20_000, 100_000, 400_000)
REQUESTS_A_CONNECTION = 8
"""Of a client that begins anew now and then."""
UNPROCESSED = ("stream reset: 0x10b", "connection closed: ")
"""H3_REQUEST_REJECTED (RFC 9114 section 4.1.1), or the end of a connection whose GOAWAY does not reach as far
as the request: the server has done nothing with it."""


@dataclass(frozen=True)
class Target:
    """Where the server is."""

    url: str
    cafile: str
    """The authority that has signed whatever it shows."""


class Caller:
    """A client. `once` makes a request and looks at all of its response."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._stack = contextlib.AsyncExitStack()

    async def once(self, rng: random.Random) -> None:
        """Raises `Violation` for a response that is wrong, and whatever the client raises otherwise."""
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
        """One request and its whole response."""
        raise NotImplementedError

    def stream(self, path: str) -> Any:
        """A GET as a context manager, which gives the status and an iterator of the content's parts."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Ends its connections."""
        await self._stack.aclose()


def check(status: int, is_right: bool, what: str) -> None:
    """No fault excuses a wrong answer."""
    if status != 200:
        raise Violation(f"status {status}")
    if not is_right:
        raise Violation(what)


def check_pattern(status: int, body: bytes, key: str, size: int) -> None:
    """The first `size` bytes of `key`."""
    check(status, len(body) == size, f"{len(body)} bytes instead of {size}")
    Pattern(key).check(body)


class Ours(Caller):
    """`uringcore.http3.Pool`."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        # What hangs is found by the trial, whichever client it is.
        self._pool = Pool(cafile=target.cafile, timeouts=Timeouts(None, None, None, None))
        self._stack.push_async_callback(self._pool.aclose)

    async def exchange(self, method: str, path: str, content: bytes | None) -> tuple[int, bytes]:
        response = await self._pool.request(method, self.target.url + path, content=content)
        return response.status, response.content

    @contextlib.asynccontextmanager
    async def stream(self, path: str) -> Any:
        async with self._pool.stream("GET", self.target.url + path) as response:
            yield response.status, response.iter_bytes()


class OursByHttpx(Caller):
    """httpx on our transport: HTTP/3 once the server has said so."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        transport = AsyncHTTP3Transport(verify=target.cafile, trust_env=False)
        self._client = httpx.AsyncClient(transport=transport, timeout=None, trust_env=False)
        self._stack.push_async_callback(self._client.aclose)

    async def exchange(self, method: str, path: str, content: bytes | None) -> tuple[int, bytes]:
        response = await self._client.request(method, self.target.url + path, content=content)
        return response.status_code, response.content


class Httpx(Caller):
    """httpx over HTTP/1.1, on a connection that is kept."""

    connections_kept = 1

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        limits = httpx.Limits(max_keepalive_connections=self.connections_kept)
        self._client = httpx.AsyncClient(
            verify=ssl.create_default_context(cafile=target.cafile),
            timeout=None,
            limits=limits,
            trust_env=False,
        )
        self._stack.push_async_callback(self._client.aclose)

    async def exchange(self, method: str, path: str, content: bytes | None) -> tuple[int, bytes]:
        response = await self._client.request(method, self.target.url + path, content=content)
        return response.status_code, response.content

    @contextlib.asynccontextmanager
    async def stream(self, path: str) -> Any:
        async with self._client.stream("GET", self.target.url + path) as response:
            yield response.status_code, response.aiter_bytes()


class HttpxAnew(Httpx):
    """The same, with a connection for each request."""

    connections_kept = 0


class Aioquic(Caller):
    """aioquic, which knows nothing of GOAWAY: what the server has not taken it asks again."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._peer: Any = None
        self._left = 0

    async def exchange(self, method: str, path: str, content: bytes | None) -> tuple[int, bytes]:
        try:
            return await self._fetch(method, path, content)
        except ConnectionError as error:
            await self._drop()
            if str(error) not in UNPROCESSED:
                raise
        return await self._fetch(method, path, content)

    async def _fetch(self, method: str, path: str, content: bytes | None) -> tuple[int, bytes]:
        if not self._left:
            await self._drop()
            connecting = connect_peer(self.target.url, cafile=self.target.cafile)
            self._peer = await self._stack.enter_async_context(connecting)
            self._left = REQUESTS_A_CONNECTION
        self._left -= 1
        parts = None if content is None else [content]
        response = await self._peer.fetch(method, path, content=parts)
        return response.status, bytes(response.body)

    async def _drop(self) -> None:
        self._left = 0
        await self._stack.aclose()


CALLERS: tuple[type[Caller], ...] = (Ours, Ours, OursByHttpx, Httpx, Httpx, HttpxAnew, Aioquic)
