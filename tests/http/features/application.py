"""The ASGI application of the HTTP/3 feature tests: one path for each feature.

It is plain ASGI, so that no framework is between the server and the feature.
"""

import asyncio
import json
import os
import signal
import tempfile
import time
from pathlib import Path

EVENTS = []
GONE = []
RELEASE = {}


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
        return
    name = scope["path"].split("/")[1]
    await (SOCKETS if scope["type"] == "websocket" else ROUTES)[name](scope, receive, send)


async def lifespan(receive, send):
    while (message := await receive())["type"] != "lifespan.shutdown":
        await send({"type": f"{message['type']}.complete"})
    await send({"type": "lifespan.shutdown.complete"})


def released(scope):
    """The event that /release sets, by the rest of the path."""
    return RELEASE.setdefault(scope["path"].split("/", 2)[2], asyncio.Event())


def describe(scope):
    """Returns the scope as JSON."""

    def text(value):
        return value.decode("latin-1") if isinstance(value, bytes) else repr(value)

    return json.dumps(scope, default=text)


# HTTP


async def answer(send, body, status=200, headers=()):
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    headers = [(b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def show_scope(scope, receive, send):
    await answer(send, describe(scope).encode())


async def events(scope, receive, send):
    """Returns the events of the WebSocket applications, once: under the name that the client gave
    them.
    """
    name = scope["path"].split("/", 2)[2]
    await answer(send, [event for key, event in EVENTS if key == name])


async def release(scope, receive, send):
    released(scope).set()
    await answer(send, b"released")


async def method(scope, receive, send):
    """Records the method, and if it runs on early data."""
    seen = [scope["method"], "uringcore.early_data" in scope["extensions"]]
    EVENTS.append((scope["path"].split("/", 2)[2], seen))
    message = await receive()
    while message.get("more_body"):
        message = await receive()
    early = [value.decode() for name, value in scope["headers"] if name == b"early-data"]
    await answer(send, [*seen, early])


async def flood(scope, receive, send):
    """Sends a number of bytes, in parts; a `priority` header with the query's text."""
    size = int(scope["path"].split("/")[2])
    headers = [(b"priority", scope["query_string"])] if scope["query_string"] else []
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    part = bytes(64 * 1024)
    while size > 0:
        await send({"type": "http.response.body", "body": part[:size], "more_body": True})
        size -= len(part)
    await send({"type": "http.response.body", "body": b""})


# Files


async def path_send(scope, receive, send):
    """Sends the file that the query names, with its length unless the path excludes it."""
    path = scope["query_string"].decode()
    headers = []
    if not scope["path"].endswith("/unannounced") and os.path.exists(path):
        headers = [(b"content-length", str(os.path.getsize(path)).encode())]
    trailers = scope["path"].endswith("/trailers")
    start = {"type": "http.response.start", "status": 200, "headers": headers}
    await send({**start, "trailers": trailers})
    if scope["path"].endswith("/cut"):
        os.truncate(path, os.path.getsize(path) // 2)
    await send({"type": "http.response.pathsend", "path": path})
    if trailers:
        fields = [(b"x-checksum", b"42")]
        await send({"type": "http.response.trailers", "headers": fields})


async def shrinking_file(scope, receive, send):
    """Truncates a file while most of it is still to be sent: its response waits for its client."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "shrinking"
        path.write_bytes(bytes(16 << 20))
        headers = [(b"content-length", b"%d" % (16 << 20))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        sending = asyncio.ensure_future(send({"type": "http.response.pathsend", "path": str(path)}))
        await released(scope).wait()
        os.truncate(path, 1024)
        await sending
        EVENTS.append((scope["path"].split("/", 2)[2], "sent"))


async def zero_copy(scope, receive, send):
    """Sends three parts of a file: from its position, from an offset, and to its end."""
    path = scope["query_string"].decode()
    with open(path, "rb") as file:
        file.seek(2)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        part = {"type": "http.response.zerocopysend", "file": file}
        await send({**part, "count": 3, "more_body": True})
        await send({**part, "offset": 0, "count": 2, "more_body": True})
        await send({"type": "http.response.body", "body": b"|", "more_body": True})
        await send(part)
        EVENTS.append(("zero-copy", file.tell()))


async def file_for_a_lost_client(scope, receive, send):
    """Sends the start of a response and, after a time in which its client ends the connection, a file.
    Meanwhile SIGPIPE has its default action.
    """
    path = scope["query_string"].decode()
    length = b"%d" % (1 + os.path.getsize(path))
    headers = [(b"content-length", length)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"a", "more_body": True})
    await asyncio.sleep(0.05)
    before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        # The event loop does not see the end of the connection before the file is sent.
        time.sleep(0.3)
        with open(path, "rb") as file:
            await send({"type": "http.response.zerocopysend", "file": file})
    finally:
        signal.signal(signal.SIGPIPE, before)


async def debug(scope, receive, send):
    if "http.response.debug" in scope["extensions"]:
        await send({"type": "http.response.debug", "info": {"template": "a.html"}})
    await answer(send, b"debugged")


async def counted_file(scope, receive, send):
    """Sends the file that the query names; counts the reads on a thread."""
    path = scope["query_string"].decode()
    loop = asyncio.get_running_loop()
    asked, ask = [], loop.run_in_executor

    def counting(executor, call, *args):
        asked.append(call)
        return ask(executor, call, *args)

    loop.run_in_executor = counting
    try:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.pathsend", "path": path})
    finally:
        del loop.run_in_executor
    EVENTS.append(("counted", len(asked)))


# Datagrams


async def datagrams(scope, receive, send):
    """Echoes each datagram, prefixed with its length; a datagram may mark itself as the last."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while (message := await receive())["type"] == "http.datagram.receive":
        if message["data"] == b"scope":
            shown = json.dumps(scope["extensions"]["http.datagram"]).encode()
            await send({"type": "http.datagram.send", "data": shown})
        elif message["data"] == b"last":
            break
        else:
            head = b"%d:" % len(message["data"])
            await send({"type": "http.datagram.send", "data": head + message["data"]})
    await send({"type": "http.response.body", "body": b""})


async def many_datagrams(scope, receive, send):
    """Sends and receives datagrams without a pause, and then the number that it has received."""
    count, room = int(scope["path"].split("/")[2]), 0
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for number in range(count):
        await send({"type": "http.datagram.send", "data": b"%08d" % number * 100})
    await released(scope).wait()
    while True:
        message = await receive()
        if message["type"] != "http.datagram.receive":
            break
        if message["data"] == b"last":
            await send({"type": "http.datagram.send", "data": b"%d" % room})
            break
        room += len(message["data"])
    await send({"type": "http.response.body", "body": b""})


async def plain_datagram(scope, receive, send):
    """Answers a request without datagrams with a datagram."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    try:
        await send({"type": "http.datagram.send", "data": b""})
    except RuntimeError as exc:
        await send({"type": "http.response.body", "body": str(exc).encode()})


ROUTES = {
    "datagrams": datagrams,
    "many-datagrams": many_datagrams,
    "plain-datagram": plain_datagram,
    "scope": show_scope,
    "events": events,
    "release": release,
    "method": method,
    "flood": flood,
    "path": path_send,
    "shrinking": shrinking_file,
    "counted": counted_file,
    "zero-copy": zero_copy,
    "lost-client": file_for_a_lost_client,
    "debug": debug,
}

# WebSocket: the rest of the path is the name of the record in /events.


async def until_disconnected(scope, receive):
    name = scope["path"].split("/", 2)[2]
    while True:
        message = await receive()
        EVENTS.append((name, seen(message)))
        if message["type"] == "websocket.disconnect":
            return
        yield message


def seen(message):
    if message["type"] == "websocket.disconnect":
        return ["disconnect", message["code"], message.get("reason") or ""]
    if message["type"] == "websocket.connect":
        return ["connect"]
    text, data = message.get("text"), message.get("bytes")
    value = text if text is not None else data.decode("latin-1")
    return ["text" if text is not None else "bytes", len(value), value[:20]]


async def echo(scope, receive, send):
    async for message in until_disconnected(scope, receive):
        if message["type"] == "websocket.connect":
            await send({"type": "websocket.accept", "headers": [(b"X-Mine", b"yes")]})
        elif message.get("text") is not None:
            await send({"type": "websocket.send", "text": message["text"]})
        else:
            await send({"type": "websocket.send", "bytes": message["bytes"]})


async def sizes(scope, receive, send):
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": str(len(message["bytes"]))})


async def choose(scope, receive, send):
    await receive()
    await send({"type": "websocket.accept", "subprotocol": scope["subprotocols"][-1]})
    await send({"type": "websocket.send", "text": ",".join(scope["subprotocols"])})
    await send({"type": "websocket.close"})


async def show_socket(scope, receive, send):
    await receive()
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.send", "text": describe(scope)})
    await send({"type": "websocket.close", "code": 4001, "reason": "shown"})
    async for _ in until_disconnected(scope, receive):
        pass


async def deny(scope, receive, send):
    await receive()
    await send({"type": "websocket.close", "code": 4000})
    async for _ in until_disconnected(scope, receive):
        pass


async def deny_with_response(scope, receive, send):
    await receive()
    headers = [(b"content-type", b"text/plain"), (b"x-why", b"because")]
    await send({"type": "websocket.http.response.start", "status": 401, "headers": headers})
    body = {"type": "websocket.http.response.body"}
    await send({**body, "body": b"who are ", "more_body": True})
    await send({**body, "body": b"you?"})
    async for _ in until_disconnected(scope, receive):
        pass


async def returns_at_once(scope, receive, send):
    await receive()


async def returns_open(scope, receive, send):
    await receive()
    await send({"type": "websocket.accept"})


async def raises(scope, receive, send):
    raise RuntimeError("the application's own fault")


async def raises_open(scope, receive, send):
    await receive()
    await send({"type": "websocket.accept"})
    raise RuntimeError("the application's own fault, later")


async def sends_for_ever(scope, receive, send):
    """Sends until its client has disconnected; records the event."""
    await receive()
    await send({"type": "websocket.accept"})
    name = scope["path"].split("/", 2)[2]
    try:
        while True:
            await send({"type": "websocket.send", "bytes": bytes(10_000)})
            await asyncio.sleep(0)
    except OSError as exc:
        EVENTS.append((name, "told"))
        GONE.append(exc)
        raise exc


async def reads_late(scope, receive, send):
    """Reads nothing before /release; then everything to the end."""
    await receive()
    await send({"type": "websocket.accept"})
    await released(scope).wait()
    async for message in until_disconnected(scope, receive):
        EVENTS.append((scope["path"].split("/", 2)[2], message["type"]))


async def raises_anothers(scope, receive, send):
    """Raises the error of `send` on another WebSocket whose client has disconnected: a broadcast
    without an except clause.
    """
    await receive()
    await send({"type": "websocket.accept"})
    await released(scope).wait()
    raise GONE[-1]


async def accepts_late(scope, receive, send):
    """Waits for the client's disconnect before it accepts, until /release."""
    await receive()
    listening = asyncio.ensure_future(receive())
    await released(scope).wait()
    await send({"type": "websocket.accept"})
    message = await listening
    EVENTS.append((scope["path"].split("/", 2)[2], seen(message)))
    async for _ in until_disconnected(scope, receive):
        pass


async def wrong_order(scope, receive, send):
    """Sends messages that are invalid in their state."""
    errors = []

    async def attempt(message):
        try:
            await send(message)
        except (RuntimeError, ValueError) as exc:
            errors.append(str(exc))

    await receive()
    await attempt({"type": "websocket.send", "text": "too early"})
    await send({"type": "websocket.accept"})
    await attempt({"type": "websocket.accept"})
    await attempt({"type": "websocket.close", "code": 1005})
    await send({"type": "websocket.send", "text": json.dumps(errors)})
    await send({"type": "websocket.close"})
    await attempt({"type": "websocket.send", "text": "too late"})
    EVENTS.append((scope["path"].split("/", 2)[2], len(errors)))


SOCKETS = {
    "sizes": sizes,
    "echo": echo,
    "choose": choose,
    "scope": show_socket,
    "deny": deny,
    "deny-with-response": deny_with_response,
    "returns-at-once": returns_at_once,
    "returns-open": returns_open,
    "raises": raises,
    "raises-open": raises_open,
    "sends-for-ever": sends_for_ever,
    "reads-late": reads_late,
    "raises-anothers": raises_anothers,
    "accepts-late": accepts_late,
    "wrong-order": wrong_order,
}
