"""A chat over QUIC: each member has one stream, which carries lines in both directions.

    python examples/chat.py serve 4433
    python examples/chat.py join localhost 4433 NAME certificate.pem

The first line from a member is its name. A member that does not read loses lines; the others do not
wait for it.
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
Room = dict[str, asyncio.Queue[str]]  # The members, and the queued lines of each.


async def serve(port: int) -> None:
    """Runs a room until it is interrupted."""
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
    """Serves one member, from its name to the end of its stream."""
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
    """Returns a member's next line; nothing at the end, or if the input is no line."""
    try:
        return (await stream.readuntil(limit=1000)).decode(errors="replace").strip() or " "
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return ""


def say(room: Room, text: str) -> None:
    """Sends a line to all members."""
    for lines in room.values():
        with contextlib.suppress(asyncio.QueueFull):
            lines.put_nowait(text)


async def tell(stream: quic.SendStream, lines: asyncio.Queue[str]) -> None:
    """Sends a member the queued lines."""
    with contextlib.suppress(quic.QuicError):
        while True:
            await stream.send(f"{await lines.get()}\n".encode())


async def join(host: str, port: int, name: str, authority: str) -> None:
    """Prints the room's lines, and sends the typed ones, until the input ends."""
    config = quic.ClientConfig(alpn=ALPN, authorities=authority, keep_alive=20)
    async with quic.connect(host, port, config) as connection, connection.open_stream() as stream:
        await stream.send(f"{name}\n".encode())
        typing = asyncio.create_task(pass_on_input(stream))
        showing = asyncio.create_task(show(stream))
        done, _ = await asyncio.wait((typing, showing), return_when=asyncio.FIRST_COMPLETED)
        await asyncio.gather(*done, showing)  # Raises the error of the input task, if any.


async def show(stream: quic.ReceiveStream) -> None:
    """Prints lines until the server ends the stream."""
    async for text in stream:
        print(text.decode(errors="replace"), end="", flush=True)


async def pass_on_input(stream: quic.SendStream) -> None:
    """Sends typed lines; the end of input ends the stream."""
    typed = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(typed)
    # Not `sys.stdin`: that would make the terminal non-blocking, and so `sys.stdout`.
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
