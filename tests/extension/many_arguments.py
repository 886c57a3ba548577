"""Calls with many arguments, one odd and the others valid; each result is used a little."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, fields
from typing import Any, NamedTuple
from unittest import mock

from uringcore import http3, tls
from uringcore._uringcore import (
    Buffer,
    Http3Limits,
    MemorySessionStore,
    QuicClientSetup,
    QuicConnectionCore,
    QuicEndpoint,
    QuicServerSetup,
    ResponseCompression,
    Spawn,
    WebSocketLimits,
    WebTransportLimits,
)
from uringcore.devcert import DevelopmentCertificate
from uringcore.quic import ClientConfig, ServerConfig
from uringcore.quic import _configuration_conversion as setup
from uringcore.quic._worker_states import WorkerStates
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.connection import QuicConnection
from uringcore.quic.limits import ServerLimits
from uringcore.server._http3_limits import HTTP3Limits, SessionLimits

SERVER = ("127.0.0.1", 4433)
PLACES = WorkerStates(1)
TIMES = (0.0, 1e9, 1e18, float("inf"), float("nan"), -1.0)


class Settings(NamedTuple):
    name: str
    make: Callable[..., Any]
    sound: dict[str, Any]


def made_of(configure: Callable[[], Any]) -> dict[str, Any]:
    """Return the fields of the extension's setup that a configuration sets."""
    recorded: dict[str, Any] = {}

    def record(kind: Any, **given: Any) -> Any:
        recorded.update(given)
        return kind(**given)

    with mock.patch.object(setup, "_made", record):
        configure()
    return recorded


def used_client(**given: Any) -> None:
    """Begin a connection, and expire its timers at odd times."""
    made = QuicClientSetup(**given)
    core = QuicConnectionCore(is_client=True)
    core._start_client(None, made, SERVER, "localhost", 0.0, None)
    for now in TIMES:
        core.datagrams_to_send(now)
        core.handle_timer(now)
    core.get_timer()


def used_server(sound_client: dict[str, Any], given: dict[str, Any]) -> None:
    """Run a client's handshake with it, as far as it gets."""
    client, server = QuicConnectionCore(is_client=True), QuicConnectionCore(is_client=False)
    client._start_client(None, QuicClientSetup(**sound_client), SERVER, "localhost", 0.0, None)
    server._start_server(QuicServerSetup(**given), None)
    for now in (0.0, 0.1, 0.2):
        for data, _ in client.datagrams_to_send(now):
            server.receive_datagram(data, SERVER, now)
        for data, _ in server.datagrams_to_send(now):
            client.receive_datagram(data, SERVER, now)
    for now in TIMES:
        server.handle_timer(now)


def used_endpoint(**given: Any) -> None:
    endpoint = QuicEndpoint.sans_io(**given)
    endpoint.receive_datagram(b"\xc0\0\0\0\1" + bytes(1200), SERVER, 0.0)
    endpoint.datagrams_to_send(0.0)


def used_buffer(**given: Any) -> None:
    buffer = Buffer(**given)
    buffer.push_bytes(b"a")
    buffer.seek(0)
    buffer.pull_uint_var()


def configured(**given: Any) -> None:
    """A client configured through aioquic's API."""
    connection = QuicConnection(configuration=QuicConfiguration(**given))
    connection.connect(SERVER, now=0.0)
    connection.datagrams_to_send(0.0)


def defaults(kind: Any, **given: Any) -> dict[str, Any]:
    one = kind(**given)
    return {field.name: getattr(one, field.name) for field in fields(kind) if field.init}


def limits() -> dict[str, Any]:
    return asdict(HTTP3Limits()) | {"protocols": ["a"]}


def all_settings() -> Iterator[Settings]:
    certificate = DevelopmentCertificate.make()
    identity = (certificate.certificate_pem, certificate.key_pem)
    client = made_of(lambda: ClientConfig(verify=False, alpn=["h3"]))
    server = made_of(lambda: ServerConfig(certificate=identity, alpn=["h3"]))
    yield Settings("client's setup", used_client, client)
    yield Settings("server's setup", lambda **given: used_server(client, given), server)
    endpoint = {
        "now": 0.0,
        "accept_burst": 1,
        "accept_rate": 1.0,
        "connection_id_length": 8,
        "handshake_timeout": 1.0,
        "max_connections": 1,
        "max_connections_per_address": 1,
        "max_handshakes": 1,
        "memory": 1 << 20,
        "reset_keys": [bytes(32)],
        "retry_handshakes": 1,
        "socket_name": b"127.0.0.1",
        "worker": (0, 1, PLACES.fileno()),
    }
    yield Settings("endpoint", used_endpoint, endpoint)
    yield Settings("Http3Limits", Http3Limits, limits())
    yield Settings("HTTP3Limits", lambda **one: HTTP3Limits(**one).checked(), asdict(HTTP3Limits()))
    sessions = asdict(SessionLimits())
    yield Settings("SessionLimits", lambda **one: SessionLimits(**one).checked(), sessions)
    webtransport = {"sessions": 1, "streams": 1, "uni_streams": 1, "window": 1, "datagram_bytes": 1}
    yield Settings("WebTransportLimits", WebTransportLimits, webtransport | {"patience": 1.0})
    websockets = {"max_size": 1, "max_queue": 1, "ping_interval": 1.0, "ping_timeout": 1.0}
    yield Settings("WebSocketLimits", WebSocketLimits, websockets | {"compresses": True})
    compression = {"codings": ["gzip"], "min_size": 1, "level": 1, "max_streams": 1}
    yield Settings("ResponseCompression", ResponseCompression, compression)
    yield Settings("ServerLimits", ServerLimits, defaults(ServerLimits))
    yield Settings("ClientConfig", ClientConfig, defaults(ClientConfig))
    yield Settings("ServerConfig", ServerConfig, defaults(ServerConfig, certificate=identity))
    yield Settings("QuicConfiguration", configured, defaults(QuicConfiguration, verify_mode=0))
    yield Settings("http3.Limits", http3.Limits, defaults(http3.Limits))
    yield Settings("http3.Timeouts", http3.Timeouts, defaults(http3.Timeouts))
    yield Settings("MemorySessionStore", MemorySessionStore, {"capacity": 1})
    yield Settings(
        "MemorySessionStore.put", tls.MemorySessionStore().put, {"ticket": b"a", "session": b"b"}
    )
    yield Settings("Buffer", used_buffer, {"capacity": 8, "data": None})
    yield Settings("Buffer of data", used_buffer, {"data": b"abc"})
    child = {
        "executables": [b"/nowhere"],
        "args": [b"a"],
        "env": [b"A=B"],
        "cwd": b"/",
        "stdio": [-1, -1, -1],
        "pass_fds": [],
        "umask": -1,
        "restore_signals": True,
        "start_new_session": False,
        "process_group": -1,
    }
    yield Settings("Spawn", Spawn, child)
    yield Settings(
        "DevelopmentCertificate", DevelopmentCertificate.make, {"names": ["a"], "days": 1}
    )
