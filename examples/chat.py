"""A chat over QUIC: each member has one stream, on which lines go both ways.

    python examples/chat.py serve 4433
    python examples/chat.py join localhost 4433 NAME certificate.pem

The first line that a member sends is its name. Who does not read loses lines; nobody waits for it.
"""

import asyncio
import contextlib
import sys
import tempfile
from pathlib import Path

import uringcore
from uringcore import quic
from uringcore.devcert import DevelopmentCertificate

ALPN = ["chat"]
Room = dict[str, asyncio.Queue[str]]  # The members, and the lines on their way to each.


async def serve(port: int) -> None:
    """Has a room until it is interrupted."""
    room: Room = {}
    guests: set[asyncio.Task[None]] = set()
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = DevelopmentCertificate.make().write(folder)
        async with quic.listen("::", port, certificate=(certificate, key), alpn=ALPN) as listener:
            print(f"port {listener.address[1]}, authority {certificate}", flush=True)
            async for connection in listener:
                guest = asyncio.create_task(welcome(connection, room))
                guests.add(guest)
                guest.add_done_callback(guests.discard)


async def welcome(connection: quic.Connection, room: Room) -> None:
    """One member, from its name to its end, which is the end of its stream."""
    with contextlib.suppress(quic.QuicError):
        async with connection, await connection.accept_stream() as stream:
            name = await hear(stream)
            if name in room or not name.strip():
                connection.close(1, f"nobody else may be {name!r}")
                return
            lines = room[name] = asyncio.Queue[str](100)
            telling = asyncio.create_task(tell(stream, lines))
            say(room, f"* {name} is here")
            try:
                while line := await hear(stream):
                    say(room, f"{name}: {line}")
            finally:
                telling.cancel()
                del room[name]
                say(room, f"* {name} has left")


async def hear(stream: quic.ReceiveStream) -> str:
    """What a member says next; nothing at the end, or for what is no line."""
    try:
        return (await stream.readuntil(limit=1000)).decode(errors="replace").strip() or " "
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return ""


def say(room: Room, text: str) -> None:
    """Tells all members."""
    for lines in room.values():
        with contextlib.suppress(asyncio.QueueFull):
            lines.put_nowait(text)


async def tell(stream: quic.SendStream, lines: asyncio.Queue[str]) -> None:
    """Sends a member what is said."""
    with contextlib.suppress(quic.QuicError):
        while True:
            await stream.send(f"{await lines.get()}\n".encode())


async def join(host: str, port: int, name: str, authority: Path) -> None:
    """Shows what is said, and says what is typed, until the input ends."""
    config = quic.ClientConfig(alpn=ALPN, authorities=authority, keep_alive=20)
    async with quic.connect(host, port, config) as connection, connection.open_stream() as stream:
        await stream.send(f"{name}\n".encode())
        typing = asyncio.create_task(pass_on_input(stream))
        async for text in stream:
            print(text.decode(errors="replace"), end="", flush=True)
        typing.cancel()


async def pass_on_input(stream: quic.SendStream) -> None:
    """Sends what is typed; its end is the end of the stream."""
    typed = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(typed), sys.stdin)
    while line := await typed.readline():
        await stream.send(line)
    await stream.finish()


def main() -> int:
    """Reads the command line; returns the exit status."""
    match sys.argv[1:]:
        case ["serve", port]:
            program = serve(int(port))
        case ["join", host, port, name, authority]:
            program = join(host, int(port), name, Path(authority))
        case _:
            sys.exit(__doc__)
    try:
        uringcore.run(program)
    except OSError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
