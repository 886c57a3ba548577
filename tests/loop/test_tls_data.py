"""Bytes through TLS: sizes, backpressure both ways, pauses, protocols of both kinds and their faults."""

from __future__ import annotations

import array
import asyncio
import ctypes
import gc
import shutil
import ssl
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from tests.loop.harness import Recorder, Runner, listen, rounds
from tests.loop.tls_peer import Peer, modern

MIB = 1 << 20


def pattern(size: int) -> bytes:
    """Bytes that show when a piece is lost, doubled or out of order."""
    unit = b"".join(index.to_bytes(4, "big") for index in range(4096))
    return (unit * (size // len(unit) + 1))[:size]


async def tls_pair(
    server_tls: ssl.SSLContext,
    client_tls: ssl.SSLContext,
    serve: Any = Recorder,
    make: Any = Recorder,
) -> tuple[Any, Any, asyncio.AbstractServer]:
    """(the client's protocol, the server's, the server)."""
    loop = asyncio.get_running_loop()
    accepted: list[Any] = []

    def accept() -> Any:
        accepted.append(serve())
        return accepted[0]

    server, address = await listen(accept, ssl=server_tls)
    _, client = await loop.create_connection(
        make, *address, ssl=client_tls, server_hostname="localhost"
    )
    while not (accepted and getattr(accepted[0], "transport", None)):
        await asyncio.sleep(0)
    return client, accepted[0], server


async def end(client: Any, server: asyncio.AbstractServer) -> None:
    client.transport.close()
    await client.until_call("lost")
    server.close()
    await server.wait_closed()


class Producer(Recorder):
    """Writes `total` bytes in pieces, and stops while writing is paused."""

    def __init__(self, data: bytes, piece: int = 100_000) -> None:
        super().__init__()
        self.left, self.piece, self.position, self.pauses = data, piece, 0, 0
        self.paused = False

    def go_on(self) -> None:
        while not self.paused and self.position < len(self.left):
            self.transport.write(self.left[self.position : self.position + self.piece])
            self.position += self.piece

    def pause_writing(self) -> None:
        assert not self.paused
        self.paused, self.pauses = True, self.pauses + 1

    def resume_writing(self) -> None:
        assert self.paused
        self.paused = False
        self.go_on()


def test_large_writes_both_ways_with_backpressure(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    data = pattern(32 * MIB)

    async def main() -> None:
        client, served, server = await tls_pair(
            server_tls, client_tls, lambda: Producer(data), lambda: Producer(data)
        )
        client.go_on()
        served.go_on()
        await client.until(lambda: len(client.data) >= len(data))
        await served.until(lambda: len(served.data) >= len(data))
        assert client.data == data
        assert served.data == data
        assert client.pauses or served.pauses
        await end(client, server)

    run(main(), timeout=60)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_one_write_of_any_size_arrives_whole(
    run: Runner, certificate: Any, client_tls: ssl.SSLContext, version: ssl.TLSVersion
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    context.maximum_version = version
    sizes = (1, 16_383, 16_384, 16_385, 65_535, 65_536, 65_537, 200_000, 8 * MIB)

    async def main() -> None:
        client, served, server = await tls_pair(context, client_tls)
        spoken = client.transport.get_extra_info("ssl_object").version()
        assert spoken == {"TLSv1_2": "TLSv1.2", "TLSv1_3": "TLSv1.3"}[version.name]
        for size in sizes:
            data = pattern(size)
            for convert in (bytes, bytearray, memoryview):
                served.data.clear()
                client.transport.write(convert(data))
                await served.until(lambda: len(served.data) >= size)  # noqa: B023
                assert served.data == data
        await end(client, server)

    run(main(), timeout=60)


def test_a_buffer_may_change_after_its_write(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    if run.name == "stock":
        # sslproto keeps a reference while the bytes wait; they usually do not.
        large = 1000
    else:
        large = 4 * MIB

    async def main() -> None:
        client, served, server = await tls_pair(server_tls, client_tls)
        buffer = bytearray(b"a" * large)
        client.transport.write(buffer)
        buffer[:] = b"b" * large
        client.transport.write(memoryview(buffer))
        buffer.clear() if run.ours else None
        await served.until(lambda: len(served.data) >= 2 * large)
        assert served.data == b"a" * large + b"b" * large
        await end(client, server)

    run(main())


def test_writelines_keeps_the_order(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    pieces = [pattern(size) for size in (3, 0, 16_000, 500, 90_000, 1, 16_384, 2)]

    async def main() -> None:
        client, served, server = await tls_pair(server_tls, client_tls)
        client.transport.writelines(pieces)
        client.transport.writelines(iter([b"x", bytearray(b"y"), memoryview(b"z")]))
        client.transport.writelines([])
        expected = b"".join(pieces) + b"xyz"
        await served.until(lambda: len(served.data) >= len(expected))
        assert served.data == expected
        await end(client, server)

    run(main())


def test_small_pieces_of_writelines_share_records(
    run_ours: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        made: asyncio.Future[asyncio.Transport] = loop.create_future()

        class Served(Recorder):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                super().connection_made(transport)
                made.set_result(self.transport)

        server, address = await listen(Served, ssl=server_tls)
        peer = await Peer.connect(address, client_tls)
        await peer.handshake()
        transport = await made
        transport.writelines([b"%d" % (index % 10) for index in range(1000)])
        first = await peer.read()
        assert len(first) == 1000
        peer.abort()
        server.close()
        await rounds()

    run_ours(main())


def test_writes_of_connection_made_arrive(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    class Greeter(Recorder):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self.transport.write(b"hello, ")
            self.transport.write(b"world")

    async def main() -> None:
        client, served, server = await tls_pair(server_tls, client_tls, Greeter, Greeter)
        await client.until(lambda: client.data == b"hello, world")
        await served.until(lambda: served.data == b"hello, world")
        await end(client, server)

    run(main())


def test_paused_reading_delivers_nothing_and_loses_nothing(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    data = pattern(3 * MIB)

    async def main() -> None:
        client, served, server = await tls_pair(server_tls, client_tls)
        assert served.transport.is_reading()
        served.transport.pause_reading()
        assert not served.transport.is_reading()
        served.transport.pause_reading()
        client.transport.write(data)
        await rounds(50)
        assert served.data == b""
        # Received data did not pile up either: the transport below stopped reading.
        if hasattr(served.transport, "get_read_buffer_size"):  # not in CPython 3.10's own
            assert served.transport.get_read_buffer_size() < MIB
        served.transport.resume_reading()
        served.transport.resume_reading()
        await served.until(lambda: len(served.data) >= len(data))
        assert served.data == data
        await end(client, server)

    run(main())


def test_pausing_in_data_received(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    modern(run)
    data = pattern(4 * MIB)

    class Sipping(Recorder):
        def data_received(self, data: bytes) -> None:
            assert self.transport.is_reading()
            super().data_received(data)
            self.transport.pause_reading()
            asyncio.get_running_loop().call_soon(self.transport.resume_reading)

    async def main() -> None:
        client, served, server = await tls_pair(server_tls, client_tls, Sipping)
        client.transport.write(data)
        await served.until(lambda: len(served.data) >= len(data))
        assert served.data == data
        await end(client, server)

    run(main())


def test_paused_in_connection_made_still_finishes_the_handshake(
    run_ours: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    # Stock asyncio keeps the client's last flight back until reading is resumed.
    class Paused(Recorder):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self.transport.pause_reading()

    async def main() -> None:
        client, served, server = await tls_pair(server_tls, client_tls, Recorder, Paused)
        await served.until_call("made")
        client.transport.resume_reading()
        await end(client, server)

    run_ours(main())


class Buffered(asyncio.BufferedProtocol):
    """Takes its bytes through a buffer of its own, of `size` bytes."""

    def __init__(self, size: int = 10_000) -> None:
        self.recorder = Recorder()
        self.buffer = bytearray(size)
        self.hints: list[int] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.recorder.connection_made(transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        self.hints.append(sizehint)
        return memoryview(self.buffer)

    def buffer_updated(self, nbytes: int) -> None:
        assert 0 < nbytes <= len(self.buffer)
        self.recorder.data_received(bytes(self.buffer[:nbytes]))

    def eof_received(self) -> bool | None:
        return self.recorder.eof_received()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.recorder.connection_lost(exc)


@pytest.mark.parametrize("size", [1, 7, 10_000, 16_384, 300_000])
def test_a_buffered_protocol_over_tls(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext, size: int
) -> None:
    modern(run)
    data = pattern(max(size * 50, 5_000) if size < 100 else 2 * MIB)

    async def main() -> None:
        client, served, server = await tls_pair(server_tls, client_tls, lambda: Buffered(size))
        client.transport.write(data)
        await served.recorder.until(lambda: len(served.recorder.data) >= len(data))
        assert served.recorder.data == data
        await end(client, server)
        await served.recorder.until_call("lost")
        assert served.recorder.calls[-2:] == ["eof", "lost"]

    run(main())


@pytest.mark.parametrize(
    "buffer", [(ctypes.c_char * 1000)(), array.array("I", bytes(4000)), memoryview(bytearray(999))]
)
def test_buffers_of_any_format(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext, buffer: Any
) -> None:
    modern(run)
    if run.name == "stock" and not isinstance(buffer, memoryview):
        pytest.skip("asyncio's sslproto slices the object itself, which copies it or counts items")
    data = pattern(100_000)

    class Foreign(Buffered):
        def get_buffer(self, sizehint: int) -> Any:
            return buffer

        def buffer_updated(self, nbytes: int) -> None:
            self.recorder.data_received(memoryview(buffer).tobytes()[:nbytes])

    async def main() -> None:
        client, served, server = await tls_pair(server_tls, client_tls, Foreign)
        client.transport.write(data)
        await served.recorder.until(lambda: len(served.recorder.data) >= len(data))
        assert served.recorder.data == data
        await end(client, server)

    run(main())


def test_protocols_change_kind_in_the_middle(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def main() -> None:
        client, served, server = await tls_pair(server_tls, client_tls)
        client.transport.write(b"one")
        await served.until(lambda: served.data == b"one")
        buffered = Buffered()
        served.transport.set_protocol(buffered)
        assert served.transport.get_protocol() is buffered
        client.transport.write(b"two")
        await buffered.recorder.until(lambda: buffered.recorder.data == b"two")
        served.transport.set_protocol(served)
        client.transport.write(b"three")
        await served.until(lambda: served.data == b"onethree")
        await end(client, server)

    run(main())


# Errors of protocols ----------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["connection_made", "data_received", "eof_received"])
def test_a_protocol_that_raises_loses_its_connection(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext, method: str
) -> None:
    modern(run)

    class Failing(Recorder):
        pass

    def fail(self: Failing, *args: Any) -> None:
        if method == "connection_made":
            self.transport = args[0]
        raise ZeroDivisionError

    setattr(Failing, method, fail)

    async def main() -> None:
        client, served, server = await tls_pair(server_tls, client_tls, Failing)
        client.transport.write(b"data")
        if method == "eof_received":
            client.transport.close()
        await client.until_call("lost")
        if method != "eof_received":
            await served.until_call("lost")
            assert isinstance(served.lost_with, ZeroDivisionError)
        server.close()
        await server.wait_closed()

    run(main())
    run.expect(ZeroDivisionError)


def test_connection_lost_that_raises_is_reported(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    class Failing(Recorder):
        def connection_lost(self, exc: BaseException | None) -> None:
            super().connection_lost(exc)
            raise ZeroDivisionError

    async def main() -> None:
        client, served, server = await tls_pair(server_tls, client_tls, Failing)
        client.transport.close()
        await client.until_call("lost")
        await served.until_call("lost")
        server.close()
        await server.wait_closed()

    run(main())
    run.expect(ZeroDivisionError)


def test_pause_and_resume_writing_that_raise_are_reported(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    class Failing(Recorder):
        def pause_writing(self) -> None:
            super().pause_writing()
            raise ZeroDivisionError

        def resume_writing(self) -> None:
            super().resume_writing()
            raise LookupError

    async def main() -> None:
        client, served, server = await tls_pair(server_tls, client_tls, Recorder, Failing)
        served.transport.pause_reading()
        total = 0
        while "pause" not in client.calls:
            client.transport.write(bytes(65536))
            total += 65536
        served.transport.resume_reading()
        await client.until_call("resume")
        await served.until(lambda: len(served.data) == total)
        await end(client, server)

    run(main())
    assert [context["message"] for context in run.complaints.contexts] == [
        "protocol.pause_writing() failed",
        "protocol.resume_writing() failed",
    ]
    run.expect(ZeroDivisionError, LookupError)


@pytest.mark.parametrize("wrong", [None, bytearray(), b"read-only", "text"])
def test_get_buffer_that_returns_no_buffer(
    run_ours: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext, wrong: Any
) -> None:
    class Failing(Buffered):
        def get_buffer(self, sizehint: int) -> Any:
            return wrong

    async def main() -> None:
        client, served, server = await tls_pair(server_tls, client_tls, Failing)
        client.transport.write(b"data")
        await client.until_call("lost")
        await served.recorder.until_call("lost")
        server.close()
        await server.wait_closed()

    run_ours(main())
    run_ours.expect(RuntimeError if wrong == b"" else TypeError)


def test_a_keyboard_interrupt_leaves_the_loop(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    modern(run)

    class Interrupting(Recorder):
        def data_received(self, data: bytes) -> None:
            raise KeyboardInterrupt

    async def main() -> None:
        client, _, _ = await tls_pair(server_tls, client_tls, Interrupting)
        client.transport.write(b"data")
        await asyncio.sleep(10)

    with pytest.raises(KeyboardInterrupt):
        run(main())
    gc.collect()


# Other methods of the transport -----------------------------------------------------------------


def test_the_transport_is_asyncios(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def main() -> None:
        client, served, server = await tls_pair(server_tls, client_tls)
        transport = client.transport
        assert isinstance(transport, asyncio.Transport)
        assert not transport.can_write_eof()
        with pytest.raises(NotImplementedError):
            transport.write_eof()
        with pytest.raises(TypeError, match="data: expecting a bytes-like instance, got str"):
            transport.write("text")  # type: ignore[arg-type]
        transport.write(b"")
        assert transport.get_protocol() is client
        assert not transport.is_closing()
        assert transport.get_extra_info("sslcontext") is client_tls
        assert transport.get_extra_info("compression") is None
        assert isinstance(transport.get_extra_info("ssl_object"), ssl.SSLObject)
        assert transport.get_extra_info("cipher") == transport.get_extra_info("ssl_object").cipher()
        assert transport.get_extra_info("socket").getsockname() == (
            transport.get_extra_info("sockname")
        )
        assert transport.get_extra_info("nothing", "default") == "default"
        assert served.transport.get_extra_info("peercert") is None
        low, high = transport.get_write_buffer_limits()
        assert 0 <= low <= high
        await end(client, server)
        assert transport.is_closing()
        assert transport.get_extra_info("sslcontext") is client_tls
        for _ in range(3):
            transport.write(b"too late")
        transport.close()

    run(main())


def test_buffer_limits(
    run_ours: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def main() -> None:
        client, served, server = await tls_pair(server_tls, client_tls)
        transport = client.transport
        for kind, default in (("write", 512 * 1024), ("read", 256 * 1024)):
            get = getattr(transport, f"get_{kind}_buffer_limits")
            put = getattr(transport, f"set_{kind}_buffer_limits")
            assert get() == (default // 4, default)
            put(high=1000)
            assert get() == (250, 1000)
            put(low=1000)
            assert get() == (1000, 4000)
            put(high=30, low=20)
            assert get() == (20, 30)
            with pytest.raises(ValueError, match="must be >= low"):
                put(high=1, low=2)
            with pytest.raises(ValueError, match="must be >= low"):
                put(high=-1)
            put()
            assert get() == (default // 4, default)
        # Small limits pause early, and nothing gets stuck.
        transport.set_write_buffer_limits(high=0)
        served.transport.set_read_buffer_limits(high=1)
        data = pattern(2 * MIB)
        transport.write(data)
        await served.until(lambda: len(served.data) >= len(data))
        assert served.data == data
        await client.until(lambda: client.calls.count("pause") == client.calls.count("resume"))
        await end(client, server)

    run_ours(main())


def test_streams_over_tls(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for line in reader:
            writer.write(line.upper())
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server_tls)
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("localhost", port, ssl=client_tls)
        writer.writelines([b"one\n", b"two\n"])
        assert await reader.readline() == b"ONE\n"
        assert await reader.readline() == b"TWO\n"
        long = b"x" * 60_000 + b"\n"
        writer.write(long)
        await writer.drain()
        assert await reader.readexactly(len(long)) == long.upper()
        writer.close()
        await writer.wait_closed()
        server.close()
        await server.wait_closed()

    run(main())


# Records that are not data ----------------------------------------------------------------------


def test_records_that_arrive_byte_by_byte(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        made: asyncio.Future[Recorder] = loop.create_future()

        class Served(Recorder):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                super().connection_made(transport)
                made.set_result(self)

        server, address = await listen(Served, ssl=server_tls)
        peer = await Peer.connect(address, client_tls)
        await peer.handshake()
        served = await made
        for message in (b"first", b"second", b"third"):
            peer.tls.write(message)
        stream = peer.outgoing.read()
        for index in range(len(stream)):
            peer.writer.write(stream[index : index + 1])
            await asyncio.sleep(0)
        await served.until(lambda: len(served.data) >= 16)
        assert served.data == b"firstsecondthird"
        peer.abort()
        await served.until_call("lost")
        server.close()
        await server.wait_closed()

    run(main())


def test_a_client_certificate_requested_after_the_handshake(run: Runner, certificate: Any) -> None:
    # TLS 1.3's post-handshake authentication: the client's write is preceded by a read, and the
    # certificate goes out in answer to a record that carries no data.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    context.load_verify_locations(str(certificate[0]))
    context.verify_mode = ssl.CERT_REQUIRED
    context.post_handshake_auth = True
    theirs = ssl.create_default_context(cafile=str(certificate[0]))
    theirs.load_cert_chain(*certificate)
    theirs.post_handshake_auth = True

    class Served(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            tls = self.transport.get_extra_info("ssl_object")
            if data == b"ask":
                tls.verify_client_post_handshake()
                self.transport.write(b"who are you?")
            else:
                subject = tls.getpeercert()["subject"]
                self.transport.write(repr(subject).encode())

    async def main() -> None:
        client, _, server = await tls_pair(context, theirs, Served)
        client.transport.write(b"ask")
        await client.until(lambda: client.data == b"who are you?")
        client.data.clear()
        client.transport.write(b"and now?")
        await client.until(lambda: b"uringcore test server" in client.data)
        await end(client, server)

    run(main())


@pytest.mark.parametrize("action", ["write", "close", "abort"])
@pytest.mark.parametrize("during", ["read", "write"])
def test_a_transport_used_from_within_openssl(
    run_ours: Runner, server_tls: ssl.SSLContext, certificate: Any, action: str, during: str
) -> None:
    # A message callback runs inside of OpenSSL's reads and writes, and may use its own transport.
    context = ssl.create_default_context(cafile=str(certificate[0]))
    hook: list[Callable[[], None]] = []

    def callback(tls: Any, direction: str, *args: Any) -> None:
        if direction == during and hook:
            hook.pop()()

    context._msg_callback = callback  # type: ignore[attr-defined]

    async def main() -> None:
        client, served, server = await tls_pair(server_tls, context)
        if action == "write":
            hook.append(lambda: client.transport.write(b"inside"))
        else:
            hook.append(getattr(client.transport, action))
        if during == "read":
            served.transport.write(b"greeting")
            await client.until(lambda: not hook)
        client.transport.write(b"hello")
        assert not hook
        if action == "write":
            await served.until(lambda: sorted(served.data) == sorted(b"hello" + b"inside"))
            client.transport.close()
        await client.until_call("lost")
        await served.until_call("lost")
        if during == "write" and action == "close":
            assert served.data == b"hello"
        server.close()
        await server.wait_closed()

    run_ours(main())


def test_bytes_that_arrive_within_openssl_follow_those_that_it_reads(
    run_ours: Runner, server_tls: ssl.SSLContext, certificate: Any
) -> None:
    # OpenSSL reads records in the kernel's buffer, and a message callback brings another one meanwhile.
    context = ssl.create_default_context(cafile=str(certificate[0]))
    late: list[Callable[[], None]] = []

    def callback(tls: Any, direction: str, *args: Any) -> None:
        if direction == "read" and late:
            late.pop()()

    context._msg_callback = callback  # type: ignore[attr-defined]

    async def main() -> None:
        loop = asyncio.get_running_loop()
        accepted: asyncio.Future[Peer] = loop.create_future()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted.set_result(Peer(reader, writer, server_tls, server_side=True))

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()[:2]
        connecting = asyncio.ensure_future(
            loop.create_connection(Recorder, *address, ssl=context, server_hostname="localhost")
        )
        peer = await accepted
        await peer.handshake()
        _, client = await connecting
        peer.write(b"begin ")
        await client.until(lambda: client.data == b"begin ")
        records = []
        for message in (b"one ", b"two ", b"three"):
            peer.tls.write(message)
            records.append(peer.outgoing.read())
        below = client.transport._ssl_protocol
        late.append(lambda: below.data_received(records[2]))
        peer.writer.write(records[0] + records[1])
        await client.until(lambda: len(client.data) == len(b"begin one two three"))
        assert client.data == b"begin one two three"
        peer.abort()
        await client.until_call("lost")
        server.close()
        await server.wait_closed()

    run_ours(main())


@pytest.mark.parametrize(("version", "letter"), [("-tls1_3", "K"), ("-tls1_2", "R")])
def test_keys_that_change_in_the_middle(
    run: Runner, certificate: Any, version: str, letter: str
) -> None:
    """TLS 1.3's KeyUpdate, TLS 1.2's renegotiation: reads that make writes, and no data."""
    modern(run)
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("the openssl program, which can change keys, is not installed")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    context.options |= (
        1 << 8
    )  # SSL_OP_ALLOW_CLIENT_RENEGOTIATION, which the ssl module does not name

    async def main() -> None:
        made: list[Producer] = []

        def accept() -> Producer:
            made.append(Producer(pattern(4 * MIB)))
            return made[0]

        server, (host, port) = await listen(accept, ssl=context)
        child = await asyncio.create_subprocess_exec(
            program,
            *("s_client", version, "-quiet", "-no_ign_eof", "-connect", f"{host}:{port}"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b"before\n")
        await child.stdin.drain()
        while not made:
            await asyncio.sleep(0.01)
        served = made[0]
        await served.until(lambda: served.data == b"before\n")
        if letter == "K":
            served.go_on()  # the server is in the middle of a large write
        for _ in range(3):
            child.stdin.write(f"{letter}\n".encode())
            await child.stdin.drain()
            await asyncio.sleep(0.05)
        if letter == "R":
            served.go_on()  # s_client cannot do both at once
        received = await child.stdout.readexactly(4 * MIB)
        assert received == pattern(4 * MIB)
        child.stdin.write(b"after\n")
        await child.stdin.drain()
        await served.until(lambda: served.data.endswith(b"after\n"))
        assert served.data == b"before\nafter\n"
        served.transport.close()
        child.stdin.close()
        await child.stdout.read()
        await child.wait()
        await served.until_call("lost")
        server.close()
        await server.wait_closed()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # child watchers of Python 3.11
        run(main())
