"""FastAPI's WebSockets over HTTP/3, compared with its WebSockets over HTTP/1.1, which uvicorn serves."""

from __future__ import annotations

import asyncio
import json
import ssl
from dataclasses import dataclass

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

import uringcore
from tests.http.features.websocket_client import Socket
from tests.http.raw_client import WAIT_SECONDS, connect_raw, needs_recent_aioquic
from tests.server.harness import ForkedServer

pytestmark = [pytest.mark.either_backend, needs_recent_aioquic]

# Headers that the application sets; uvicorn and uringcore add their own.
SHOWN = ("sec-websocket-protocol", "x-app", "x-why", "content-type")


@dataclass(frozen=True)
class Case:
    """A client's messages, and the number of answers before it closes, if it does."""

    path: str
    says: tuple[str | bytes, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    subprotocols: tuple[str, ...] = ()
    closes: tuple[int, str] | None = None


@dataclass
class Seen:
    """The result."""

    status: int
    headers: dict[str, str]
    body: bytes = b""
    messages: tuple[str | bytes, ...] = ()
    close: tuple[int, str] | None = None


CASES = {
    "text": Case(
        "/text", ("one", "", "zw\N{LATIN SMALL LETTER O WITH DIAERESIS}lf"), closes=(1000, "")
    ),
    "large": Case("/text", ("x" * 300_000,), closes=(4000, "done")),
    "json": Case("/json", ('{"a": [1]}', "null"), closes=(1001, "away")),
    "subprotocol": Case("/chat", subprotocols=("chat.v1", "chat.v2")),
    "dependency": Case("/guarded/7", headers=(("x-token", "secret"),)),
    "refused by a dependency": Case("/guarded/7"),
    "not valid": Case("/guarded/room", headers=(("x-token", "secret"),)),
    "no such route": Case("/nowhere"),
    "denial response": Case("/denied"),
    "closed by an exception": Case("/guarded-later"),
}


@pytest.fixture(scope="module")
def fastapi(backend, certificate, tmp_path_factory):
    """One process that serves both versions."""
    running = ForkedServer(
        tmp_path_factory.mktemp("fastapi"),
        certificate,
        backend=backend,
        app="tests.http.features.starlette_app:app",
    )
    yield running
    running.kill()
    running.check_log()


def shown(pairs):
    return {name.lower(): value for name, value in pairs if name.lower() in SHOWN}


def over_http1(server, case):
    async def main():
        trust = ssl.create_default_context(cafile=server.certificate)
        try:
            client = await connect(
                f"wss://localhost:{server.port}{case.path}",
                ssl=trust,
                compression=None,
                additional_headers=case.headers,
                subprotocols=case.subprotocols or None,
                proxy=None,
                open_timeout=WAIT_SECONDS,
            )
        except InvalidStatus as exc:
            response = exc.response
            return Seen(response.status_code, shown(response.headers.raw_items()), response.body)
        messages = []
        try:
            for message in case.says:
                await client.send(message)
                messages.append(await client.recv())
            if case.closes is not None:
                await client.close(*case.closes)
            while True:
                messages.append(await client.recv())
        except ConnectionClosed:
            pass
        headers = shown(client.response.headers.raw_items())
        return Seen(200, headers, b"", tuple(messages), (client.close_code, client.close_reason))

    return asyncio.run(asyncio.wait_for(main(), 2 * WAIT_SECONDS))


def over_http3(server, case):
    async def main():
        async with connect_raw(server) as raw:
            raw.control()
            await raw.wait_settings()
            lines = [(name.encode(), value.encode()) for name, value in case.headers]
            if case.subprotocols:
                lines.append((b"sec-websocket-protocol", ", ".join(case.subprotocols).encode()))
            socket = Socket(raw, case.path, *lines)
            answer = await socket.wait_answer()
            headers = shown([(name.decode(), value.decode()) for name, value in answer.fields])
            if answer.status != 200:
                answer = await raw.wait_answer(socket.stream_id)
                return Seen(answer.status, headers, answer.body)
            messages = []
            for message in case.says:
                socket.send(message)
                messages += await socket.wait_messages(1)
            if case.closes is not None:
                socket.close(*case.closes)
            close = await socket.wait_closed()
            # The Close frame is in the list too.
            messages += await socket.wait_messages(len(socket.received) - 1)
            return Seen(200, headers, b"", tuple(messages), close)

    return uringcore.run(main())


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_websocket_is_as_over_http1(fastapi, case):
    ours, theirs = over_http3(fastapi, case), over_http1(fastapi, case)
    if not theirs.body:
        # The server itself sets the type of an empty response.
        ours.headers.pop("content-type", None)
        theirs.headers.pop("content-type", None)
    assert ours == theirs
    if case.path == "/text":
        ended = json.loads(fastapi.get("/ended").content)
        assert ended[-1] == ended[-2] == list(case.closes)
