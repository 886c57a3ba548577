"""Files over QUIC, with progress; a transfer that was interrupted goes on where it was.

    python examples/file_transfer.py serve FOLDER 4433
    python examples/file_transfer.py get localhost 4433 NAME certificate.pem [INTO]

A request is a stream: ``NAME\\nOFFSET\\n``, answered by the size in a line and the bytes from there on.
"""

import asyncio
import contextlib
import sys
import tempfile
from pathlib import Path

import uringcore
from uringcore import aio, quic
from uringcore.devcert import DevelopmentCertificate

ALPN = ["file-transfer"]
NO_SUCH_FILE, BAD_REQUEST = 0x404, 0x400


async def serve(folder: Path, port: int) -> None:
    """Serves the files of a folder until it is interrupted."""
    with tempfile.TemporaryDirectory() as made:
        certificate, key = DevelopmentCertificate.make().write(made)
        identity = (certificate, key)
        async with quic.listen("::", port, certificate=identity, alpn=ALPN) as listener:
            print(f"port {listener.address[1]}, authority {certificate}", flush=True)
            clients: set[asyncio.Task[None]] = set()
            async for connection in listener:
                task = asyncio.create_task(serve_client(connection, folder))
                clients.add(task)
                task.add_done_callback(clients.discard)


async def serve_client(connection: quic.Connection, folder: Path) -> None:
    """Answers one client's requests, one after the other."""
    try:
        async with connection:
            async for stream in connection.streams():
                async with stream:
                    await answer(stream, folder)
    except quic.QuicError as error:
        print(f"{connection.peer_address[0]}: {error}", file=sys.stderr)


async def answer(stream: quic.BidirectionalStream, folder: Path) -> None:
    """Sends what one request asks for."""
    try:
        path = find(folder, (await stream.readuntil(limit=1000)).decode().rstrip("\n"))
        offset = int(await stream.readuntil(limit=20))
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
        stream.reset(BAD_REQUEST)
        return
    if path is None or offset not in range(path.stat().st_size + 1):
        stream.reset(NO_SUCH_FILE if path is None else BAD_REQUEST)
        return
    with contextlib.suppress(quic.StreamStopped):
        await stream.send(b"%d\n" % path.stat().st_size)
        async with aio.open(path, "rb") as file:
            await file.seek(offset)
            while piece := await file.read(1 << 18):
                await stream.send(piece)


def find(folder: Path, name: str) -> Path | None:
    """A file of the folder's own, and no other."""
    path = (folder / name).resolve()
    return path if path.parent == folder.resolve() and path.is_file() else None


async def get(host: str, port: int, name: str, authority: Path, into: Path) -> None:
    """Gets one file. What an interrupted transfer had brought is in ``NAME.part``."""
    part = into / f"{name}.part"
    offset = part.stat().st_size if part.exists() else 0
    config = quic.ClientConfig(alpn=ALPN, authorities=authority)
    async with quic.connect(host, port, config) as link, link.open_stream() as stream:
        await stream.send(f"{name}\n{offset}\n".encode())
        await stream.finish()
        size = int(await stream.readuntil(limit=20))
        print(f"{name}: {size} bytes, {offset} of them are here", file=sys.stderr)
        async with aio.open(part, "ab") as file:
            async for piece in stream:
                await file.write(piece)
                offset += len(piece)
                print(f"\r{offset * 100 // size} %", end="\n" * (offset == size), file=sys.stderr)
    part.rename(into / name)


def main() -> int:
    """Reads the command line; returns the exit status."""
    match sys.argv[1:]:
        case ["serve", folder, port]:
            program = serve(Path(folder), int(port))
        case ["get", host, port, name, authority, *into]:
            program = get(host, int(port), name, Path(authority), Path(*into))
        case _:
            sys.exit(__doc__)
    try:
        uringcore.run(program)
    except OSError as error:
        sys.exit(f"{error}; what has come is kept")
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
