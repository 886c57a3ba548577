"""The ASGI application for the tests of httpx's own features."""

from __future__ import annotations

import base64
import hashlib
import json


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while (message := await receive())["type"] != "lifespan.shutdown":
            await send({"type": f"{message['type']}.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    headers = {name.decode(): value.decode() for name, value in scope["headers"]}
    name, _, argument = scope["path"].strip("/").partition("/")
    status, fields, content = await globals()[f"do_{name}"](argument, headers, scope, receive)
    fields = [(key.encode(), value.encode()) for key, value in fields]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    for part in content:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def body(receive):
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


async def do_version(argument, headers, scope, receive):
    shown = {"version": scope["http_version"], "headers": headers, "method": scope["method"]}
    return 200, [], [json.dumps(shown).encode()]


async def do_digest(argument, headers, scope, receive):
    return 200, [], [hashlib.sha256(await body(receive)).hexdigest().encode()]


async def do_parts(argument, headers, scope, receive):
    return 200, [], [b"%d " % number * 1000 for number in range(int(argument))]


async def do_redirect(argument, headers, scope, receive):
    await body(receive)
    left = int(argument)
    target = f"/redirect/{left - 1}" if left else "/version"
    return 302, [("location", target)], []


async def do_again(argument, headers, scope, receive):
    """Redirects to another path, with method and body unchanged."""
    return int(argument), [("location", "/digest")], []


async def do_set(argument, headers, scope, receive):
    return 200, [("set-cookie", f"crumb={argument}; Path=/")], [b"baked"]


async def do_cookie(argument, headers, scope, receive):
    return 200, [], [headers.get("cookie", "").encode()]


async def do_private(argument, headers, scope, receive):
    expected = "Basic " + base64.b64encode(b"user:secret").decode()
    if headers.get("authorization") == expected:
        return 200, [], [b"welcome"]
    return 401, [("www-authenticate", 'Basic realm="private"')], [b"who are you?"]


async def do_challenge(argument, headers, scope, receive):
    """Digest authentication: a client that answers the challenge gets access, and sends the body
    again.
    """
    content = await body(receive)
    if headers.get("authorization", "").startswith("Digest "):
        return 200, [], [content]
    return 401, [("www-authenticate", 'Digest realm="r", nonce="n", qop="auth"')], []


async def do_range(argument, headers, scope, receive):
    """Sends a file of `argument` bytes that can be resumed."""
    content = bytes(number % 251 for number in range(int(argument)))
    fields = [("etag", '"one"')]
    given = headers.get("range")
    if given is None or headers.get("if-range", '"one"') != '"one"':
        return 200, [*fields, ("content-length", str(len(content)))], [content]
    start = int(given.removeprefix("bytes=").rstrip("-"))
    if start >= len(content):
        return 416, [("content-range", f"bytes */{len(content)}")], []
    shown = f"bytes {start}-{len(content) - 1}/{len(content)}"
    return 206, [*fields, ("content-range", shown)], [content[start:]]
