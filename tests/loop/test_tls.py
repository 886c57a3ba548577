"""TLS through an `ssl.SSLContext`."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from tests.loop.harness import Echo, Recorder, Runner, connected_pair, listen, rounds


def test_echo_over_tls(run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        server, address = await listen(Echo, ssl=server_tls)
        transport, client = await loop.create_connection(
            Recorder, *address, ssl=client_tls, server_hostname="localhost"
        )
        for size in (1, 20_000, 1_500_000):
            message = bytes(range(251)) * (size // 251 + 1)
            client.data.clear()
            transport.write(message)
            await client.until(lambda: len(client.data) >= len(message))  # noqa: B023
            assert client.data == message
        assert transport.get_extra_info("sslcontext") is client_tls
        assert transport.get_extra_info("peercert")["subject"]
        assert transport.get_extra_info("cipher")[1] in ("TLSv1.2", "TLSv1.3")
        assert transport.get_extra_info("peername") == address
        assert transport.get_extra_info("ssl_object") is not None
        transport.close()
        await client.until_call("lost")
        assert client.lost_with is None
        server.close()
        await server.wait_closed()

    run(main())


def test_many_tls_streams_at_once(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server_tls)
        port = server.sockets[0].getsockname()[1]

        async def talk(index: int) -> None:
            reader, writer = await asyncio.open_connection("localhost", port, ssl=client_tls)
            message = bytes([index]) * 100_000
            writer.write(message)
            await writer.drain()
            assert await reader.readexactly(len(message)) == message
            writer.close()
            await writer.wait_closed()

        await asyncio.gather(*(talk(index) for index in range(25)))
        server.close()

    run(main())


def test_an_untrusted_certificate_is_refused(run: Runner, server_tls: ssl.SSLContext) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        server, address = await listen(Recorder, ssl=server_tls)
        with pytest.raises(ssl.SSLCertVerificationError, match="self.signed"):
            await loop.create_connection(
                Recorder,
                *address,
                ssl=ssl.create_default_context(),
                server_hostname="localhost",
            )
        server.close()
        await rounds(20)

    run(main())
    # The server sees the client's alert; OpenSSL chooses the message.
    assert all(issubclass(error, OSError) for error in run.complaints.errors)
    run.complaints.contexts.clear()


def test_a_wrong_name_is_refused(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        server, address = await listen(Recorder, ssl=server_tls)
        with pytest.raises(ssl.SSLCertVerificationError, match="(?i)hostname mismatch"):
            await loop.create_connection(
                Recorder, *address, ssl=client_tls, server_hostname="elsewhere.example"
            )
        server.close()
        await rounds(20)

    run(main())
    assert all(issubclass(error, OSError) for error in run.complaints.errors)
    run.complaints.contexts.clear()


def test_a_silent_client_runs_into_the_handshake_timeout(
    run: Runner, server_tls: ssl.SSLContext
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        server, address = await listen(Recorder, ssl=server_tls, ssl_handshake_timeout=0.1)
        _, client = await loop.create_connection(Recorder, *address)
        await client.until_call("lost")
        server.close()
        await rounds()

    run(main())
    # asyncio reports a handshake that the peer let time out only in its debug log.
    assert all(issubclass(error, OSError) for error in run.complaints.errors)
    run.complaints.contexts.clear()


def test_start_tls_upgrades_a_connection(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = connected_pair()
        plain, client = await loop.create_connection(Recorder, sock=one)
        plain_server, served = await loop.connect_accepted_socket(Recorder, other)
        plain.write(b"STARTTLS\n")
        await served.until(lambda: served.data == b"STARTTLS\n")
        served.data.clear()
        secured, secured_server = await asyncio.gather(
            loop.start_tls(plain, client, client_tls, server_hostname="localhost"),
            loop.start_tls(plain_server, served, server_tls, server_side=True),
        )
        assert secured is not None
        assert secured_server is not None
        secured.write(b"s" * 300_000)
        await served.until(lambda: len(served.data) == 300_000)
        secured_server.write(b"back")
        await client.until(lambda: client.data == b"back")
        secured.close()
        await client.until_call("lost")
        await served.until_call("lost")

    run(main())


def test_tls_flow_control(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        accepted: asyncio.Queue[Recorder] = asyncio.Queue()

        class Slow(Recorder):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                super().connection_made(transport)
                self.transport.pause_reading()
                accepted.put_nowait(self)

        server, address = await listen(Slow, ssl=server_tls)
        transport, client = await loop.create_connection(
            Recorder, *address, ssl=client_tls, server_hostname="localhost"
        )
        slow = await accepted.get()
        written = 0
        while "pause" not in client.calls:
            transport.write(b"t" * 65536)
            written += 65536
            await asyncio.sleep(0)
            assert written < 1 << 28
        slow.transport.resume_reading()
        await client.until_call("resume")
        await slow.until(lambda: len(slow.data) == written)
        transport.close()
        await client.until_call("lost")
        server.close()
        await rounds()

    run(main())
