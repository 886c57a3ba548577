"""Calls of grpclib's client to the service of ``grpc_application``, each with its assertions."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

client = pytest.importorskip("grpclib.client")
base = pytest.importorskip("grpclib.encoding.base")
exceptions = pytest.importorskip("grpclib.exceptions")

__all__ = ["CALLS", "call"]


class Plain(base.CodecBase):
    """Messages are bytes, without protocol buffers."""

    __content_subtype__ = "proto"

    def encode(self, message, message_type):
        return message

    def decode(self, data, message_type):
        return bytes(data)


def call(server, use: Callable[[Any], Awaitable[None]]) -> None:
    """Runs ``use(channel)`` with a channel to a server."""

    async def main():
        trust = None
        if server.is_secure:
            trust = ssl.create_default_context(cafile=server.certificate)
            trust.set_alpn_protocols(["h2"])
        channel = client.Channel("localhost", server.port, codec=Plain(), ssl=trust)
        try:
            await asyncio.wait_for(use(channel), 60)
        finally:
            channel.close()

    asyncio.run(main())


async def unary_calls_and_their_status(channel):
    echo = client.UnaryUnaryMethod(channel, "/test.Service/Echo", bytes, bytes)
    for size in (0, 1, 100_000):
        assert await echo(b"x" * size) == b"x" * size
    replies = await asyncio.gather(*(echo(b"%d" % number) for number in range(50)))
    assert replies == [b"%d" % number for number in range(50)]
    unknown = client.UnaryUnaryMethod(channel, "/test.Service/Unknown", bytes, bytes)
    with pytest.raises(exceptions.GRPCError) as caught:
        await unknown(b"")
    assert (caught.value.status.name, caught.value.message) == ("UNIMPLEMENTED", "unknown method")


async def streams_in_both_directions(channel):
    count = client.UnaryStreamMethod(channel, "/test.Service/Count", bytes, bytes)
    assert await count(b"5000") == [b"%d" % number for number in range(5000)]
    echo = client.StreamStreamMethod(channel, "/test.Service/Echo", bytes, bytes)
    async with echo.open() as stream:
        for number in range(100):
            await stream.send_message(b"%d" % number)
            assert await stream.recv_message() == b"%d" % number
        await stream.end()
        assert await stream.recv_message() is None


CALLS = (unary_calls_and_their_status, streams_in_both_directions)
