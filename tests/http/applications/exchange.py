"""One request over HTTP/3 to our server or over HTTP/1.1 to uvicorn, and what comes of it, comparable.

What belongs to a connection, a clock or a port is taken out; all else has to be the same.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import uringcore
from tests.server.harness import Server
from uringcore.http3 import RequestResetError
from uringcore.http3._origin_connection import OriginConnection

WAIT_SECONDS = 40.0

# uvicorn on stock asyncio, with the same certificate: `--loop` of ours would be another server.
UVICORN = """
import sys, uvicorn
uvicorn.run({app!r}, port=0, loop="asyncio", ws="none", access_log=False,
            ssl_certfile=sys.argv[1], ssl_keyfile=sys.argv[2])
"""

# Of the connection (RFC 9114 section 4.2), of the clock, of the server.
LEFT_OUT = frozenset(
    {b"connection", b"transfer-encoding", b"keep-alive", b"date", b"server", b"alt-svc"}
)
# What HTTP/1.1 says of a body's length HTTP/3 says with the end of the stream.
REQUEST_LEFT_OUT = {"content-length", "transfer-encoding"}
CHUNKED = ("transfer-encoding", "chunked")


@dataclass(frozen=True)
class Case:
    """One request. ``body`` in parts is sent without a length."""

    path: str
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | tuple[bytes, ...] | None = None


@dataclass(frozen=True)
class Leave:
    """A request whose client goes away: after so many bytes of the response, or without waiting for
    one, when ``sends`` of a longer body has arrived."""

    case: Case
    takes: int = 0
    sends: bytes = b""


@dataclass
class Reply:
    """A response, without what may differ. ``cut``: it ended before its end."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes
    cut: bool = False


@dataclass
class Side:
    """One of the two servers."""

    server: Server
    over_http3: bool
    _cases: Iterator[int] = field(default_factory=lambda: iter(range(1 << 30)))

    def ask(self, case: Case) -> tuple[Reply, dict[str, Any]]:
        """The reply, and what the application's witness has to say."""
        name = f"case-{next(self._cases)}"
        headers = [*case.headers, ("x-case", name)]
        reply = (self._ask_http3 if self.over_http3 else self._ask_http1)(case, headers)
        reply = Reply(reply.status, self.plain_fields(reply), self.plain(reply.body), reply.cut)
        return reply, self.seen(name)

    def leave(self, leave: Leave) -> dict[str, Any]:
        """Asks, and is gone before the end; what the witness has to say then."""
        name = f"case-{next(self._cases)}"
        headers = [*leave.case.headers, ("x-case", name)]
        (self._leave_http3 if self.over_http3 else self._leave_http1)(leave, headers, name)
        return self.seen(name)

    def seen(self, name: str) -> dict[str, Any]:
        """What the witness knows of a request whose application has ended."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            found = (
                json.loads(self.server.get(f"/-/seen?{name}").content)
                if self.over_http3
                else (self._seen_http1(name))
            )
            if found is not None and found["end"] is not None:
                break
            assert time.monotonic() < deadline, found
            time.sleep(0.05)
        text = json.dumps(found).replace(name, "CASE")
        found = json.loads(self.plain(text.encode()))
        fields = found["scope"]["headers"]
        found["scope"]["headers"] = [pair for pair in fields if pair[0] not in REQUEST_LEFT_OUT]
        return found

    def plain(self, data: bytes) -> bytes:
        """Without the port, the one difference between the two addresses."""
        return data.replace(b":%d" % self.server.port, b":PORT")

    def plain_fields(self, reply: Reply) -> list[tuple[bytes, bytes]]:
        """The fields by name; those of one name in their order."""
        left_out = LEFT_OUT
        if reply.status == 204:
            # RFC 9110 section 8.6 forbids it there, and over HTTP/3 it is not sent.
            left_out = left_out | {b"content-length"}
        kept = [(name.lower(), self.plain(value)) for name, value in reply.headers]
        kept = [
            # A set's order is drawn by lot in each process.
            (name, b", ".join(sorted(value.split(b", "))) if name == b"allow" else value)
            for name, value in kept
            if name not in left_out
        ]
        return sorted(kept, key=lambda pair: pair[0])

    # Over HTTP/3

    def _ask_http3(self, case: Case, headers: list[tuple[str, str]]) -> Reply:
        async def fetch() -> Reply:
            reply = Reply(0, [], b"")
            async with self.server.connect() as client:
                asked = client.stream(case.method, case.path, headers=headers, content=case.body)
                async with asked as response:
                    reply.status, reply.headers = response.status, list(response.headers)
                    try:
                        async for part in response.iter_bytes():
                            reply.body += part
                    except RequestResetError:
                        reply.cut = True
            return reply

        return uringcore.run(asyncio.wait_for(fetch(), WAIT_SECONDS))

    def _leave_http3(self, leave: Leave, headers: list[tuple[str, str]], name: str) -> None:
        case = leave.case

        async def content() -> AsyncIterator[bytes]:
            yield leave.sends
            await asyncio.Event().wait()

        async def receive(client: OriginConnection) -> None:
            got, body = 0, content() if leave.sends else None
            asked = client.stream(case.method, case.path, headers=headers, content=body)
            async with asked as response:
                async for part in response.iter_bytes():
                    got += len(part)
                    if got >= leave.takes:
                        break

        async def main() -> None:
            async with self.server.connect() as client:
                if leave.takes:
                    await receive(client)
                    return
                request = asyncio.ensure_future(receive(client))
                await asyncio.to_thread(self._wait_begun, leave, name)
                request.cancel()
                await asyncio.gather(request, return_exceptions=True)

        uringcore.run(asyncio.wait_for(main(), WAIT_SECONDS))

    # Over HTTP/1.1

    def _ask_http1(self, case: Case, headers: list[tuple[str, str]]) -> Reply:
        with self.server.http1() as connection:
            self._send(connection, case, headers)
            response = connection.getresponse()
            fields = [
                (key.encode("latin-1"), value.encode("latin-1"))
                for key, value in response.getheaders()
            ]
            reply = Reply(response.status, fields, b"")
            try:
                reply.body = response.read()
            except http.client.IncompleteRead as exc:
                reply.body, reply.cut = exc.partial, True
            return reply

    def _leave_http1(self, leave: Leave, headers: list[tuple[str, str]], name: str) -> None:
        with self.server.http1() as connection:
            if leave.sends:
                self._send_head(connection, leave.case, headers)
                connection.endheaders()
                connection.send(leave.sends)
            else:
                self._send(connection, leave.case, headers)
            if leave.takes:
                response, got = connection.getresponse(), 0
                while got < leave.takes:
                    got += len(response.read1())
            else:
                self._wait_begun(leave, name)

    def _seen_http1(self, name: str) -> Any:
        with self.server.http1() as connection:
            connection.request("GET", f"/-/seen?{name}")
            return json.loads(connection.getresponse().read())

    def _wait_begun(self, leave: Leave, name: str) -> None:
        """Until the application has been called, and has what was sent."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            found = self._seen_http1(name)
            if found is not None and found["received"] >= len(leave.sends):
                return
            assert time.monotonic() < deadline, found
            time.sleep(0.02)

    @staticmethod
    def _send_head(connection: Any, case: Case, headers: list[tuple[str, str]]) -> None:
        """The request's fields and no others but Host."""
        connection.putrequest(case.method, case.path, skip_accept_encoding=True)
        for key, value in headers:
            connection.putheader(key, value)

    def _send(self, connection: Any, case: Case, headers: list[tuple[str, str]]) -> None:
        """A whole request, with the field that HTTP/1.1 needs for its length."""
        if isinstance(case.body, tuple):
            self._send_head(connection, case, [*headers, CHUNKED])
            connection.endheaders(iter(case.body), encode_chunked=True)
            return
        length = [] if case.body is None else [("content-length", str(len(case.body)))]
        self._send_head(connection, case, [*headers, *length])
        connection.endheaders(case.body)


def without(reply: Reply, pattern: str) -> Reply:
    """A reply with what is drawn by lot in its body taken out."""
    body = re.sub(pattern.encode(), b"DRAWN", reply.body)
    headers = [pair for pair in reply.headers if pair[0] != b"content-length"]
    return Reply(reply.status, headers, body, reply.cut)
