"""One WebSocket over HTTP/1.1, HTTP/2 or HTTP/3, in one form: the client of a conversation with a program."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import Protocol

from websockets.asyncio.client import connect as connect_http1

from tests.http.http2.client import connected
from tests.http.http2.websocket_client import Socket
from tests.server.harness import Server
from uringcore.http3 import Client

__all__ = ["VERSIONS", "Talk", "talk"]


class Talk(Protocol):
    """An open WebSocket."""

    subprotocol: str | None

    async def send(self, text: str) -> None: ...

    async def receive(self) -> str: ...


class HTTP1Talk:
    def __init__(self, socket):
        self._socket = socket
        self.subprotocol = socket.subprotocol

    async def send(self, text):
        await self._socket.send(text)

    async def receive(self):
        return await self._socket.recv()


class HTTP2Talk:
    def __init__(self, socket):
        self._socket = socket
        self.subprotocol = socket.response.get("sec-websocket-protocol")

    async def send(self, text):
        await asyncio.to_thread(self._socket.send, text)

    async def receive(self):
        return (await asyncio.to_thread(self._socket.receive)).decode()


@contextlib.asynccontextmanager
async def over_http1(server: Server, path: str, subprotocols: list[str]) -> AsyncIterator[Talk]:
    trust = ssl.create_default_context(cafile=server.certificate)
    url = f"wss://localhost:{server.port}{path}"
    async with connect_http1(url, ssl=trust, subprotocols=subprotocols or None) as socket:
        yield HTTP1Talk(socket)


@contextlib.asynccontextmanager
async def over_http2(server: Server, path: str, subprotocols: list[str]) -> AsyncIterator[Talk]:
    fields = [("origin", f"https://localhost:{server.port}")]
    fields += [("sec-websocket-protocol", name) for name in subprotocols]
    with connected(server, secure=True) as client:
        authority = f"localhost:{server.port}"
        socket = await asyncio.to_thread(Socket, client, path, *fields, authority=authority)
        assert socket.response.status == 200, socket.response
        yield HTTP2Talk(socket)
        socket.close(1000)


@contextlib.asynccontextmanager
async def over_http3(server: Server, path: str, subprotocols: list[str]) -> AsyncIterator[Talk]:
    async with Client(cafile=server.certificate) as client:
        url = f"wss://localhost:{server.port}{path}"
        async with client.websocket(url, subprotocols=subprotocols) as socket:
            yield socket


VERSIONS = {"1.1": over_http1, "2": over_http2, "3": over_http3}


def talk(
    version: str, server: Server, path: str, subprotocols: list[str] | None = None
) -> contextlib.AbstractAsyncContextManager[Talk]:
    """Opens a WebSocket over this version of HTTP."""
    return VERSIONS[version](server, path, subprotocols or [])
