"""The client of an HTTP/3 server that another program measures: it makes the number of requests on stdin.

    python -m benchmarks.programs.h3_client PORT CERTIFICATE {hello,download,upload,websocket} AT_ONCE

Each line on stdin is a number of requests (or of messages on a WebSocket), AT_ONCE of them in flight. A
byte on stdout follows once all are answered and the answers are acknowledged. Like `echo_client.py` it runs
when the server, on the same core, is idle.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable

import uringcore
import uringcore.http3
from benchmarks.applications.bare import HELLO, LARGE
from benchmarks.programs.work_requests import shares, until_stdin_ends, yield_the_core


def expect(response: uringcore.http3.Response, content: bytes) -> None:
    """Raise `ValueError` for another status or body."""
    if (response.status, response.content) != (200, content):
        raise ValueError(f"a wrong answer: {response}")


async def hello(client: uringcore.http3.Client, url: str, count: int) -> None:
    """A few bytes each."""
    for _ in range(count):
        expect(await client.get(f"{url}/"), HELLO)


async def download(client: uringcore.http3.Client, url: str, count: int) -> None:
    """100 KiB each."""
    for _ in range(count):
        expect(await client.get(f"{url}/100k"), LARGE)


async def upload(client: uringcore.http3.Client, url: str, count: int) -> None:
    """100 KiB each; the answer is how many."""
    for _ in range(count):
        response = await client.request("POST", f"{url}/upload", content=LARGE)
        expect(response, len(LARGE).to_bytes(8, "big"))


async def websocket(client: uringcore.http3.Client, url: str, count: int) -> None:
    """100 bytes each, echoed."""
    async with client.websocket(f"{url}/echo") as connection:
        for _ in range(count):
            await connection.send(LARGE[:100])
            if await connection.receive() != LARGE[:100]:
                raise ValueError("a wrong echo")


MODES: dict[str, Callable[[uringcore.http3.Client, str, int], Awaitable[None]]] = {
    "hello": hello,
    "download": download,
    "upload": upload,
    "websocket": websocket,
}


async def main() -> None:
    """Send requests until stdin ends."""
    port, certificate, mode, at_once = sys.argv[1:]
    url = f"https://localhost:{port}"
    yield_the_core()
    async with uringcore.http3.Client(cafile=certificate) as client:

        async def ask(count: int) -> None:
            numbers = shares(count, int(at_once))
            await asyncio.gather(*(MODES[mode](client, url, number) for number in numbers))

        await until_stdin_ends(ask)


if __name__ == "__main__":
    uringcore.run(main())
