"""A gRPC service as an ASGI application: a message follows its length, trailers have the status."""

from __future__ import annotations


async def messages(receive):
    """Yields the messages of a request, as they arrive."""
    received, more = b"", True
    while more:
        part = await receive()
        received += part.get("body", b"")
        more = part.get("more_body", False)
        while len(received) >= 5 and len(received) >= 5 + (
            size := int.from_bytes(received[1:5], "big")
        ):
            yield received[5 : 5 + size]
            received = received[5 + size :]


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while (message := await receive())["type"] != "lifespan.shutdown":
            await send({"type": f"{message['type']}.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return

    async def reply(content):
        framed = b"\0" + len(content).to_bytes(4, "big") + content
        await send({"type": "http.response.body", "body": framed, "more_body": True})

    fields = [(b"content-type", b"application/grpc")]
    start = {"type": "http.response.start", "status": 200, "headers": fields}
    await send({**start, "trailers": True})
    trailers = [(b"grpc-status", b"0")]
    if scope["path"] == "/test.Service/Echo":
        async for message in messages(receive):
            await reply(message)
    elif scope["path"] == "/test.Service/Count":
        async for message in messages(receive):
            for number in range(int(message)):
                await reply(b"%d" % number)
    else:
        trailers = [(b"grpc-status", b"12"), (b"grpc-message", b"unknown method")]
    await send({"type": "http.response.body", "body": b""})
    await send({"type": "http.response.trailers", "headers": trailers})
