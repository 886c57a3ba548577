"""Both ends of the cases, on any library with the interface of `session`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.interop.webtransport.session import (
    Ended,
    Lacking,
    Library,
    Refused,
    Reset,
    Session,
    Stream,
)
from tests.support.free_ports import free_port

PATH, NOWHERE = "/probe", "/nothing"
OFFERED, TAKEN = ["first", "second"], ["second"]
GIFT = bytes(range(256)) * 400
BIG = bytes(range(256)) * 4096
DATAGRAMS, DATAGRAM_BYTES = 100, 1000
CLOSE, CLOSED = (4321, "as asked"), (1234, "enough of it")
# Below and above the first code that the mapping to HTTP/3's codes skips.
CODES = (7, 300)
UNSUPPORTED = 127
SECONDS = 30.0


# The server's end


class Server:
    """State shared by all sessions, and the last one's close."""

    def __init__(self) -> None:
        self.last: tuple[int, str] | None = None
        self.told = asyncio.Event()

    async def handle(self, session: Session) -> None:
        tasks = [
            asyncio.ensure_future(each)
            for each in (
                self._streams(session, True, self._obey),
                self._streams(session, False, self._repeat),
                self._datagrams(session),
            )
        ]
        try:
            self.last = await session.closed()
            self.told.set()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _streams(
        self,
        session: Session,
        bidirectional: bool,
        work: Callable[[Session, Stream], Coroutine[Any, Any, None]],
    ) -> None:
        running = set()
        with contextlib.suppress(Ended):
            while True:
                stream = await session.accept(bidirectional)
                task = asyncio.ensure_future(work(session, stream))
                running.add(task)
                task.add_done_callback(_complain)

    async def _datagrams(self, session: Session) -> None:
        with contextlib.suppress(Ended):
            while True:
                await session.send_datagram(await session.datagram())

    async def _repeat(self, session: Session, stream: Stream) -> None:
        content = await read_all(stream)
        await (await session.open(False)).send(content, end=True)

    async def _obey(self, session: Session, stream: Stream) -> None:
        heard = bytearray()
        while b"\n" not in heard:
            piece = await stream.read()
            if not piece:
                return
            heard += piece
        line, _, rest = bytes(heard).partition(b"\n")
        order, *arguments = line.decode().split(" ", 2)
        await getattr(self, f"_{order.lower()}")(session, stream, rest, *arguments)

    async def _echo(self, session: Session, stream: Stream, rest: bytes) -> None:
        if rest:
            await stream.send(rest)
        while piece := await stream.read():
            await stream.send(piece)
        await stream.send(b"", end=True)

    async def _open(self, session: Session, stream: Stream, rest: bytes) -> None:
        own = await session.open(True)
        await own.send(GIFT, end=True)
        same = await read_all(own) == GIFT
        await stream.send(b"same" if same else b"different", end=True)

    async def _close(
        self, session: Session, stream: Stream, rest: bytes, code: str, reason: str
    ) -> None:
        await session.close(int(code), reason)

    async def _reset(self, session: Session, stream: Stream, rest: bytes, code: str) -> None:
        await stream.reset(int(code))

    async def _stop(self, session: Session, stream: Stream, rest: bytes, code: str) -> None:
        await stream.stop(int(code))

    async def _hear(self, session: Session, stream: Stream, rest: bytes) -> None:
        # A reset may overtake earlier data, so the client waits before it resets.
        await stream.send(b"ready")
        try:
            await read_all(stream)
            said = b"the end"
        except Reset as reset:
            said = b"%d" % reset.code
        await (await session.open(False)).send(said, end=True)

    async def _last(self, session: Session, stream: Stream, rest: bytes) -> None:
        await self.told.wait()
        assert self.last is not None
        code, reason = self.last
        await stream.send(f"{code} {reason}".encode(), end=True)

    async def _protocol(self, session: Session, stream: Stream, rest: bytes) -> None:
        await stream.send(str(session.protocol).encode(), end=True)


def _complain(task: asyncio.Future[None]) -> None:
    """Logs an error that occurs while the session is open; its end cancels all operations."""
    if not task.cancelled() and task.exception() is not None:
        print(f"webtransport: {task.exception()!r}", file=sys.stderr)


# The client's end


Connect = Callable[..., Any]


async def echo(connect: Connect) -> None:
    """Echoes one stream of 1 MiB, and twenty at once."""
    async with connect() as session:
        expect("1 MiB", await told(session, b"ECHO\n" + BIG) == BIG, True)
        pieces = [bytes([number]) * 50_000 for number in range(20)]
        back = await asyncio.gather(*(told(session, b"ECHO\n" + piece) for piece in pieces))
        expect("twenty streams", back == pieces, True)


async def streams(connect: Connect) -> None:
    """Unidirectional streams both ways, and a bidirectional one of the server."""
    async with connect() as session:
        own = await session.open(False)
        await own.send(GIFT, end=True)
        back = await read_all(await session.accept(False))
        expect("what came on a unidirectional stream", back == GIFT, True)
        answer = asyncio.ensure_future(told(session, b"OPEN\n"))
        theirs = await session.accept(True)
        await theirs.send(await read_all(theirs), end=True)
        expect("what the server found", await answer, b"same")


async def datagrams(connect: Connect) -> None:
    """Each is echoed before the next is sent."""
    async with connect() as session:
        for number in range(DATAGRAMS):
            sent = b"%04d" % number + bytes(DATAGRAM_BYTES - 4)
            await session.send_datagram(sent)
            expect(f"datagram {number}", await session.datagram() == sent, True)


async def close(connect: Connect) -> None:
    """Checks the server's code and reason."""
    async with connect() as session:
        code, reason = CLOSE
        await order(session, f"CLOSE {code} {reason}\n".encode())
        expect("the close", await session.closed(), CLOSE)


async def closed(connect: Connect) -> None:
    """Checks the client's code and reason."""
    async with connect() as session:
        # Once the server has sent data, it has a session that can be closed.
        expect("the echo", await told(session, b"ECHO\nx"), b"x")
        await session.close(*CLOSED)
    async with connect() as session:
        code, reason = CLOSED
        expect("the close", await told(session, b"LAST\n"), f"{code} {reason}".encode())


async def codes(connect: Connect) -> None:
    """Checks the codes of resets in both directions, and of the server's STOP_SENDING."""
    async with connect() as session:
        for code in CODES:
            stream = await order(session, b"RESET %d\n" % code)
            try:
                await read_all(stream)
                raise ValueError("the stream ended, and was to be reset")
            except Reset as reset:
                expect("the code of a reset", reset.code, code)
            stream = await order(session, b"HEAR\n", end=False)
            expect("the answer", await stream.read(), b"ready")
            await stream.reset(code)
            heard = await read_all(await session.accept(False))
            expect("the code that the server heard", heard, b"%d" % code)
            stream = await order(session, b"STOP %d\n" % code, end=False)
            expect("the code of a stop", await stream.stopped(), code)


async def refusal(connect: Connect) -> None:
    try:
        async with connect(path=NOWHERE):
            raise ValueError("there is a session where none was to be")
    except Refused as refused:
        if refused.status is not None:
            expect("the status", refused.status, 404)


async def protocol(connect: Connect) -> None:
    async with connect(protocols=OFFERED) as session:
        expect("the protocol", session.protocol, TAKEN[0])
        expect("the server's", await told(session, b"PROTOCOL\n"), TAKEN[0].encode())


CASES: dict[str, Callable[[Connect], Awaitable[None]]] = {
    f"wt-{case.__name__}": case
    for case in (echo, streams, datagrams, close, closed, codes, refusal, protocol)
}


async def order(session: Session, line: bytes, end: bool = True) -> Stream:
    stream = await session.open(True)
    await stream.send(line, end=end)
    return stream


async def told(session: Session, line: bytes) -> bytes:
    """Returns the server's answer. An echo begins before all data has been sent."""
    stream = await session.open(True)
    sending = asyncio.ensure_future(stream.send(line, end=True))
    found = await read_all(stream)
    await sending
    return found


async def read_all(stream: Stream) -> bytes:
    found = bytearray()
    while piece := await stream.read():
        found += piece
    return bytes(found)


def expect(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise ValueError(f"{what}: {found!r}, not {wanted!r}")


# The command


def main(arguments: Sequence[str]) -> int:
    """Runs $TESTCASE as one end; returns the exit status."""
    name, *rest = arguments
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["server", "client"])
    for option in ("--certs", "--www", "--downloads", "--host", "--port"):
        parser.add_argument(option)
    options = parser.parse_args(rest)
    library = importlib.import_module(f"tests.interop.webtransport.libraries.{name}")
    case = os.environ["TESTCASE"]
    work = _serve if options.role == "server" else _play
    try:
        if lacking := library.LACKING.get(case) or library.LACKING.get(f"{options.role} {case}"):
            raise Lacking(lacking)
        library.run(work(library, options, case))
    except Lacking as error:
        print(f"{name}: {error}", file=sys.stderr)
        return UNSUPPORTED
    except Exception as error:
        traceback.print_exc()
        print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


async def _serve(library: Library, options: argparse.Namespace, case: str) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    certificates, port = Path(options.certs), int(options.port) or free_port()
    server = Server()
    stop = await library.serve(options.host, port, PATH, certificates, TAKEN, server.handle)
    print("READY", port, flush=True)
    await stopped.wait()
    ending = stop()
    if ending is not None:
        await ending


async def _play(library: Library, options: argparse.Namespace, case: str) -> None:
    address = urlsplit(os.environ["REQUESTS"].split()[0])

    def connect(path: str = PATH, protocols: Sequence[str] = ()) -> Any:
        authority = Path(options.certs) / "ca.pem"
        return library.connect(
            address.hostname or "", address.port or 443, path, authority, list(protocols)
        )

    await asyncio.wait_for(CASES[case](connect), SECONDS)
