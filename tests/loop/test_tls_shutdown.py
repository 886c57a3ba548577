"""Ends of TLS connections: answered and unanswered close_notify, ends of file, aborts, servers that close."""

from __future__ import annotations

import asyncio
import ssl
import sys
import threading
from typing import Any

import pytest

from tests.loop.harness import Recorder, Runner, listen, rounds, until_asleep
from tests.loop.test_tls_data import end, pattern, tls_pair
from tests.loop.tls_peer import Peer, modern

MIB = 1 << 20
NO_SHUTDOWN_TIMEOUT = sys.version_info < (3, 11)


async def served_by(
    context: ssl.SSLContext, client_tls: ssl.SSLContext, make: Any = Recorder, **options: Any
) -> tuple[Peer, Any, asyncio.AbstractServer]:
    """(a scripted client after its handshake, the server's protocol, the server)."""
    made: list[Any] = []

    def accept() -> Any:
        made.append(make())
        return made[0]

    server, address = await listen(accept, ssl=context, **options)
    peer = await Peer.connect(address, client_tls)
    await peer.handshake()
    await made[0].until_call("made")
    return peer, made[0], server


def test_both_sides_send_close_notify(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    modern(run)

    async def main() -> None:
        peer, served, server = await served_by(server_tls, client_tls)
        served.transport.write(b"last words")
        served.transport.close()
        assert served.transport.is_closing()
        served.transport.close()
        assert await peer.read_exactly(10) == b"last words"
        assert await peer.read() == b""
        assert served.calls == ["made"]
        peer.say_goodbye()
        await served.until_call("lost")
        assert served.calls == ["made", "eof", "lost"]
        assert served.lost_with is None
        peer.abort()
        server.close()
        await server.wait_closed()

    run(main())


def test_the_peer_sends_close_notify_first(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    modern(run)

    async def main() -> None:
        peer, served, server = await served_by(server_tls, client_tls)
        peer.write(b"data")
        peer.say_goodbye()
        await served.until_call("lost")
        assert served.data == b"data"
        assert served.calls == ["made", "data", "eof", "lost"]
        assert served.lost_with is None
        assert await peer.read() == b""
        peer.abort()
        server.close()
        await server.wait_closed()

    run(main())


def test_a_peer_that_never_answers_goodbye(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    if NO_SHUTDOWN_TIMEOUT:
        pytest.skip("ssl_shutdown_timeout came with Python 3.11")

    async def main() -> None:
        peer, served, server = await served_by(server_tls, client_tls, ssl_shutdown_timeout=0.05)
        served.transport.close()
        await served.until_call("lost")
        assert isinstance(served.lost_with, asyncio.TimeoutError)
        assert str(served.lost_with) == "SSL shutdown timed out"
        peer.abort()
        server.close()
        await server.wait_closed()

    run(main())


def test_an_end_of_file_without_goodbye(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def main() -> None:
        peer, served, server = await served_by(server_tls, client_tls)
        peer.write(b"data")
        peer.writer.write_eof()
        await served.until_call("lost")
        assert served.data == b"data"
        assert served.calls == ["made", "data", "eof", "lost"]
        assert served.lost_with is None
        server.close()
        await server.wait_closed()

    run(main())


def test_a_reset(run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
    async def main() -> None:
        peer, served, server = await served_by(server_tls, client_tls)
        peer.abort()
        await served.until_call("lost")
        assert isinstance(served.lost_with, ConnectionResetError)
        assert "eof" not in served.calls
        server.close()
        await server.wait_closed()

    run(main())


def test_a_half_closed_peer_still_gets_what_was_written(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    data = pattern(8 * MIB)

    async def main() -> None:
        peer, served, server = await served_by(server_tls, client_tls)
        served.transport.write(data)
        peer.writer.write_eof()
        assert await peer.read_exactly(len(data)) == data
        await served.until_call("lost")
        assert served.lost_with is None
        peer.abort()
        server.close()
        await server.wait_closed()

    run(main())


def test_a_peer_that_sent_close_notify_still_gets_written_data(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    if not run.ours:
        pytest.skip("stock asyncio may never end here, depending on what the kernel's buffers take")
    data = pattern(8 * MIB)

    async def main() -> None:
        peer, served, server = await served_by(server_tls, client_tls)
        served.transport.write(data[: 4 * MIB])
        served.transport.write(data[4 * MIB :])
        peer.say_goodbye()
        received = bytearray()
        while piece := await peer.read():
            received += piece
        assert received == data
        await served.until_call("lost")
        assert served.lost_with is None
        peer.abort()
        server.close()
        await server.wait_closed()

    run(main())


def test_close_sends_the_backlog_first(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    data = pattern(16 * MIB)

    async def main() -> None:
        client, served, server = await tls_pair(server_tls, client_tls)
        client.transport.write(data)
        await end(client, server)
        await served.until_call("lost")
        assert served.data == data
        assert served.lost_with is None

    run(main())


def test_writes_after_close_go_nowhere(
    run: Runner,
    server_tls: ssl.SSLContext,
    client_tls: ssl.SSLContext,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        client, served, server = await tls_pair(server_tls, client_tls)
        client.transport.close()
        for _ in range(10):
            client.transport.write(b"too late")
        await client.until_call("lost")
        await served.until_call("lost")
        assert served.data == b""
        server.close()
        await server.wait_closed()

    modern(run)
    run(main())
    assert "SSL connection is closed" in caplog.text


def test_close_in_data_received(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    modern(run)

    class Closing(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.transport.write(b"goodbye")
            self.transport.close()

    async def main() -> None:
        client, served, server = await tls_pair(server_tls, client_tls, Closing)
        client.transport.write(b"hello")
        await client.until_call("lost")
        await served.until_call("lost")
        assert client.data == b"goodbye"
        assert client.calls == ["made", "data", "eof", "lost"]
        server.close()
        await server.wait_closed()

    run(main())


@pytest.mark.parametrize("how", ["close", "abort"])
def test_an_end_in_connection_made(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext, how: str
) -> None:
    class Short(Recorder):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            getattr(transport, how)()

    async def main() -> None:
        server, address = await listen(Short, ssl=server_tls)
        loop = asyncio.get_running_loop()
        try:
            transport, client = await loop.create_connection(
                Recorder, *address, ssl=client_tls, server_hostname="localhost"
            )
        except ConnectionError:  # the reset overtook the last flight
            assert how == "abort"
        else:
            await client.until_call("lost")
            assert transport.is_closing()
        server.close()
        await server.wait_closed()

    modern(run)
    run(main())
    assert all(issubclass(error, OSError) for error in run.complaints.errors)
    run.complaints.contexts.clear()


def test_abort_drops_what_waits(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def main() -> None:
        client, served, server = await tls_pair(server_tls, client_tls)
        served.transport.pause_reading()
        client.transport.write(bytes(64 * MIB))
        client.transport.abort()
        await client.until_call("lost")
        assert client.lost_with is None
        assert client.transport.get_write_buffer_size() == 0
        served.transport.resume_reading()
        await served.until_call("lost")
        assert len(served.data) < 64 * MIB
        server.close()
        await server.wait_closed()

    modern(run)
    run(main())


def test_an_end_of_file_waits_for_a_paused_reader(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    modern(run)

    async def main() -> None:
        peer, served, server = await served_by(server_tls, client_tls)
        served.transport.pause_reading()
        peer.write(b"data")
        peer.writer.write_eof()
        await rounds()
        assert served.calls == ["made"]
        served.transport.resume_reading()
        await served.until_call("lost")
        assert served.calls == ["made", "data", "eof", "lost"]
        server.close()
        await server.wait_closed()

    run(main())


def test_close_of_a_paused_reader_after_the_end_of_file(
    run_ours: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    # Stock asyncio forgets such a connection.
    async def main() -> None:
        peer, served, server = await served_by(server_tls, client_tls)
        served.transport.pause_reading()
        peer.writer.write_eof()
        await rounds()
        served.transport.close()
        await served.until_call("lost")
        server.close()
        await server.wait_closed()

    run_ours(main())


def test_a_record_that_was_tampered_with(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    modern(run)

    async def main() -> None:
        peer, served, server = await served_by(server_tls, client_tls)
        peer.tls.write(b"good")
        peer.flush()
        peer.tls.write(b"bad")
        record = bytearray(peer.outgoing.read())
        record[-1] ^= 1
        peer.writer.write(record)
        await served.until_call("lost")
        assert isinstance(served.lost_with, ssl.SSLError)
        if run.ours:  # data received intact is not lost, and the peer gets the reason
            assert served.data == b"good"
            with pytest.raises(ssl.SSLError, match="(?i)bad.record.mac"):
                await peer.read()
        peer.abort()
        server.close()
        await server.wait_closed()

    run(main())


def test_eof_received_cannot_keep_tls_open(
    run: Runner,
    server_tls: ssl.SSLContext,
    client_tls: ssl.SSLContext,
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Keeping(Recorder):
        def __init__(self) -> None:
            super().__init__()
            self.eof_answer = True

    async def main() -> None:
        client, served, server = await tls_pair(server_tls, client_tls, Keeping)
        await end(client, server)
        await served.until_call("lost")

    modern(run)
    run(main())
    assert "returning true from eof_received() has no effect when using ssl" in caplog.text


def test_a_loop_that_closes_under_open_connections(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def main() -> Any:
        client, served, server = await tls_pair(server_tls, client_tls)
        client.transport.write(bytes(100_000))
        server.close()
        return client, served

    client, served = run(main())
    for protocol in (client, served):
        assert protocol.transport.get_extra_info("cipher")


def test_transports_outlive_their_loop(
    run_ours: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def main() -> Any:
        client, served, _ = await tls_pair(server_tls, client_tls)
        return client, served

    client, served = run_ours(main())
    for transport in (client.transport, served.transport):
        for call in (transport.close, transport.abort, lambda: transport.write(b"too late")):  # noqa: B023
            with pytest.raises(RuntimeError, match="Event loop is closed"):
                call()
        assert transport.get_write_buffer_size() == 0
        assert transport.get_extra_info("cipher")


def test_another_thread_is_refused_and_breaks_nothing(
    run_ours: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    # While the loop's thread sleeps in the kernel, no other thread may use its transports.
    async def main() -> None:
        loop = asyncio.get_running_loop()
        client, served, server = await tls_pair(server_tls, client_tls)
        transport = client.transport
        refused: list[str] = []

        def meddle() -> None:
            until_asleep(loop)
            for call in (
                lambda: transport.write(b"lost"),
                lambda: transport.writelines([b"lost"]),
                transport.close,
                transport.abort,
            ):
                try:
                    call()
                except RuntimeError as error:
                    refused.append(str(error))
            loop.call_soon_threadsafe(done.set_result, None)

        done = loop.create_future()
        threading.Thread(target=meddle).start()
        await done
        assert len(refused) == 4
        assert all("call_soon_threadsafe" in text for text in refused)
        client.transport.write(b"still whole")
        await served.until(lambda: served.data == b"still whole")
        await end(client, server)

    run_ours(main())


def test_a_peer_that_goes_on_sending_gets_what_was_written(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    # OpenSSL has no goodbye with a peer that still sends.
    modern(run)
    data = pattern(4 * MIB)

    async def main() -> None:
        peer, served, server = await served_by(server_tls, client_tls)
        served.transport.pause_reading()
        peer.write(b"more")
        await rounds()
        served.transport.write(data)
        served.transport.close()
        if run.ours:  # stock asyncio drops the rest
            received = bytearray()
            while piece := await peer.read():
                received += piece
            assert received == data
        await served.until_call("lost")
        assert isinstance(served.lost_with, ssl.SSLError)
        assert served.data == b""
        peer.abort()
        server.close()
        await server.wait_closed()

    run(main())


def test_a_peer_that_goes_on_sending_and_never_reads(
    run_ours: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def main() -> None:
        peer, served, server = await served_by(server_tls, client_tls, ssl_shutdown_timeout=0.1)
        peer.reader._transport.pause_reading()  # type: ignore[attr-defined]
        served.transport.pause_reading()
        peer.write(b"more")
        await rounds()
        served.transport.write(bytes(64 * MIB))
        served.transport.close()
        await served.until_call("lost")
        assert isinstance(served.lost_with, OSError)
        peer.abort()
        server.close()
        await server.wait_closed()

    if NO_SHUTDOWN_TIMEOUT:
        pytest.skip("ssl_shutdown_timeout came with Python 3.11")
    run_ours(main())


@pytest.mark.parametrize("close", [True, False])
def test_a_peer_that_ended_its_side_and_never_reads(
    run_ours: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext, close: bool
) -> None:
    # CPython 3.14's own loop does this too; older ones wait forever.
    async def main() -> None:
        peer, served, server = await served_by(server_tls, client_tls, ssl_shutdown_timeout=0.1)
        peer.reader._transport.pause_reading()  # type: ignore[attr-defined]
        served.transport.write(bytes(64 * MIB))
        await rounds(20)
        if close:
            served.transport.close()
        peer.writer.write_eof()
        await served.until_call("lost")
        assert isinstance(served.lost_with, asyncio.TimeoutError)
        peer.abort()
        server.close()
        await server.wait_closed()

    if NO_SHUTDOWN_TIMEOUT:
        pytest.skip("ssl_shutdown_timeout came with Python 3.11")
    run_ours(main())
