"""pproxy's release has no tests: its own client and server tunnel TCP through HTTP/3 and through
QUIC.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pproxy
import pproxy.server
import pytest
from identity import identity  # noqa: F401 - a fixture


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.parametrize("scheme", ["h3", "http+quic"])
def test_a_tunnel_carries_tcp_both_ways(scheme: str, identity: tuple[str, str]) -> None:  # noqa: F811
    async def main() -> None:
        origin = await asyncio.start_server(_echo, "127.0.0.1", 0)
        proxy = f"{scheme}://127.0.0.1:{_free_port()}"
        # pproxy keeps the contexts of all URIs in one list, and its command loads certificates into each.
        contexts: list[Any] = pproxy.server.sslcontexts
        contexts.clear()
        server: Any = pproxy.Server(proxy)
        for context in contexts:
            context.load_cert_chain(*identity)
        await server.start_server({"rserver": [], "verbose": lambda *lines: None})
        client: Any = pproxy.Connection(proxy)
        target = origin.sockets[0].getsockname()
        for _ in range(3):
            reader, writer = await asyncio.wait_for(client.tcp_connect(*target), 20)
            writer.write(b"hello" * 20_000)
            await writer.drain()
            assert await asyncio.wait_for(reader.readexactly(100_000), 20) == b"hello" * 20_000
            writer.close()
        origin.close()

    asyncio.run(main())
