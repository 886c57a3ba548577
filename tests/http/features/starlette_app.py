"""Starlette and FastAPI with files and WebSockets, in their users' style."""

from fastapi import Depends, FastAPI, Header, WebSocket, WebSocketException
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse
from starlette.websockets import WebSocketDisconnect

api = FastAPI()
SENT = []
ENDED = []


class Watched:
    """Records the kinds of the messages of each file."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        if scope.get("path") != "/file":
            await self.app(scope, receive, send)
            return
        SENT.clear()

        async def noting(message):
            SENT.append(message["type"].rpartition(".")[2])
            await send(message)

        await self.app(scope, receive, noting)


app = Watched(api)


@api.api_route("/file", methods=["GET", "HEAD"])
async def file(request: Request):
    return FileResponse(request.url.query, media_type="application/octet-stream")


@api.get("/sent")
async def sent():
    return PlainTextResponse(",".join(SENT))


@api.get("/ended")
async def ended():
    return ENDED


@api.websocket("/text")
async def text(socket: WebSocket):
    await socket.accept()
    try:
        while True:
            await socket.send_text(f"you said: {await socket.receive_text()}")
    except WebSocketDisconnect as exc:
        ENDED.append([exc.code, exc.reason])


@api.websocket("/json")
async def json(socket: WebSocket):
    await socket.accept(headers=[(b"x-app", b"yes")])
    async for message in socket.iter_json():
        await socket.send_json({"got": message}, mode="binary")


@api.websocket("/chat")
async def chat(socket: WebSocket):
    await socket.accept(subprotocol="chat.v2")
    await socket.send_text(",".join(socket.scope["subprotocols"]))
    await socket.close(3000, "that is all")


async def token(x_token: str | None = Header(default=None)):
    if x_token != "secret":
        raise WebSocketException(code=1008, reason="no token")
    return x_token


@api.websocket("/guarded/{room}")
async def guarded(socket: WebSocket, room: int, x_token: str = Depends(token)):
    await socket.accept()
    await socket.send_text(f"{room} {x_token}")
    await socket.close()


@api.websocket("/denied")
async def denied(socket: WebSocket):
    response = PlainTextResponse("not you", status_code=418, headers={"x-why": "tea"})
    await socket.send_denial_response(response)


@api.websocket("/guarded-later")
async def guarded_later(socket: WebSocket):
    await socket.accept()
    raise WebSocketException(code=1008, reason="thought again")
