"""An application that blocks the event loop between the body and the end of its response.

It does so until the client removes a file, so the loop does not see a reset before the response ends.
"""

import asyncio
import time
from pathlib import Path
from urllib.parse import unquote


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        return
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [(b"content-length", b"5")],
        }
    )
    await send({"type": "http.response.body", "body": b"hello", "more_body": True})
    # The body leaves before the wait.
    await asyncio.sleep(0.05)
    busy = Path(unquote(scope["query_string"].decode()))
    busy.touch()
    while busy.exists():
        time.sleep(0.01)
    await send({"type": "http.response.body", "body": b""})
