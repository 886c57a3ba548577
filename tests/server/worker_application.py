"""An ASGI application that reports its process, and a client that requests it.

`CROWD_GATE` in the environment names a file: while the file exists, the application raises at its import. If
its content is "hang", the application's start-up never ends instead.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time

from uringcore.asyncio import QuicConnectionProtocol
from uringcore.asyncio.client import connect as quic_connect
from uringcore.h3.connection import H3Connection
from uringcore.h3.events import DataReceived, GoAwayReceived, HeadersReceived
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.events import ConnectionTerminated, HandshakeCompleted, ProtocolNegotiated

GATE = os.environ.get("CROWD_GATE", "")
HANGS = False
if os.path.exists(GATE):
    with open(GATE) as gate:
        HANGS = "hang" in gate.read()
    if not HANGS:
        raise RuntimeError("the gate is closed")


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        if HANGS:
            print("LIFESPAN hangs in", os.getpid(), file=sys.stderr, flush=True)
            await asyncio.Event().wait()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        print("LIFESPAN ends in", os.getpid(), file=sys.stderr, flush=True)
        await send({"type": "lifespan.shutdown.complete"})
        return
    name, _, rest = scope["path"][1:].partition("/")
    answer = [os.getpid(), os.getppid()]
    if name == "sleep":
        await asyncio.sleep(float(rest))
    elif name == "block":
        print("BLOCKED", file=sys.stderr, flush=True)
        time.sleep(600)
    elif name == "inherited":
        answer = sockets_of_a_child()
    elif name == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif name == "exit":
        os._exit(int(rest))
    elif name == "orphan":
        # Its parent has ended, so the sleeping process is an orphan.
        middle = subprocess.Popen(["sh", "-c", "sleep 600 &"])
        middle.wait()
    body = json.dumps(answer).encode()
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [(b"content-length", b"%d" % len(body))],
        }
    )
    await send({"type": "http.response.body", "body": body})


def sockets_of_a_child():
    """Returns the sockets of a child process that inherits all inheritable descriptors."""
    listing = subprocess.run(
        ["ls", "-l", "/proc/self/fd"],
        close_fds=False,
        stdout=subprocess.PIPE,
        check=True,
        timeout=100,
    )
    return [line for line in listing.stdout.decode().splitlines() if "socket:" in line]


class Asking(QuicConnectionProtocol):
    """An HTTP/3 client that makes one GET after the other and records the server's events."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http = None
        self.resumed = None
        self.goaway = False
        self.closed = None
        self._answers = {}

    def quic_event_received(self, event):
        if isinstance(event, ProtocolNegotiated):
            self.http = H3Connection(self._quic)
        elif isinstance(event, HandshakeCompleted):
            self.resumed = event.session_resumed
        elif isinstance(event, ConnectionTerminated):
            self.closed = event
            for answer, _ in self._answers.values():
                if not answer.done():
                    answer.set_exception(ConnectionError(str(event)))
        elif self.http is not None:
            for found in self.http.handle_event(event):
                self._http_event(found)

    def _http_event(self, event):
        if isinstance(event, GoAwayReceived):
            self.goaway = True
        elif isinstance(event, (HeadersReceived, DataReceived)):
            answer, content = self._answers[event.stream_id]
            if isinstance(event, DataReceived):
                content.append(event.data)
            if event.stream_ended:
                answer.set_result(b"".join(content))

    async def get(self, path):
        """Returns the application's response: the ids of its process and of the parent."""
        stream_id = self._quic.get_next_available_stream_id()
        answer = self._answers[stream_id] = (self._loop.create_future(), [])
        fields = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", b"localhost")]
        self.http.send_headers(stream_id, [*fields, (b":path", path.encode())], end_stream=True)
        self.transmit()
        return json.loads(await asyncio.wait_for(answer[0], 60))


def ask(server, **handlers):
    """Returns a connection to a server, as a context manager."""
    fields = {
        key: handlers.pop(key)
        for key in ("session_ticket", "token", "quic_logger")
        if key in handlers
    }
    configuration = QuicConfiguration(
        is_client=True, alpn_protocols=["h3"], server_name="localhost", **fields
    )
    configuration.load_verify_locations(server.certificate)
    return quic_connect(
        "127.0.0.1", server.port, configuration=configuration, create_protocol=Asking, **handlers
    )


async def ask_once(server, path="/"):
    async with ask(server) as client:
        return await client.get(path)


async def eventually(condition, what, seconds=60):
    """Returns the result of `condition()`, a coroutine function, once it is true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = await condition()
        if found:
            return found
        await asyncio.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {what}")


async def processes(server, count):
    """Connects until this many processes have answered; returns them."""
    found = set()

    async def all_seen():
        found.add((await ask_once(server))[0])
        return len(found) >= count

    await eventually(all_seen, f"{count} processes, not {found}")
    return found
