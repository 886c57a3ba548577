"""The event loop alone: a TCP echo server and a client, in plain asyncio.

python examples/echo_loop.py
"""

import asyncio
from typing import Any

import uringcore


async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Echoes all input."""
    while data := await reader.read(64 * 1024):
        writer.write(data)
        await writer.drain()
    writer.close()


async def main() -> None:
    """Starts the server, sends it a thousand messages, and prints the loop's counters."""
    loop: Any = asyncio.get_running_loop()
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        for number in range(1000):
            message = b"message %d\n" % number
            writer.write(message)
            assert await reader.readexactly(len(message)) == message
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
    stats = loop.stats()
    print(
        f"1000 echoes on {loop.backend}: {stats['turns']} turns, {stats['syscalls']} system calls"
    )


if __name__ == "__main__":
    uringcore.run(main())
