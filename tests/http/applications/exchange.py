"""One request over HTTP/3, HTTP/2 or HTTP/1.1 to our server or over HTTP/1.1 to uvicorn, with the result in
comparable form.

Values that depend on a connection, a clock or a port are removed; all others have to be equal.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import uringcore
from tests.http.http2.client import Client, connected
from tests.server.harness import Server
from uringcore.http3 import RequestResetError
from uringcore.http3._unpooled_connection import OriginConnection

WAIT_SECONDS = 40.0

# uvicorn on stock asyncio, with an equal certificate: with `--loop` set to ours it would be another
# server.
UVICORN = """
import sys, uvicorn
uvicorn.run({app!r}, port=0, loop="asyncio", ws="none", access_log=False,
            ssl_certfile=sys.argv[1], ssl_keyfile=sys.argv[2])
"""

# Values that depend on the connection (RFC 9114 section 4.2), the clock, or the server.
LEFT_OUT = frozenset(
    {b"connection", b"transfer-encoding", b"keep-alive", b"date", b"server", b"alt-svc"}
)
# HTTP/1.1 marks a body's length in fields, HTTP/3 by the end of the stream.
REQUEST_LEFT_OUT = {"content-length", "transfer-encoding"}
CHUNKED = ("transfer-encoding", "chunked")


@dataclass(frozen=True)
class Case:
    """One request. A ``body`` in parts is sent without a length."""

    path: str
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | tuple[bytes, ...] | None = None


@dataclass(frozen=True)
class Leave:
    """A request whose client disconnects: after a number of response bytes, or, with ``sends``,
    when that part of a longer body has arrived, without waiting for a response.
    """

    case: Case
    takes: int = 0
    sends: bytes = b""


@dataclass
class Reply:
    """A response, without the values that may differ. ``cut``: it ended early."""

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
        """Returns the reply, and the record of the application's observer."""
        name = f"case-{next(self._cases)}"
        return self.reply(case, ("x-case", name)), self.seen(name)

    def reply(self, case: Case, *more: tuple[str, str]) -> Reply:
        """Returns the reply of an application that has no observer."""
        headers = [*case.headers, *more]
        reply = (self._ask_http3 if self.over_http3 else self._ask_http1)(case, headers)
        return Reply(reply.status, self.plain_fields(reply), self.plain(reply.body), reply.cut)

    def leave(self, leave: Leave) -> dict[str, Any]:
        """Sends a request and disconnects before its end; returns the observer's record then."""
        name = f"case-{next(self._cases)}"
        headers = [*leave.case.headers, ("x-case", name)]
        (self._leave_http3 if self.over_http3 else self._leave_http1)(leave, headers, name)
        return self.seen(name)

    def seen(self, name: str) -> dict[str, Any]:
        """Returns the observer's record of a request whose application has ended."""
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
        """Removes the port, the one difference between the two addresses."""
        return data.replace(b":%d" % self.server.port, b":PORT")

    def plain_fields(self, reply: Reply) -> list[tuple[bytes, bytes]]:
        """Returns the fields by name; fields with one name keep their order."""
        left_out = LEFT_OUT
        if reply.status == 204:
            # RFC 9110 section 8.6 forbids it here, and HTTP/3 does not send it.
            left_out = left_out | {b"content-length"}
        kept = [(name.lower(), self.plain(value)) for name, value in reply.headers]
        kept = [
            # The order of a set is random in each process.
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
        """Waits until the application has been called, and has received the data sent."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            found = self._seen_http1(name)
            if found is not None and found["received"] >= len(leave.sends):
                return
            assert time.monotonic() < deadline, found
            time.sleep(0.02)

    @staticmethod
    def _send_head(connection: Any, case: Case, headers: list[tuple[str, str]]) -> None:
        """Sends the request's fields, and besides them only Host."""
        connection.putrequest(case.method, case.path, skip_accept_encoding=True)
        for key, value in headers:
            connection.putheader(key, value)

    def _send(self, connection: Any, case: Case, headers: list[tuple[str, str]]) -> None:
        """Sends a whole request, with the field that HTTP/1.1 needs for its length."""
        if isinstance(case.body, tuple):
            self._send_head(connection, case, [*headers, CHUNKED])
            connection.endheaders(iter(case.body), encode_chunked=True)
            return
        length = [] if case.body is None else [("content-length", str(len(case.body)))]
        self._send_head(connection, case, [*headers, *length])
        connection.endheaders(case.body)


class HTTP2Side(Side):
    """Our server over HTTP/2, with the h2 package as the client."""

    def _begin(self, client: Client, case: Case, headers: list[tuple[str, str]]) -> int:
        authority = f"localhost:{self.server.port}"
        ends = case.body is None
        if isinstance(case.body, bytes):
            headers = [*headers, ("content-length", str(len(case.body)))]
        return client.begin(case.path, case.method, headers, end=ends, authority=authority)

    def _send_body(self, client: Client, stream_id: int, body: bytes | tuple[bytes, ...]) -> None:
        for part in body if isinstance(body, tuple) else (body,):
            client.send(stream_id, part)
        client.send(stream_id, b"", end=True)

    def _ask_http1(self, case: Case, headers: list[tuple[str, str]]) -> Reply:
        with connected(self.server, secure=True) as client:
            stream_id = self._begin(client, case, headers)
            if case.body is not None:
                self._send_body(client, stream_id, case.body)
            response = client.response(stream_id)
            fields = [
                (name.encode("latin-1"), value.encode("latin-1")) for name, value in response.fields
            ]
            return Reply(response.status, fields, response.body, not response.ended)

    def _leave_http1(self, leave: Leave, headers: list[tuple[str, str]], name: str) -> None:
        with connected(self.server, secure=True) as client:
            # Content that is not sent whole has no length.
            case = replace(leave.case, body=()) if leave.sends else leave.case
            stream_id = self._begin(client, case, headers)
            if leave.sends:
                client.send(stream_id, leave.sends)
            elif case.body is not None:
                self._send_body(client, stream_id, case.body)
            if leave.takes:
                while len(client.responses[stream_id].body) < leave.takes:
                    assert client.more()
            else:
                self._wait_begun(leave, name)


def without(reply: Reply, pattern: str) -> Reply:
    """Returns a reply with the random parts of its body replaced."""
    body = re.sub(pattern.encode(), b"DRAWN", reply.body)
    headers = [pair for pair in reply.headers if pair[0] != b"content-length"]
    return Reply(reply.status, headers, body, reply.cut)
