"""A chat over QUIC: each member has one stream, on which lines go both ways.

    python examples/chat.py serve 4433
    python examples/chat.py join localhost 4433 NAME certificate.pem

The first line that a member sends is its name. Who does not read loses lines; nobody waits for it.
"""

import asyncio
import contextlib
import io
import sys
import tempfile

import uringcore
from uringcore import quic
from uringcore.devcert import DevelopmentCertificate

ALPN = ["chat"]
Room = dict[str, asyncio.Queue[str]]  # The members, and the lines on their way to each.


async def serve(port: int) -> None:
    """Has a room until it is interrupted."""
    room, guests = Room(), set[asyncio.Task[None]]()
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


async def join(host: str, port: int, name: str, authority: str) -> None:
    """Shows what is said, and says what is typed, until the input ends."""
    config = quic.ClientConfig(alpn=ALPN, authorities=authority, keep_alive=20)
    async with quic.connect(host, port, config) as connection, connection.open_stream() as stream:
        await stream.send(f"{name}\n".encode())
        typing = asyncio.create_task(pass_on_input(stream))
        showing = asyncio.create_task(show(stream))
        done, _ = await asyncio.wait((typing, showing), return_when=asyncio.FIRST_COMPLETED)
        await asyncio.gather(*done, showing)  # Raises what the typing has failed with, if it has.


async def show(stream: quic.ReceiveStream) -> None:
    """Prints what is said, until the server has no more."""
    async for text in stream:
        print(text.decode(errors="replace"), end="", flush=True)


async def pass_on_input(stream: quic.SendStream) -> None:
    """Sends what is typed; its end is the end of the stream."""
    typed = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(typed)
    # Not `sys.stdin`: what becomes non-blocking with that is the terminal, and so `sys.stdout`.
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, io.FileIO("/dev/stdin"))
    while line := await typed.readline():
        await stream.send(line)
    await stream.finish()


if __name__ == "__main__":
    try:
        match sys.argv[1:]:
            case ["serve", port]:
                uringcore.run(serve(int(port)))
            case ["join", host, port, name, authority]:
                uringcore.run(join(host, int(port), name, authority))
            case _:
                sys.exit(__doc__)
    except OSError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
