"""Connections: their start, their properties, and every kind of end."""

from __future__ import annotations

import asyncio
import socket

import pytest

from tests.quic.harness import eventually
from tests.quic.native.connection_pairs import (
    client_config,
    connecting,
    listening,
    pair,
    server_config,
    settled,
)
from tests.support.free_ports import free_port
from uringcore import quic
from uringcore.quic.connection import QuicConnection


def test_both_ends_have_addresses_and_certificates(run_anywhere, pki):
    async def main():
        async with pair(pki) as (one, other):
            assert one.alpn == other.alpn == "test"
            assert one.peer_address == other.local_address
            assert other.peer_address[0] == "127.0.0.1"
            assert other.peer_address[1] == one.local_address[1]
            der = pki.server.der
            assert one.peer_certificate == der and one.peer_certificates[0] == der
            assert other.peer_certificate is None and other.peer_certificates == []
            assert not one.is_closed and not one.is_resumed
            await one.ping()
            await other.ping()
            assert one.stats()["rtt"] > 0
            assert "open" in repr(one)
        assert one.is_closed and other.is_closed and "closed" in repr(one)
        assert one.stats()["packets_sent"] > 0

    run_anywhere(main())


def test_names_and_awaiting(run_anywhere, pki):
    async def main():
        certificate = (str(pki.server.certfile), pki.server.keyfile.read_bytes())
        listener = await quic.listen("::", 0, certificate=certificate, alpn=["a", "test"])
        config = client_config(pki, authorities=pki.authority.pem)
        connection = await quic.connect("localhost", listener.address[1], config)
        async with await listener.accept() as other:
            assert other.server_name == "localhost" and other.alpn == "test"
            async with connection.open_stream() as stream:
                await stream.send(b"x")
                assert await (await other.accept_stream()).readexactly(1) == b"x"
            connection.close()
            await connection.wait_closed()
        assert not listener.is_closed
        listener.close()
        await listener.wait_closed()
        assert listener.is_closed

    run_anywhere(main())


def test_a_client_that_shows_a_certificate(run_anywhere, pki):
    async def main():
        server = {"client_authorities": pki.authority.certfile}
        client = {"certificate": (pki.client.certfile, pki.client.keyfile)}
        async with pair(pki, client, server) as (one, other):
            assert other.peer_certificate == pki.client.der
            await one.ping()

    run_anywhere(main())


def test_a_session_is_resumed(run_anywhere, pki):
    async def main():
        async with listening(pki) as listener:
            async with connecting(pki, listener) as one:
                await eventually(lambda: one.session_ticket is not None)
                ticket = one.session_ticket
            async with connecting(pki, listener, session_ticket=ticket) as two:
                assert two.is_resumed

    run_anywhere(main())


def test_every_waiter_gets_the_code_and_reason_of_a_close(run_anywhere, pki):
    async def main():
        async with pair(pki) as (one, other):
            async with other.open_stream() as stream:
                await stream.send(b"x")
                waiting = [
                    other.accept_stream(),
                    other.accept_uni_stream(),
                    other.receive_datagram(),
                    other.receive_datagrams(),
                    stream.read(),
                    stream.read(1),
                    stream.wait_finished(),
                    other.streams().__anext__(),
                ]
                tasks = [asyncio.ensure_future(one) for one in waiting]
                await settled(tasks[-1])
                one.close(42, "the reason")
                await asyncio.wait(tasks)
                errors = [task.exception() for task in tasks]
                for error in errors:
                    assert type(error) is quic.ConnectionClosedError
                    assert (error.code, error.reason) == (42, "the reason")
                # Each caller gets its own exception object: a traceback grows with each `raise`.
                assert len({id(error) for error in errors}) == len(errors)
                for call in (lambda: other.open_stream(), lambda: stream.send(b"x"), other.ping):
                    with pytest.raises(quic.ConnectionClosedError):
                        await call()
            with pytest.raises(quic.ConnectionClosedError, match="this side"):
                await one.accept_uni_stream()

    run_anywhere(main())


def test_received_data_is_read_after_the_peers_close(run_anywhere, pki):
    async def main():
        async with pair(pki) as (one, other):
            async with one.open_uni_stream() as whole:
                await whole.send(b"whole" * 1000)
            part = await one.open_uni_stream()
            await part.send(b"part")
            await one.ping()
            await whole.wait_finished()
            first = await other.accept_uni_stream()
            one.close()
            await other.wait_closed()
            assert await first.readexactly(5) == b"whole"
            assert await first.read() == b"whole" * 999
            second = await other.accept_uni_stream()
            assert await second.read(100) == b"part"
            with pytest.raises(quic.ConnectionClosedError):
                await second.read(100)

    run_anywhere(main())


def test_leaving_the_block_waits_for_what_was_finished(run_anywhere, pki):
    message = bytes(300_000)

    async def main():
        async with listening(pki) as listener:

            async def client():
                async with connecting(pki, listener) as one:
                    async with one.open_uni_stream() as stream:
                        await stream.send(message)

            async def server():
                async with await listener.accept() as other:
                    stream = await other.accept_uni_stream()
                    return await stream.read()

            _, got = await asyncio.gather(client(), server())
            assert got == message

    run_anywhere(main())


def test_a_peer_that_does_not_read_does_not_keep_a_block(run_anywhere, pki):
    async def main():
        async with listening(pki, receive_window=1000) as listener:
            async with connecting(pki, listener, close_timeout=0.05) as one:
                async with one.open_uni_stream() as stream:
                    await stream.send(bytes(100_000))
            assert one.is_closed

    run_anywhere(main())


def test_a_block_that_fails_closes_at_once(run_anywhere, pki):
    async def main():
        async with listening(pki, receive_window=1000) as listener:
            with pytest.raises(RuntimeError, match="of the program"):
                async with connecting(pki, listener, close_timeout=1000) as one:
                    async with one.open_uni_stream() as stream:
                        await stream.send(bytes(100_000))
                        await stream.finish()
                        raise RuntimeError("of the program")
            assert one.is_closed

    run_anywhere(main())


def test_an_idle_time_out_has_its_own_error(run_anywhere, pki):
    async def main():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as nobody:
            nobody.bind(("127.0.0.1", 0))
            config = client_config(pki, idle_timeout=0.3)
            with pytest.raises(quic.QuicIdleTimeoutError) as caught:
                await quic.connect(*nobody.getsockname(), config)
            assert isinstance(caught.value, quic.QuicError)
            assert isinstance(caught.value, TimeoutError)

    run_anywhere(main())


def test_each_failure_of_a_handshake_has_its_own_error(run_anywhere, pki):
    async def main():
        async with listening(pki) as listener:
            with pytest.raises(quic.QuicCertificateError):
                await connecting(pki, listener, authorities=pki.stranger.certfile)
            with pytest.raises(quic.QuicAlpnError) as caught:
                await connecting(pki, listener, alpn=["other"])
            assert caught.value.code == 0x178
            async with connecting(pki, listener, verify=False, authorities=None):
                pass
            address = listener.address
        with pytest.raises(quic.QuicConnectionRefusedError):
            await quic.connect(*address, client_config(pki))
        with pytest.raises(OSError):
            await quic.connect("no-such-host.invalid", 4433, client_config(pki))

    run_anywhere(main())


def test_a_listener_that_is_closed(run_anywhere, pki):
    async def main():
        async with listening(pki) as listener:
            accepting = await settled(asyncio.ensure_future(listener.accept()))

            async def iterate():
                return [one async for one in listener]

            iterating = await settled(asyncio.ensure_future(iterate()))
            async with connecting(pki, listener) as one:
                other = await accepting
                accepting = await settled(asyncio.ensure_future(listener.accept()))
                listener.close(7, "over")
                listener.close()
                with pytest.raises(quic.ListenerClosedError):
                    await accepting
                assert await iterating == []
                with pytest.raises(quic.ListenerClosedError):
                    await listener.accept()
                with pytest.raises(quic.ConnectionClosedError) as caught:
                    await one.accept_stream()
                assert (caught.value.code, caught.value.reason) == (7, "over")
                await other.wait_closed()

    run_anywhere(main())


def test_a_listener_that_takes_no_more(run_anywhere, pki):
    async def main():
        async with listening(pki) as listener:
            async with connecting(pki, listener) as one:
                async with await listener.accept():
                    listener.stop_accepting()
                    with pytest.raises(quic.QuicConnectionRefusedError):
                        await connecting(pki, listener)
                    await one.ping()

    run_anywhere(main())


def test_a_client_goes_to_another_network(run_anywhere, pki):
    async def main():
        async with pair(pki) as (one, other):
            before = other.peer_address
            await one.migrate(("127.0.0.1", 0))
            async with one.open_stream() as stream:
                await stream.send(b"from there")
                await stream.finish()
                there = await other.accept_stream()
                assert await there.read() == b"from there"
            assert other.peer_address != before
            assert other.peer_address[1] == one.local_address[1]
            with pytest.raises(RuntimeError):
                await other.migrate()

    run_anywhere(main())


def test_an_entered_object_cannot_be_entered_again(run_anywhere, pki):
    async def main():
        async with listening(pki) as listener:
            making = connecting(pki, listener)
            for _ in range(2):
                async with making as one:
                    with pytest.raises(RuntimeError, match="entered already"):
                        await making.__aenter__()
                    opening = one.open_stream()
                    async with opening as stream:
                        with pytest.raises(RuntimeError, match="entered already"):
                            await opening.__aenter__()
                        await stream.send(b"x")
                        assert one.stats()["streams_open"] == 1
                assert one.is_closed
            accepted = await listener.accept(), await listener.accept()
            assert all(other.is_closed for other in accepted)
        # Two tasks cannot enter it at once either. An attempt that fails may be repeated.
        making = connecting(pki, listener)
        first = await settled(asyncio.ensure_future(making.__aenter__()))
        with pytest.raises(RuntimeError, match="entered already"):
            await making.__aenter__()
        for failing in (first, making.__aenter__()):
            with pytest.raises(quic.QuicConnectionRefusedError):
                await failing

    run_anywhere(main())


def test_a_handshake_that_was_complete_stays_so(run_anywhere, pki):
    async def main():
        async with pair(pki) as (one, other):
            one.close()
            await other.wait_closed()
            for each in (one, other):
                await each.wait_connected()

    run_anywhere(main())


def test_each_ping_has_a_number_of_its_own(run_anywhere, pki, monkeypatch):
    numbers = []
    send = QuicConnection.send_ping

    def send_ping(self, uid):
        numbers.append(uid)
        send(self, uid)

    monkeypatch.setattr(QuicConnection, "send_ping", send_ping)

    async def main():
        async with pair(pki) as (one, _):
            for _ in range(10):
                await one.ping()
        assert len(set(numbers)) == len(numbers) == 10

    run_anywhere(main())


def test_a_port_can_be_used_again_at_once(run_anywhere, pki):
    async def main():
        async with listening(pki) as listener:
            port = free_port()
            for _ in range(3):
                config = client_config(pki)
                async with quic.connect(
                    *listener.address, config, local_address=("127.0.0.1", port)
                ) as one:
                    assert one.local_address[1] == port

    run_anywhere(main())


def test_the_keywords_go_before_the_settings(run_anywhere, pki):
    async def main():
        config = server_config(pki, alpn=["x"])
        async with quic.listen("127.0.0.1", 0, config, alpn=["y"]) as listener:
            async with quic.connect(*listener.address, client_config(pki), alpn=["y"]) as one:
                assert one.alpn == "y"
            with pytest.raises(quic.QuicAlpnError):
                await quic.connect(*listener.address, client_config(pki, alpn=["x"]))

    run_anywhere(main())
