"""start_tls(): over plain connections, over TLS, over transports of other libraries."""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.loop.harness import Echo, Recorder, Runner, connected_pair, listen, rounds
from tests.loop.test_tls_data import Buffered, pattern


class Relay(asyncio.Transport):
    """A transport of some library: passes bytes to its twin through the loop, a piece a turn."""

    _start_tls_compatible = True

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: asyncio.Protocol) -> None:
        super().__init__({"peername": "twin"})
        self.loop, self.protocol = loop, protocol
        self.twin: Relay | None = None
        self.queue: list[bytes] = []
        self.reading = True
        self.closing = self.lost = False

    def write(self, data: Any) -> None:
        assert isinstance(data, bytes)
        if not self.closing and self.twin is not None:
            self.twin.queue.append(data)
            self.loop.call_soon(self.twin.deliver)

    def deliver(self) -> None:
        if self.reading and self.queue and not self.lost:
            self.protocol.data_received(self.queue.pop(0))
            self.loop.call_soon(self.deliver)

    def get_protocol(self) -> asyncio.Protocol:
        return self.protocol

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def is_reading(self) -> bool:
        return self.reading

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True
        self.loop.call_soon(self.deliver)

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self._force_close(None)

    def abort(self) -> None:
        self._force_close(None)

    def _force_close(self, exc: BaseException | None) -> None:
        if self.closing:
            return
        self.closing = True
        self.loop.call_soon(self.lose, exc)
        if self.twin is not None:
            self.loop.call_soon(self.twin.end)

    def end(self) -> None:
        if not self.lost:
            if self.queue and self.reading:
                self.loop.call_soon(self.end)
            elif not self.protocol.eof_received():
                self.close()

    def lose(self, exc: BaseException | None) -> None:
        self.lost = True
        self.protocol.connection_lost(exc)


async def upgraded(
    server_tls: ssl.SSLContext, client_tls: ssl.SSLContext, make: Callable[[], Any] = Recorder
) -> tuple[Any, Any]:
    """A pair of protocols whose plain connection was put under TLS; `.transport` is the new one."""
    loop = asyncio.get_running_loop()
    one, other = connected_pair()
    plain, client = await loop.create_connection(make, sock=one)
    plain_server, served = await loop.connect_accepted_socket(make, other)
    client.transport, served.transport = await asyncio.gather(
        loop.start_tls(plain, client, client_tls, server_hostname="localhost"),
        loop.start_tls(plain_server, served, server_tls, server_side=True),
    )
    return client, served


def test_connection_made_is_not_called_again(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def main() -> None:
        client, served = await upgraded(server_tls, client_tls)
        data = pattern(1 << 20)
        client.transport.write(data)
        await served.until(lambda: len(served.data) >= len(data))
        assert served.data == data
        assert client.transport.get_extra_info("peercert")["subject"]
        assert client.transport.get_extra_info("socket") is not None
        client.transport.close()
        await client.until_call("lost")
        await served.until_call("lost")
        assert client.calls.count("made") == served.calls.count("made") == 1

    run(main())


def test_a_buffered_protocol_is_upgraded(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def main() -> None:
        client, served = await upgraded(server_tls, client_tls, Buffered)
        data = pattern(300_000)
        client.transport.write(data)
        await served.recorder.until(lambda: len(served.recorder.data) >= len(data))
        assert served.recorder.data == data
        client.transport.close()
        await client.recorder.until_call("lost")
        await served.recorder.until_call("lost")

    run(main())


def test_tls_in_tls(run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
    if run.name == "stock" and sys.version_info < (3, 11):
        pytest.skip("TLS in TLS came with Python 3.11")
    data = pattern(2 << 20)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        client, served = await upgraded(server_tls, client_tls)
        outer = client.transport
        inner, inner_served = await asyncio.gather(
            loop.start_tls(outer, client, client_tls, server_hostname="localhost"),
            loop.start_tls(served.transport, served, server_tls, server_side=True),
        )
        assert inner is not None
        assert inner_served is not None
        inner.write(data)
        inner_served.write(data)
        await asyncio.gather(
            served.until(lambda: len(served.data) >= len(data)),
            client.until(lambda: len(client.data) >= len(data)),
        )
        assert client.data == data
        assert served.data == data
        assert inner.get_extra_info("ssl_object") is not outer.get_extra_info("ssl_object")
        inner.close()
        await client.until_call("lost")
        await served.until_call("lost")
        assert client.lost_with is None
        assert outer.is_closing()

    run(main())


def test_tls_over_a_transport_of_another_library(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    if run.name == "stock":
        pytest.skip("asyncio's SSLProtocol needs get_buffer(), which this relay does not call")
    data = pattern(3 << 20)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        client, served = Recorder(), Recorder()
        one, other = Relay(loop, client), Relay(loop, served)
        one.twin, other.twin = other, one
        secured, secured_server = await asyncio.gather(
            loop.start_tls(one, client, client_tls, server_hostname="localhost"),
            loop.start_tls(other, served, server_tls, server_side=True),
        )
        assert secured is not None
        assert secured_server is not None
        assert secured.get_extra_info("peername") == "twin"
        secured.write(data)
        secured_server.write(data)
        await client.until(lambda: len(client.data) >= len(data))
        await served.until(lambda: len(served.data) >= len(data))
        assert client.data == served.data == data
        secured.close()
        await client.until_call("lost")
        await served.until_call("lost")
        assert client.lost_with is None
        assert client.calls == ["data", "eof", "lost"]

    run(main())


def test_start_tls_under_a_full_write_queue(
    run_ours: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    # The plain transport had requested a pause, of which its new protocol got no call.
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = connected_pair()
        plain, client = await loop.create_connection(Recorder, sock=one)
        plain_server, served = await loop.connect_accepted_socket(Recorder, other)
        greeting = bytes(8 << 20)
        plain.write(greeting)
        assert "pause" in client.calls
        upgrade = asyncio.ensure_future(
            loop.start_tls(plain, client, client_tls, server_hostname="localhost")
        )

        # The first byte of TLS follows the greeting, and no piece may hold both.
        def split(data: bytes) -> None:
            served.data += data
            if len(served.data) >= len(greeting):
                plain_server.pause_reading()
            served._note("data")

        served.data_received = split  # type: ignore[method-assign]
        await served.until(lambda: len(served.data) >= len(greeting))
        early = bytes(served.data[len(greeting) :])
        del served.data_received
        served.data.clear()
        secured_upgrade = asyncio.ensure_future(
            loop.start_tls(plain_server, served, server_tls, server_side=True)
        )
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if early:
            plain_server.get_protocol().data_received(early)  # type: ignore[attr-defined]
        secured, secured_server = await asyncio.gather(upgrade, secured_upgrade)
        assert secured is not None
        assert secured_server is not None
        secured.write(b"through")
        await served.until(lambda: served.data == b"through")
        secured.close()
        await client.until_call("lost")
        await served.until_call("lost")

    run_ours(main())


def test_start_tls_refuses_what_cannot_carry_it(run: Runner, client_tls: ssl.SSLContext) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        reader, writer = os.pipe()
        transport, protocol = await loop.connect_write_pipe(
            asyncio.BaseProtocol, os.fdopen(writer, "wb")
        )
        with pytest.raises(TypeError, match="is not supported by start_tls"):
            await loop.start_tls(transport, protocol, client_tls)
        transport.close()
        os.close(reader)
        one, other = connected_pair()
        plain, client = await loop.create_connection(Recorder, sock=one)
        with pytest.raises(TypeError, match="sslcontext is expected to be an instance"):
            await loop.start_tls(plain, client, None)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="ssl_handshake_timeout should be a positive number"):
            await loop.start_tls(plain, client, client_tls, ssl_handshake_timeout=0)
        # Nothing has happened to the connection.
        assert plain.get_protocol() is client
        other.send(b"still plain")
        await client.until(lambda: client.data == b"still plain")
        plain.close()
        await client.until_call("lost")
        other.close()

    run(main())


def test_start_tls_that_is_cancelled(run: Runner, client_tls: ssl.SSLContext) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = connected_pair()
        plain, client = await loop.create_connection(Recorder, sock=one)
        upgrade = asyncio.ensure_future(
            loop.start_tls(plain, client, client_tls, server_hostname="localhost")
        )
        await rounds()
        upgrade.cancel()
        with pytest.raises(asyncio.CancelledError):
            await upgrade
        assert plain.is_closing()
        other.close()
        await rounds()

    run(main())


def test_start_tls_with_a_peer_that_hangs_up(run: Runner, client_tls: ssl.SSLContext) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = connected_pair()
        plain, client = await loop.create_connection(Recorder, sock=one)
        upgrade = asyncio.ensure_future(
            loop.start_tls(plain, client, client_tls, server_hostname="localhost")
        )
        await rounds()
        other.close()
        with pytest.raises(ConnectionError):
            await upgrade

    run(main())


def test_a_stream_writer_is_upgraded(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    if sys.version_info < (3, 11):
        pytest.skip("StreamWriter.start_tls() came with Python 3.11")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readline() == b"STARTTLS\n"
        writer.write(b"go ahead\n")
        await writer.drain()
        await writer.start_tls(server_tls)
        writer.write(await reader.readline())
        await writer.drain()
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("localhost", port)
        writer.write(b"STARTTLS\n")
        assert await reader.readline() == b"go ahead\n"
        await writer.start_tls(client_tls, server_hostname="localhost")
        assert writer.get_extra_info("sslcontext") is client_tls
        writer.write(b"in secret\n")
        assert await reader.readline() == b"in secret\n"
        writer.close()
        await writer.wait_closed()
        server.close()

    run(main())


def test_sendfile_falls_back_over_tls(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext, tmp_path: Any
) -> None:
    data = pattern(3 << 20)
    (tmp_path / "file").write_bytes(data)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        client, served = await upgraded(server_tls, client_tls)
        with (tmp_path / "file").open("rb") as file:
            assert await loop.sendfile(client.transport, file) == len(data)
            with pytest.raises(RuntimeError, match="fallback"):
                await loop.sendfile(client.transport, file, fallback=False)
        await served.until(lambda: len(served.data) >= len(data))
        assert served.data == data
        assert client.transport.get_protocol() is client
        client.transport.close()
        await client.until_call("lost")
        await served.until_call("lost")

    run(main())


def test_names_that_libraries_use_of_asyncios_tls_class(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        server, address = await listen(Echo, ssl=server_tls)
        transport, client = await loop.create_connection(
            Recorder, *address, ssl=client_tls, server_hostname="localhost"
        )
        tls: Any = transport._ssl_protocol  # type: ignore[attr-defined]
        assert isinstance(transport, asyncio.sslproto._SSLProtocolTransport)  # type: ignore[attr-defined]
        assert "SSL" in type(transport).__name__
        assert isinstance(tls, asyncio.BaseProtocol)
        assert tls._app_transport is transport
        assert tls._app_protocol is client
        assert tls._extra["sslcontext"] is tls._sslcontext is client_tls
        assert tls._extra["ssl_object"] is transport.get_extra_info("ssl_object")
        assert tls._transport.get_extra_info("peername") == address
        assert tls._transport.get_protocol() is tls
        assert tls._transport._sock.getpeername() == address
        transport.close()
        await client.until_call("lost")
        assert tls._transport is None
        assert tls._app_transport is None
        server.close()
        await server.wait_closed()

    run(main())
