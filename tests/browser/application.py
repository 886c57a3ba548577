"""The ASGI application with the pages of the HTTP/3 browser tests: it reports the properties of a
request.

The streaming test needs no clock: each side sends a part only after the other has confirmed the
last one.
"""

import asyncio
import hashlib
import json
from collections import defaultdict

PAGE = """<!doctype html>
<meta charset="utf-8">
<title>page</title>
<link rel="icon" href="data:,">
<script>const told = %s;</script>
<script src="/page.js"></script>
"""
SCRIPT = b"""
"use strict";

async function get(path) {
  return await (await fetch(path)).text();
}

// Reads a response part by part, and asks for the next one when a part is there.
async function down(name, count) {
  const response = await fetch(`/down/${name}/${count}`);
  const reader = response.body.getReader();
  const parts = [];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) {
      return parts;
    }
    parts.push(new TextDecoder().decode(value));
    await get(`/release/${name}`);
  }
}

// Sends a request part by part, each when the last one has arrived.
async function up(name, count) {
  let sent = 0;
  const body = new ReadableStream({
    async pull(controller) {
      if (sent > 0) {
        await get(`/arrived/${name}/${sent}`);
      }
      if (sent === count) {
        controller.close();
      } else {
        controller.enqueue(new TextEncoder().encode("."));
        sent++;
      }
    },
  }, { highWaterMark: 0 });
  return await (await fetch(`/up/${name}`, { method: "POST", body, duplex: "half" })).json();
}

function streamsRequests() {
  let asked = false;
  const request = new Request("/", {
    method: "POST", body: new ReadableStream(), get duplex() { asked = true; return "half"; },
  });
  return asked && !request.headers.has("content-type");
}

async function upload(size) {
  const content = new Uint8Array(size).map((_, index) => index * 7 + (index >> 8));
  const told = await (await fetch("/up/upload", { method: "POST", body: content })).json();
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", content));
  const hex = [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return told.bytes === size && told.sha256 === hex;
}

async function download(size) {
  const content = new Uint8Array(await (await fetch(`/content/${size}`)).arrayBuffer());
  return content.length === size && content.every((byte, index) => byte === index % 251);
}

// The server's view of requests that are made at once.
async function many(count) {
  const paths = Array.from({ length: count }, () => "/request");
  return (await Promise.all(paths.map(get))).map((text) => JSON.parse(text).version);
}

// Server-sent events, each after the last one was confirmed.
async function events(name, count) {
  const source = new EventSource(`/events/${name}/${count}`);
  const received = [];
  await new Promise((resolve, reject) => {
    source.onerror = () => reject(new Error(`after ${received.length} events`));
    source.onmessage = async ({ data }) => {
      received.push(data);
      if (received.length === count) {
        resolve();
      } else {
        await get(`/release/${name}`);
      }
    };
  });
  source.close();
  await get(`/release/${name}`);
  return received;
}

// What comes back on a WebSocket; the first message tells by which protocol it was opened.
async function socket(messages) {
  const socket = new WebSocket(`wss://${location.host}/socket`);
  const received = [];
  const closed = new Promise((resolve) => { socket.addEventListener("close", resolve); });
  socket.onopen = () => messages.forEach((message) => socket.send(message));
  await new Promise((resolve) => {
    socket.onmessage = ({ data }) => {
      received.push(data);
      if (received.length === messages.length + 1) {
        resolve();
      }
    };
    socket.addEventListener("close", resolve);
  });
  socket.close(3001, "done");
  const { code, reason, wasClean } = await closed;
  return { received, code, reason, wasClean };
}
"""
RELEASED = defaultdict(lambda: asyncio.Semaphore(0))
ARRIVED = defaultdict(int)
CHANGED = asyncio.Condition()


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
        return
    name, *rest = scope["path"].strip("/").split("/")
    await ROUTES[name](scope, receive, send, *rest)


async def lifespan(receive, send):
    while (message := await receive())["type"] != "lifespan.shutdown":
        await send({"type": f"{message['type']}.complete"})
    await send({"type": "lifespan.shutdown.complete"})


async def answer(send, content, content_type=b"text/plain"):
    headers = [(b"content-type", content_type), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})


async def page(scope, receive, send):
    await answer(send, (PAGE % told(scope)).encode(), b"text/html")


async def script(scope, receive, send):
    await answer(send, SCRIPT, b"text/javascript")


async def request(scope, receive, send):
    await answer(send, told(scope).encode())


def told(scope):
    """Returns the server's view of this request."""
    early = "uringcore.early_data" in scope.get("extensions", {})
    return json.dumps({"version": scope["http_version"], "early": early})


async def down(scope, receive, send, name, count):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for index in range(int(count)):
        part = b"part %d" % index
        await send({"type": "http.response.body", "body": part, "more_body": True})
        await RELEASED[name].acquire()
    await send({"type": "http.response.body", "body": b""})


async def events(scope, receive, send, name, count):
    headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for index in range(int(count)):
        event = b"data: event %d\n\n" % index
        await send({"type": "http.response.body", "body": event, "more_body": True})
        await RELEASED[name].acquire()
    await send({"type": "http.response.body", "body": b""})


async def release(scope, receive, send, name):
    RELEASED[name].release()
    await answer(send, b"")


async def up(scope, receive, send, name):
    digest = hashlib.sha256()
    while True:
        message = await receive()
        body = message.get("body", b"")
        digest.update(body)
        async with CHANGED:
            ARRIVED[name] += len(body)
            CHANGED.notify_all()
        if not message.get("more_body"):
            break
    told = {"bytes": ARRIVED.pop(name), "sha256": digest.hexdigest()}
    await answer(send, json.dumps({**told, "version": scope["http_version"]}).encode())


async def arrived(scope, receive, send, name, count):
    async with CHANGED:
        await CHANGED.wait_for(lambda: ARRIVED[name] >= int(count))
    await answer(send, b"")


async def content(scope, receive, send, size):
    await answer(send, bytes(index % 251 for index in range(int(size))))


async def socket(scope, receive, send):
    await receive()
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.send", "text": scope["http_version"]})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": message["text"]})


ROUTES = {
    "": page,
    "page.js": script,
    "request": request,
    "down": down,
    "events": events,
    "release": release,
    "up": up,
    "arrived": arrived,
    "content": content,
    "socket": socket,
}
