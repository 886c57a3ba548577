"""Replacements for names that `examples.interop` uses and other libraries with aioquic's API lack.

They cover only the needs of those programs; none implements QUIC. A missing feature raises
`NotImplementedError`, which ends the endpoint with status 127.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import importlib
import os
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from tests.support.free_ports import free_port

__all__ = ["names"]

QUEUED_MAX = 1 << 20
"Bytes of a stream that wait to be sent before more are read from a file."


def names(library: str, path: str) -> dict[str, Any]:
    """Returns the names of the module `path` (as "quic.events"), with the library behind them."""
    if path == "quic":
        return {"QuicConfigurationError": type("QuicConfigurationError", (ValueError,), {})}
    if path == "quic.configuration" and os.environ.get("TESTCASE") == "connectionmigration":
        raise NotImplementedError(f"{library} does not serve preferred_address by its API")
    if path == "asyncio" and _is_asked_to_move():
        raise NotImplementedError(f"{library}'s clients do not move to another socket")
    replaced = _AIOPQUIC.get(path) if library == "aiopquic" else None
    if replaced is not None:
        return replaced()
    try:
        module = importlib.import_module(f"{library}.{path}")
    except ModuleNotFoundError:
        if "." in path:
            raise
        # A package of which only a submodule is used.
        return {}
    found = dict(vars(module))
    if path == "asyncio":
        found.update(_asyncio(library, module))
    if path == "quic.configuration" and library == "qh3":
        found["QuicConfiguration"] = _with_datagrams(module.QuicConfiguration)
    return {name: value for name, value in found.items() if not name.startswith("__")}


def _is_asked_to_move() -> bool:
    return (os.environ.get("TESTCASE"), os.environ.get("ROLE")) == ("migrate", "client")


class Server:
    """The result of `serve`, with aioquic's and our methods."""

    def __init__(self, server: Any, port: int) -> None:
        self._server = server
        self.sockname = ("", port)

    def close(self) -> None:
        """Closes the server."""
        self._server.close()

    def close_clients(self) -> None:
        """Does nothing: the libraries' `close` closes clients too."""

    async def wait_closed(self) -> None:
        """Waits until the datagrams queued by the close have left."""
        await asyncio.sleep(0.05)


def _asyncio(library: str, module: Any) -> dict[str, Any]:
    """The `asyncio` package: `drain`, and a server that exposes its port."""

    class QuicConnectionProtocol(module.QuicConnectionProtocol):  # type: ignore[misc, name-defined]
        async def drain(self, stream_id: int) -> None:
            await asyncio.sleep(0)
            while self._queued(stream_id) > QUEUED_MAX:
                await asyncio.sleep(0.002)

        def _queued(self, stream_id: int) -> int:
            if library == "qh3":
                size: int = self._quic.get_send_buffer_size(stream_id)
                return size
            stream = self._quic._streams.get(stream_id)
            return 0 if stream is None else len(stream.sender._buffer)

    async def serve(host: str, port: int, **options: Any) -> Server:
        port = port or free_port()
        return Server(await module.serve(host, port, **options), port)

    return {"QuicConnectionProtocol": QuicConnectionProtocol, "serve": serve}


def _with_datagrams(base: Any) -> Any:
    """qh3's HTTP/3 always sends SETTINGS_H3_DATAGRAM. RFC 9297 section 2.1.1 lets a client close a
    connection whose transport parameters do not match; aioquic and uringcore close it.
    """

    def make(**fields: Any) -> Any:
        fields.setdefault("max_datagram_frame_size", 65536)
        return base(**fields)

    return make


# aiopquic, whose API lacks some of aioquic's names -----------------------------------------------


def _aiopquic_asyncio() -> dict[str, Any]:
    module = importlib.import_module("aiopquic.asyncio")

    class QuicConnectionProtocol(module.QuicConnectionProtocol):  # type: ignore[misc, name-defined]
        def __init__(self, quic: Any, stream_handler: Any = None) -> None:
            super().__init__(quic, stream_handler=stream_handler)

        def transmit(self) -> None:
            """Does nothing: its thread sends by itself."""

        def request_key_update(self) -> None:
            """Does nothing: the number of packets triggers the update, see `configuration`."""

        def close(self, error_code: int = 0, reason_phrase: str = "") -> None:
            self._quic.close(error_code, None, reason_phrase)

        async def drain(self, stream_id: int) -> None:
            await asyncio.sleep(0)
            while self._quic.tx_data_ring_used(stream_id) > QUEUED_MAX:
                await asyncio.sleep(0.002)

    @contextlib.asynccontextmanager
    async def connect(
        host: str, port: int, *, session_ticket_handler: Any = None, **options: Any
    ) -> AsyncIterator[Any]:
        configuration = options["configuration"]
        if session_ticket_handler is not None and configuration.session_ticket_file is None:
            # It writes its tickets to a file at the end of the connection.
            configuration.session_ticket_file = tempfile.mkdtemp() + "/tickets"
            session_ticket_handler(configuration.session_ticket_file)
        async with module.connect(host, port, **options) as protocol:
            yield protocol

    async def serve(host: str, port: int, **options: Any) -> Server:
        for name in ("session_ticket_fetcher", "session_ticket_handler"):
            options.pop(name, None)
        port = port or free_port()
        return Server(await module.serve(host, port, **options), port)

    return {
        "QuicConnectionProtocol": QuicConnectionProtocol,
        "connect": connect,
        "serve": serve,
    }


def _aiopquic_configuration() -> dict[str, Any]:
    module = importlib.import_module("aiopquic.quic.configuration")
    # Small enough that a megabyte causes several updates.
    interval = 100 if os.environ.get("TESTCASE") == "keyupdate" else None

    class QuicConfiguration(module.QuicConfiguration):  # type: ignore[misc, name-defined]
        session_ticket: Any = None
        original_version: Any = None

        def __init__(self, **fields: Any) -> None:
            fields.setdefault("key_update_interval", interval)
            super().__init__(**fields)

        def __setattr__(self, name: str, value: Any) -> None:
            if name == "cipher_suites":
                name, value = "cipher_suite", int(value[0])
            elif name == "secrets_log_file" and value is not None:
                value = value if isinstance(value, str) else value.name
            elif name == "quic_logger" and value is not None:
                name, value = "qlog_dir", value.path
            elif name == "supported_versions" and value is not None:
                value = [int(version) for version in value]
            super().__setattr__(name, value)

        def load_cert_chain(self, certfile: Any, keyfile: Any = None, password: Any = None) -> None:
            super().load_cert_chain(str(certfile), str(keyfile), password)

    return {"QuicConfiguration": QuicConfiguration}


class _Suite(enum.IntEnum):
    AES_128_GCM_SHA256 = 0x1301
    AES_256_GCM_SHA384 = 0x1302
    CHACHA20_POLY1305_SHA256 = 0x1303


class _Version(enum.IntEnum):
    VERSION_1 = 1
    VERSION_2 = 0x6B3343CF


class _Logger:
    def __init__(self, path: str) -> None:
        self.path = path


@dataclass
class _DataReceived:
    data: bytes
    stream_id: int
    stream_ended: bool


@dataclass
class _HeadersReceived:
    headers: list[tuple[bytes, bytes]]
    stream_id: int
    stream_ended: bool


class _NoHttp3:
    def __init__(self, quic: Any) -> None:
        raise NotImplementedError("aiopquic has no HTTP/3 API like aioquic's")


def _http_events() -> dict[str, Any]:
    return {
        "DataReceived": _DataReceived,
        "HeadersReceived": _HeadersReceived,
        "H3Event": object,
        "Headers": list,
    }


_AIOPQUIC: dict[str, Any] = {
    "asyncio": _aiopquic_asyncio,
    "quic.configuration": _aiopquic_configuration,
    "quic.packet": lambda: {"QuicProtocolVersion": _Version},
    "quic.logger": lambda: {"QuicFileLogger": _Logger},
    "tls": lambda: {"CipherSuite": _Suite, "SessionTicket": object},
    "h3.events": _http_events,
    "h3.connection": lambda: {"H3Connection": _NoHttp3, "H3_ALPN": ["h3"]},
    "h3": dict,
}
