"""Files over QUIC, with progress; an interrupted transfer resumes at its last byte.

    python examples/file_transfer.py serve FOLDER 4433
    python examples/file_transfer.py get localhost 4433 NAME certificate.pem [INTO]

A request is a stream with ``NAME\\nOFFSET\\n``. The response is the size in a line, followed by the
bytes from that offset.
"""

import asyncio
import contextlib
import os
import sys
import tempfile
from pathlib import Path
from typing import BinaryIO

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
    """Responds to one client's requests, one after the other."""
    try:
        async with connection:
            async for stream in connection.streams():
                async with stream:
                    await answer(stream, folder)
    except quic.QuicError as error:
        print(f"{connection.peer_address[0]}: {error}", file=sys.stderr)


async def answer(stream: quic.BidirectionalStream, folder: Path) -> None:
    """Responds to one request."""
    try:
        name = (await stream.readuntil(limit=1000)).decode().rstrip("\n")
        offset = int(await stream.readuntil(limit=20))
        with find(folder, name) as file, contextlib.suppress(quic.StreamStoppedError):
            size = os.fstat(file.fileno()).st_size
            if offset not in range(size + 1):
                raise ValueError("there is no such part of it")
            await stream.send(b"%d\n" % size)
            await stream.sendfile(file, offset, size - offset)
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
        stream.reset(BAD_REQUEST)
    except FileNotFoundError:
        stream.reset(NO_SUCH_FILE)


def find(folder: Path, name: str) -> BinaryIO:
    """Opens a file inside the folder, and no other."""
    path = (folder / name).resolve()
    if path.parent != folder.resolve() or not path.is_file():
        raise FileNotFoundError(name)
    return path.open("rb")


async def get(host: str, port: int, name: str, authority: Path, into: Path) -> None:
    """Fetches one file. ``NAME.part`` holds the data of an interrupted transfer."""
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
    if offset != size:
        raise OSError(f"{name} ended after {offset} of {size} bytes")
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
        sys.exit(f"{error}; what has come is kept" if sys.argv[1] == "get" else str(error))
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
