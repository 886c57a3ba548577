"""python-socketio, with long polling, the transport without WebSockets."""

import socketio

from tests.http.applications.observed_application import watched

# Pings are far apart, so that they do not appear in the compared polls.
sio = socketio.AsyncServer(async_mode="asgi", cors_allowed_origins="*", ping_interval=3600)


@sio.event
async def connect(sid, environ, auth):
    await sio.emit("welcome", {"path": environ["PATH_INFO"], "auth": auth}, to=sid)


@sio.event
async def echo(sid, data):
    await sio.emit("echoed", data, to=sid)
    return "heard"


app = watched(socketio.ASGIApp(sio))
