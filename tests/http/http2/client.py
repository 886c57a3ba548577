"""An HTTP/2 client over TCP or TLS: the h2 package, which is independent of this server, or bytes."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field

import h2.config
import h2.connection
import h2.events
import h2.settings
from h2.connection import ConnectionInputs, ConnectionState

SECONDS = 30.0
OPEN = ConnectionState.CLIENT_OPEN
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@dataclass
class Response:
    """A response as it was received."""

    status: int = 0
    fields: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    trailers: list[tuple[str, str]] = field(default_factory=list)
    interim: list[list[tuple[str, str]]] = field(default_factory=list)
    ended: bool = False
    reset: int | None = None
    """The error code with which the server has reset the stream."""

    def get(self, name: str) -> str | None:
        return dict(self.fields).get(name)


def opened(server, *, secure=False, source="127.0.0.1", protocols=("h2",)):
    """Returns a connected socket."""
    address = ("127.0.0.1", server.port)
    sock = socket.create_connection(address, SECONDS, source_address=(source, 0))
    if not secure:
        return sock
    trust = ssl.create_default_context(cafile=server.certificate)
    trust.set_alpn_protocols(list(protocols))
    try:
        return trust.wrap_socket(sock, server_hostname="localhost")
    except OSError:
        sock.close()
        raise


class Client:
    """One connection."""

    def __init__(self, server, *, takes=True, settings=None, **options):
        self.socket = opened(server, **options)
        self.scheme = "https" if options.get("secure") else "http"
        config = h2.config.H2Configuration(
            header_encoding="latin-1", validate_outbound_headers=False
        )
        self.h2 = h2.connection.H2Connection(config)
        if settings:
            self.h2.local_settings = h2.settings.Settings(client=True, initial_values=settings)
        # h2 takes every GOAWAY for the end of the connection. RFC 9113 section 6.8 lets open streams go on.
        machine = self.h2.state_machine
        goes_on = {(OPEN, ConnectionInputs.RECV_GOAWAY): (None, OPEN)}
        machine._transitions = {**machine._transitions, **goes_on}
        self.h2.initiate_connection()
        self.responses: dict[int, Response] = {}
        self.is_closed = False
        self.goaways: list[tuple[int, int]] = []
        """The last stream and the error code of each GOAWAY."""
        self.takes = takes
        """True if received content gets credit."""
        self.flush()

    def flush(self) -> None:
        self.socket.sendall(self.h2.data_to_send())

    def begin(self, path, method="GET", fields=(), *, end=True, **pseudo) -> int:
        """Sends the head of a request. Returns its stream."""
        stream_id = self.h2.get_next_available_stream_id()
        head = {
            ":method": method,
            ":scheme": self.scheme,
            ":path": path,
            ":authority": "localhost",
        }
        head.update({f":{name}": value for name, value in pseudo.items()})
        lines = [
            (name.encode("latin-1"), value.encode("latin-1"))
            for name, value in (*head.items(), *fields)
        ]
        self.h2.send_headers(stream_id, lines, end_stream=end)
        self.responses[stream_id] = Response()
        self.flush()
        return stream_id

    def send(self, stream_id: int, content: bytes, *, end=False) -> None:
        """Sends content, as the server gives credit for it, until the server resets the stream."""
        rest = memoryview(content)
        response = self.responses[stream_id]
        while rest and response.reset is None:
            size = min(self.h2.local_flow_control_window(stream_id), 16_384, len(rest))
            if size <= 0:
                assert self.more(), response
                continue
            self.h2.send_data(stream_id, bytes(rest[:size]))
            self.flush()
            rest = rest[size:]
        if end and response.reset is None:
            self.h2.end_stream(stream_id)
            self.flush()

    def ask(self, path, method="GET", fields=(), body=None, **pseudo) -> Response:
        """Sends a request, and receives its response."""
        stream_id = self.begin(path, method, fields, end=body is None, **pseudo)
        if body is not None:
            self.send(stream_id, body, end=True)
        return self.response(stream_id)

    def response(self, stream_id: int) -> Response:
        response = self.responses[stream_id]
        while not response.ended and response.reset is None:
            assert self.more(), response
        return response

    def head(self, stream_id: int) -> Response:
        """Receives until the head of a response is there."""
        response = self.responses[stream_id]
        while not response.status:
            assert self.more(), response
        return response

    def more(self) -> bool:
        """Receives once. Returns False at the end of the connection."""
        try:
            data = self.socket.recv(65536)
        except (ConnectionResetError, ssl.SSLEOFError):
            data = b""
        if not data:
            self.is_closed = True
            return False
        for event in self.h2.receive_data(data):
            self._handle(event)
        # The server may have closed the connection after its last frame.
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            self.flush()
        return True

    def _handle(self, event) -> None:
        if isinstance(event, h2.events.ConnectionTerminated):
            self.goaways.append((event.last_stream_id, int(event.error_code)))
            return
        response = self.responses.get(getattr(event, "stream_id", 0) or 0)
        if response is None:
            return
        match event:
            case h2.events.ResponseReceived():
                response.status, response.fields = int(event.headers[0][1]), event.headers[1:]
            case h2.events.InformationalResponseReceived():
                response.interim.append(event.headers)
            case h2.events.TrailersReceived():
                response.trailers = event.headers
            case h2.events.DataReceived():
                response.body += event.data
                if self.takes and event.flow_controlled_length:
                    size = event.flow_controlled_length
                    self.h2.acknowledge_received_data(size, event.stream_id)
            case h2.events.StreamEnded():
                response.ended = True
            case h2.events.StreamReset():
                response.reset = int(event.error_code)

    def until_closed(self) -> None:
        while self.more():
            pass

    def close(self) -> None:
        self.socket.close()


@contextlib.contextmanager
def connected(server, **options) -> Iterator[Client]:
    client = Client(server, **options)
    try:
        yield client
    finally:
        client.close()


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """Returns an encoded frame, of any content."""
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags])
    return head + stream_id.to_bytes(4, "big") + payload


GET = b"\x82\x86\x84\x41\x09localhost"
"""A field block: GET http://localhost/."""
