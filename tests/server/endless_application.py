"""An application with an endless response, and the way in which sse-starlette 2 detects the server's stop.

It replaces uvicorn's `Server.handle_exit`.
"""

import asyncio

from uvicorn.server import Server

from tests.server.application import lifespan


class AppStatus:
    should_exit = False
    original_handler = Server.handle_exit

    @staticmethod
    def handle_exit(*arguments, **options):
        AppStatus.should_exit = True
        AppStatus.original_handler(*arguments, **options)


Server.handle_exit = AppStatus.handle_exit


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await lifespan(scope, receive, send)
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while not AppStatus.should_exit:
        await send({"type": "http.response.body", "body": b"event\n", "more_body": True})
        await asyncio.sleep(0.05)
    await send({"type": "http.response.body", "body": b"the end"})
