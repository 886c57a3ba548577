"""An HTTP/3 server on aioquic's layers; each path does one thing, valid or invalid."""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time

from aioquic.asyncio import QuicConnectionProtocol, serve
from aioquic.buffer import encode_uint_var
from aioquic.h3.connection import H3Connection, Setting, encode_frame
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import HandshakeCompleted, ProtocolNegotiated
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, TextMessage

from tests.loop.harness import rounds

BODY = hashlib.shake_128(b"body").digest(1 << 20)

HEADERS = 0x1
GOAWAY = 0x7
H3_INTERNAL_ERROR = 0x102
H3_REQUEST_REJECTED = 0x10B


class Plain(H3Connection):
    """A server without extended CONNECT."""

    def _get_local_settings(self):
        settings = super()._get_local_settings()
        del settings[Setting.ENABLE_CONNECT_PROTOCOL]
        return settings


class Answers(QuicConnectionProtocol):
    """One connection. ``peer`` is set by :class:`Peer`."""

    peer: Peer

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http = None
        self.requests = {}
        self.sockets = {}
        self.number = len(self.peer.connections)
        self.peer.connections.append(self)

    def quic_event_received(self, event):
        if isinstance(event, ProtocolNegotiated):
            if self.peer.is_mute:
                return
            self.http = H3Connection(self._quic) if self.peer.has_websockets else Plain(self._quic)
        if self.peer.leaves_at_once and isinstance(event, HandshakeCompleted):
            self.close(error_code=H3_INTERNAL_ERROR, reason_phrase="enough")
        if self.http is None:
            return
        for http_event in self.http.handle_event(event):
            if getattr(http_event, "stream_id", None) in self.sockets:
                self.sockets[http_event.stream_id].received(http_event)
                continue
            if isinstance(http_event, HeadersReceived):
                self.begun(http_event)
            elif isinstance(http_event, DataReceived):
                self.requests[http_event.stream_id][b"content"] += http_event.data
            if getattr(http_event, "stream_ended", False):
                self.ended(http_event.stream_id)
        self.transmit()

    def begun(self, event):
        if (b":protocol", b"websocket") in event.headers:
            self.sockets[event.stream_id] = Socket(self, event)
        elif event.stream_id not in self.requests:
            request = dict(event.headers) | {b"content": b""}
            request["early"] = not self._quic._handshake_complete
            self.requests[event.stream_id] = request
            name = request[b":path"].decode().strip("/").replace("-", "_")
            getattr(self, f"begin_{name}", lambda *request: None)(event.stream_id, request)

    def ended(self, stream_id):
        request = self.requests[stream_id]
        path = request[b":path"].decode()
        self.peer.log.append((self.number, path, request["early"]))
        name = path.strip("/").replace("-", "_").replace("/", "_") or "root"
        getattr(self, f"do_{name}")(stream_id, request)

    def answer(self, stream_id, content=b"", status=200, fields=()):
        headers = [(b":status", b"%d" % status), *fields]
        self.http.send_headers(stream_id, headers, end_stream=not content)
        if content:
            self.http.send_data(stream_id, content, True)

    def interim(self, stream_id, headers):
        """Bypasses aioquic's state, in which older versions take the next frame for trailers."""
        frame = encode_frame(HEADERS, self.http._encode_headers(stream_id, headers))
        self._quic.send_stream_data(stream_id, frame)

    # Paths

    def do_root(self, stream_id, request):
        self.answer(stream_id, b"hello")

    def do_empty(self, stream_id, request):
        self.answer(stream_id, fields=[(b"x-path", request[b":path"])])

    def do_echo(self, stream_id, request):
        self.answer(stream_id, request[b"content"])

    def do_authority(self, stream_id, request):
        self.answer(stream_id, request[b":authority"])

    def do_repeat(self, stream_id, request):
        """The request itself: method, target, fields and content."""
        asked = [b":method", b":path", *sorted(name for name in list(request) if name[:2] == b"x-")]
        self.answer(stream_id, b"|".join([*(request[name] for name in asked), request[b"content"]]))

    def do_api_repeat(self, stream_id, request):
        self.do_repeat(stream_id, request)

    def do_nothing(self, stream_id, request):
        self.answer(stream_id)

    def do_body(self, stream_id, request):
        self.http.send_headers(stream_id, [(b":status", b"200")])
        self.http.send_data(stream_id, BODY, False)
        self.http.send_headers(stream_id, [(b"x-trailer", b"yes")], end_stream=True)

    def do_hints(self, stream_id, request):
        self.interim(stream_id, [(b":status", b"103"), (b"link", b"</x>")])
        self.answer(stream_id, b"hinted")

    def do_endless_hints(self, stream_id, request):
        for _ in range(100):
            self.interim(stream_id, [(b":status", b"103")])

    def do_silent(self, stream_id, request):
        pass

    def do_stalls(self, stream_id, request):
        self.http.send_headers(stream_id, [(b":status", b"200")])
        self.http.send_data(stream_id, b"some", False)

    def do_gate(self, stream_id, request):
        """Responds when the test releases it."""
        self.peer.gated.append((self, stream_id))

    def do_early(self, stream_id, request):
        self.answer(stream_id, status=425 if request["early"] else 200)

    def do_origins(self, stream_id, request):
        """Sends the request's content as frames on the control stream."""
        self._quic.send_stream_data(self.http._local_control_stream_id, request[b"content"])
        self.answer(stream_id)

    def do_misdirected(self, stream_id, request):
        self.answer(stream_id, status=421)

    # Responses before the request is complete

    def begin_enough(self, stream_id, request):
        """Stops the request with the code that it names, and responds."""
        self._quic.stop_stream(stream_id, int(request[b"x-code"], 16))
        self.answer(stream_id, b"enough")

    def do_enough(self, stream_id, request):
        """Already answered."""

    def begin_stops(self, stream_id, request):
        """Stops the request, and sends nothing else."""
        self._quic.stop_stream(stream_id, int(request[b"x-code"], 16))

    def do_stops(self, stream_id, request):
        """Already stopped."""

    # Errors

    def do_reset(self, stream_id, request):
        self._quic.reset_stream(stream_id, H3_INTERNAL_ERROR)

    def do_upper_case(self, stream_id, request):
        """A field name that makes the message malformed (RFC 9114 section 4.2)."""
        self.answer(stream_id, b"body", fields=[(b"X-Upper", b"yes")])

    def do_too_short(self, stream_id, request):
        self.answer(stream_id, b"four", fields=[(b"content-length", b"5")])

    def do_no_status(self, stream_id, request):
        self.http.send_headers(stream_id, [(b"x-status", b"200")], end_stream=True)

    def do_no_response(self, stream_id, request):
        self._quic.send_stream_data(stream_id, b"", end_stream=True)

    def do_data_first(self, stream_id, request):
        """A connection error: H3_FRAME_UNEXPECTED (RFC 9114 section 4.1)."""
        self._quic.send_stream_data(stream_id, encode_frame(0, b"data"), end_stream=True)

    def do_rejected(self, stream_id, request):
        self._quic.reset_stream(stream_id, H3_REQUEST_REJECTED)

    def do_rejected_once(self, stream_id, request):
        if self.number:
            self.do_echo(stream_id, request)
        else:
            self._quic.reset_stream(stream_id, H3_REQUEST_REJECTED)

    def do_goaway_once(self, stream_id, request):
        """The first connection sends GOAWAY without having processed the request."""
        if self.number:
            self.do_echo(stream_id, request)
        else:
            frame = encode_frame(GOAWAY, encode_uint_var(stream_id))
            self._quic.send_stream_data(self.http._local_control_stream_id, frame)

    def do_closed_once(self, stream_id, request):
        if self.number:
            self.do_echo(stream_id, request)
        else:
            self.close(error_code=H3_INTERNAL_ERROR, reason_phrase="enough")


class Socket:
    """A WebSocket: it echoes messages, except for a few commands."""

    def __init__(self, connection, event):
        self.stream_id = event.stream_id
        self.http = connection.http
        self.quic = connection._quic
        self.frames = Connection(ConnectionType.SERVER)
        headers = dict(event.headers)
        if headers[b":path"] == b"/unanswered":
            return
        if headers[b":path"] == b"/refused":
            self.http.send_headers(event.stream_id, [(b":status", b"403")], end_stream=True)
            return
        fields = [(b":status", b"200")]
        if b"sec-websocket-protocol" in headers:
            fields.append((b"sec-websocket-protocol", b"second"))
        self.http.send_headers(event.stream_id, fields)

    def received(self, event):
        if isinstance(event, DataReceived) and event.data:
            self.frames.receive_data(event.data)
            for frame in self.frames.events():
                self.answer(frame)

    def send(self, event, *, end=False):
        self.http.send_data(self.stream_id, self.frames.send(event), end)

    def answer(self, event):
        if isinstance(event, Ping):
            self.send(event.response())
        elif isinstance(event, CloseConnection):
            self.send(event.response(), end=True)
        elif isinstance(event, TextMessage) and event.data in SAYINGS:
            SAYINGS[event.data](self)
        elif isinstance(event, (TextMessage, BytesMessage)):
            self.send(type(event)(event.data, message_finished=event.message_finished))

    def huge(self):
        """Sends a message that is too large, and reads no further."""
        self.quic.stop_stream(self.stream_id, 0x100)
        self.raw(b"\x82\x7f" + (1 << 40).to_bytes(8, "big"))

    def full(self):
        """Sends a last message and a Close frame, and reads no further."""
        self.quic.stop_stream(self.stream_id, 0x100)
        self.send(TextMessage("last"))
        self.send(CloseConnection(1009, "too big"), end=True)

    def raw(self, data, end=False):
        self.http.send_data(self.stream_id, data, end)


SAYINGS = {
    "leave": lambda socket: socket.send(CloseConnection(1001, "bye")),
    "end": lambda socket: socket.raw(b"", end=True),
    "reset": lambda socket: socket.quic.reset_stream(socket.stream_id, H3_INTERNAL_ERROR),
    "ping": lambda socket: socket.send(Ping(b"are you there?")),
    "reserved": lambda socket: socket.raw(b"\xf1\x00"),
    "full": lambda socket: socket.full(),
    "huge": lambda socket: socket.huge(),
    "large": lambda socket: socket.raw(b"\x82\x7f" + (1 << 40).to_bytes(8, "big")),
    # A ping between the frames of a message in three frames.
    "pieces": lambda socket: socket.raw(b"\x01\x01a\x89\x00\x00\x01b\x80\x01c"),
}


class Peer:
    """The server on a loop of its own, in a thread."""

    def __init__(self, certificate, alpn="h3", port=0):
        self.certificate, key = certificate
        self.connections = []
        self.log = []
        """The requests: number of the connection, path, and true if the request came as 0-RTT data."""
        self.gated = []
        self.has_websockets = True
        self.is_mute = False
        """If true, the server completes handshakes and sends no HTTP/3, not even its SETTINGS."""
        self.leaves_at_once = False
        """If true, the server closes connections when their handshake is complete."""
        self._tickets = {}
        self._configuration = QuicConfiguration(is_client=False, alpn_protocols=[alpn])
        self._configuration.load_cert_chain(self.certificate, key)
        self._loop = asyncio.new_event_loop()
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started, port), daemon=True)
        self._thread.start()
        assert started.wait(30)

    @property
    def url(self):
        return f"https://localhost:{self.port}"

    @property
    def paths(self):
        """Returns the numbers of the connections and the paths of the requests."""
        return [(number, path) for number, path, _ in self.log]

    def release(self):
        """Responds to the requests that wait at the gate."""

        def answer():
            gated, self.gated = self.gated, []
            for connection, stream_id in gated:
                connection.answer(stream_id, b"released")
                connection.transmit()

        self._loop.call_soon_threadsafe(answer)

    def close_connections(self):
        """Closes every connection."""

        def close():
            for connection in self.connections:
                connection.close()

        self._loop.call_soon_threadsafe(close)

    def speak(self):
        """Sends every client a packet."""
        done = threading.Event()

        def speak():
            for number, connection in enumerate(self.connections):
                connection._quic.send_ping(number)
                connection.transmit()
            done.set()

        self._loop.call_soon_threadsafe(speak)
        assert done.wait(30)

    def vanish(self):
        """Stops without a packet, as if it had been killed."""

        def vanish():
            self._server._transport.abort()
            self._server._protocols.clear()
            self._loop.stop()

        self._loop.call_soon_threadsafe(vanish)
        self._thread.join(30)

    async def wait_gated(self, count):
        """Waits until `count` requests are at the gate."""
        await until(lambda: len(self.gated) == count)

    def stop(self):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)

    def _run(self, started, port):
        async def start():
            kind = type("Answers", (Answers,), {"peer": self})
            self._server = await serve(
                "127.0.0.1",
                port,
                configuration=self._configuration,
                create_protocol=kind,
                session_ticket_fetcher=lambda ticket: self._tickets.pop(ticket, None),
                session_ticket_handler=lambda ticket: self._tickets.update({ticket.ticket: ticket}),
            )
            self.port = self._server._transport.get_extra_info("sockname")[1]
            started.set()

        self._loop.run_until_complete(start())
        self._loop.run_forever()
        self._server.close()
        self._loop.run_until_complete(rounds())
        self._loop.close()


async def until(condition, seconds=30):
    """Waits until a condition is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true in time"
        await asyncio.sleep(0.01)
