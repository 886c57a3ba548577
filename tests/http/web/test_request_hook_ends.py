"""The statuses that a request hook gets for cancelled requests, refused messages and WebSockets."""

from __future__ import annotations

import asyncio
import contextlib

from uringcore.server._request_hook import HookedRequests


class Recorder:
    """A hook that keeps the attributes of ends."""

    def __init__(self):
        self.ends = []

    def request_started(self, scope, attributes):
        return None

    def request_ended(self, started, attributes, error):
        self.ends.append(attributes)


def end_of(kind, *messages, then=None, refused=()):
    """Returns the attributes of a request whose application sends these messages, and then raises `then`. The
    server refuses messages of the types `refused`."""
    scope = {"type": kind, "path": "/", "query_string": b"", "headers": []}
    hook = Recorder()

    async def application(scope, receive, send):
        for message in messages:
            await send(message)
        if then is not None:
            raise then

    async def send(message):
        if message["type"] in refused:
            raise ValueError("refused")

    async def main():
        with contextlib.suppress(asyncio.CancelledError, KeyError, ValueError):
            await HookedRequests(application, hook)(scope, None, send)

    asyncio.run(main())
    (found,) = hook.ends
    return found.get("http.response.status_code"), found.get("error.type")


START = {"type": "http.response.start", "status": 201}
CANCELLED = (None, "asyncio.exceptions.CancelledError")


def test_a_cancelled_request_has_the_status_that_was_sent():
    assert end_of("http", then=asyncio.CancelledError()) == CANCELLED
    assert end_of("websocket", then=asyncio.CancelledError()) == CANCELLED
    assert end_of("http", START, then=asyncio.CancelledError()) == (201, CANCELLED[1])


def test_a_head_that_the_server_refuses_is_an_error():
    assert end_of("http", START, refused=["http.response.start"]) == (500, "ValueError")


def test_websockets_have_the_status_of_their_handshake():
    close, accept = {"type": "websocket.close"}, {"type": "websocket.accept"}
    denied = {"type": "websocket.http.response.start", "status": 401}
    assert end_of("websocket", close) == (403, None)
    assert end_of("websocket", denied) == (401, None)
    assert end_of("websocket", accept, close) == (101, None)
    assert end_of("websocket", then=KeyError()) == (500, "KeyError")
    assert end_of("websocket", accept, then=KeyError()) == (101, "KeyError")
