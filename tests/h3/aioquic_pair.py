"""Two QUIC connections of aioquic joined in memory, with HTTP/3 on top of each.

aioquic's QUIC is an independent transport here: it shows that H3Connection needs no more than the
interface that it documents.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import aioquic.h3.connection
import aioquic.h3.events
import pytest
from aioquic.quic import events as quic_events
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection

from uringcore.h3.connection import H3Connection

LIBRARIES: dict[str, Callable[..., Any]] = {
    "uringcore": H3Connection,
    "aioquic": aioquic.h3.connection.H3Connection,
}

AIOQUIC_VERSION = tuple(int(part) for part in version("aioquic").split(".")[:2])
# The last aioquic for CPython 3.10 has no interim responses and uses some other names.
needs_current_aioquic = pytest.mark.skipif(
    AIOQUIC_VERSION < (1, 7), reason=f"aioquic {version('aioquic')} is older than what is compared"
)

CLIENT_ADDRESS = ("127.0.0.1", 1234)
SERVER_ADDRESS = ("127.0.0.1", 4433)


class Pair:
    """A client and a server. ``transfer`` moves datagrams and collects HTTP events by side."""

    def __init__(self, certificate: tuple[Any, Any], **fields: Any) -> None:
        """``fields`` are for the configurations of both sides."""
        client = QuicConfiguration(
            is_client=True, alpn_protocols=["h3"], max_datagram_frame_size=65536, **fields
        )
        client.verify_mode = 0  # type: ignore[assignment]
        server = QuicConfiguration(
            is_client=False, alpn_protocols=["h3"], max_datagram_frame_size=65536, **fields
        )
        server.certificate, server.private_key = certificate
        self.now = 0.0
        self.client = QuicConnection(configuration=client)
        self.client.connect(SERVER_ADDRESS, now=self.now)
        first = self.client.datagrams_to_send(now=self.now)
        self.server = QuicConnection(
            configuration=server,
            original_destination_connection_id=self.client.original_destination_connection_id,
        )
        self.http: dict[str, Any] = {}
        self.events: dict[str, list[Any]] = {"client": [], "server": []}
        self.closed: dict[str, quic_events.ConnectionTerminated] = {}
        self.resets: list[tuple[str, int, int]] = []
        self.expect_close = False
        for data, _ in first:
            self.server.receive_datagram(data, CLIENT_ADDRESS, now=self.now)
        self.transfer()

    @property
    def surprises(self) -> bool:
        """True if a connection was closed that the test expected to stay open."""
        return bool(self.closed) and not self.expect_close

    def add_http(self, client: str, server: str, **options: Any) -> tuple[Any, Any]:
        """Adds HTTP/3 of the named libraries on both sides, and exchanges SETTINGS."""
        self.http["client"] = LIBRARIES[client](self.client, **options)
        self.http["server"] = LIBRARIES[server](self.server, **options)
        self.transfer()
        return self.http["client"], self.http["server"]

    def transfer(self) -> None:
        """Moves datagrams until neither side has any."""
        for _ in range(1000):
            moved = self._move("client", self.client, self.server, CLIENT_ADDRESS)
            moved += self._move("server", self.server, self.client, SERVER_ADDRESS)
            self._collect("client", self.client)
            self._collect("server", self.server)
            if not moved:
                return
        raise AssertionError("the two sides never stop sending")

    def wait_closed(self) -> None:
        """Lets the draining period of a closed connection pass."""
        self.expect_close = True
        self.transfer()
        self.now += 60.0
        self.client.handle_timer(now=self.now)
        self.server.handle_timer(now=self.now)
        self._collect("client", self.client)
        self._collect("server", self.server)

    def take(self, side: str) -> list[Any]:
        """Returns the HTTP events of a side since the last call, with adjacent content joined."""
        joined: list[Any] = []
        for event in self.events[side]:
            last = joined[-1] if joined else None
            if (
                type(event).__name__ in ("DataReceived", "WebTransportStreamDataReceived")
                and type(last) is type(event)
                and last.stream_id == event.stream_id
                and not last.stream_ended
            ):
                fields = {name: getattr(event, name) for name in _fields(event)}
                joined[-1] = type(event)(**{**fields, "data": last.data + event.data})
            else:
                joined.append(event)
        self.events[side].clear()
        return joined

    def _move(self, name: str, source: Any, target: Any, address: Any) -> int:
        self.now += 0.001
        timer = source.get_timer()
        if timer is not None and timer <= self.now:
            source.handle_timer(self.now)
        datagrams = source.datagrams_to_send(now=self.now)
        for data, _ in datagrams:
            target.receive_datagram(data, address, now=self.now)
        return len(datagrams)

    def _collect(self, name: str, quic: Any) -> None:
        while (event := quic.next_event()) is not None:
            if isinstance(event, quic_events.ConnectionTerminated):
                self.closed[name] = event
            elif isinstance(event, quic_events.StreamReset):
                self.resets.append((name, event.stream_id, event.error_code))
            if name in self.http:
                self.events[name].extend(self.http[name].handle_event(event))


def _fields(event: Any) -> tuple[str, ...]:
    return tuple(type(event).__match_args__)


def plain(event: Any) -> tuple[Any, ...]:
    """Returns an event of either library as name and values, for comparison."""
    values = {name: getattr(event, name) for name in _fields(event)}
    return (type(event).__name__, *sorted(values.items()))
