"""TLS handshakes: names, certificates on both sides, and all the ways in which they fail."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from tests.loop.harness import Echo, Recorder, Runner, connected_pair, listen, rounds
from tests.loop.tls_peer import Authority, Peer


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def only_network_errors(run: Runner) -> None:
    """OpenSSL chooses the message of a failed handshake; the test checks that it is a network
    error.
    """
    assert all(issubclass(error, OSError) for error in run.complaints.errors)
    run.complaints.contexts.clear()


async def connect(address: tuple[str, int], **options: Any) -> tuple[asyncio.Transport, Recorder]:
    loop = asyncio.get_running_loop()
    return await loop.create_connection(Recorder, *address, **options)


async def echoed(client: Recorder, data: bytes) -> None:
    client.data.clear()
    client.transport.write(data)
    await client.until(lambda: len(client.data) >= len(data))
    assert client.data == data


async def end(client: Recorder, server: asyncio.AbstractServer) -> None:
    client.transport.close()
    await client.until_call("lost")
    server.close()
    await server.wait_closed()


# Names ------------------------------------------------------------------------------------------


def test_a_server_switches_contexts_by_name(run: Runner, authority: Authority) -> None:
    contexts = {name: authority.server(name) for name in ("one.test", "two.test")}
    asked: list[str | None] = []

    def choose(tls: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        asked.append(name)
        if name in contexts:
            tls.context = contexts[name]

    front = authority.server("front.test")
    front.sni_callback = choose  # type: ignore[assignment]

    async def main() -> None:
        server, address = await listen(Echo, ssl=front)
        for name in ("two.test", "one.test", "front.test"):
            transport, client = await connect(address, ssl=authority.client(), server_hostname=name)
            certificate = transport.get_extra_info("peercert")
            assert certificate["subjectAltName"] == (("DNS", name),)
            await echoed(client, name.encode())
            transport.close()
            await client.until_call("lost")
        server.close()
        await server.wait_closed()

    run(main())
    assert asked == ["two.test", "one.test", "front.test"]


def test_a_server_refuses_a_name(run: Runner, authority: Authority) -> None:
    front = authority.server("front.test")
    front.sni_callback = lambda *args: ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME  # type: ignore[assignment]

    async def main() -> None:
        server, address = await listen(Recorder, ssl=front)
        with pytest.raises((ssl.SSLError, ConnectionError)) as caught:
            await connect(address, ssl=authority.client(), server_hostname="front.test")
        if run.ours:  # the alert goes out before the connection is closed
            assert "unrecognized" in str(caught.value).lower().replace("_", " ")
        server.close()
        await rounds(20)

    run(main())
    only_network_errors(run)


def test_a_name_callback_that_raises_ends_the_handshake(
    run: Runner, authority: Authority, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*args: Any) -> None:
        raise ZeroDivisionError

    front = authority.server("front.test")
    front.sni_callback = fail  # type: ignore[assignment]

    async def main() -> None:
        server, address = await listen(Recorder, ssl=front)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await connect(address, ssl=authority.client(), server_hostname="front.test")
        server.close()
        await rounds(20)

    with pytest.MonkeyPatch.context() as patch:
        told: list[Any] = []
        patch.setattr("sys.unraisablehook", told.append)
        run(main())
    assert [one.exc_type for one in told] == [ZeroDivisionError]
    only_network_errors(run)


def test_a_connection_closed_by_the_name_callback(run_ours: Runner, authority: Authority) -> None:
    # Stock asyncio answers this with "cannot switch state".
    front = authority.server("front.test")
    one, other = connected_pair()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        plain, served = await loop.connect_accepted_socket(Recorder, other)

        def close(*args: Any) -> None:
            plain.get_protocol()._app_transport.abort()  # type: ignore[attr-defined]

        front.sni_callback = close  # type: ignore[assignment]
        upgrade = asyncio.ensure_future(loop.start_tls(plain, served, front, server_side=True))
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await loop.create_connection(
                Recorder, sock=one, ssl=authority.client(), server_hostname="front.test"
            )
        await served.until_call("lost")
        assert await upgrade is None

    run_ours(main())


def test_the_error_of_a_wrong_name_contains_both_names(run: Runner, authority: Authority) -> None:
    context = authority.server("right.test")

    async def main() -> None:
        server, address = await listen(Recorder, ssl=context)
        with pytest.raises(ssl.SSLCertVerificationError) as caught:
            await connect(address, ssl=authority.client(), server_hostname="wrong.test")
        assert "Hostname mismatch" in caught.value.verify_message
        assert "wrong.test" in caught.value.verify_message
        server.close()
        await rounds(20)

    run(main())
    only_network_errors(run)


def test_a_name_is_needed_where_one_is_checked(run: Runner, client_tls: ssl.SSLContext) -> None:
    one, other = connected_pair()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(ValueError, match="server_hostname"):
            await loop.create_connection(Recorder, sock=one, ssl=client_tls)

    run(main())
    one.close()
    other.close()


# Certificates of clients ------------------------------------------------------------------------


def test_a_client_certificate_is_seen_by_the_server(run: Runner, authority: Authority) -> None:
    context = authority.server("server.test")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(str(authority.file))
    seen: list[Any] = []

    class Served(Echo):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            seen.append(transport.get_extra_info("peercert")["subjectAltName"])

    async def main() -> None:
        server, address = await listen(Served, ssl=context)
        theirs = authority.client()
        theirs.load_cert_chain(*authority.issue("user.test"))
        _, client = await connect(address, ssl=theirs, server_hostname="server.test")
        await echoed(client, b"hello")
        assert seen == [(("DNS", "user.test"),)]
        await end(client, server)

    run(main())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("trouble", ["missing", "wrong"])
def test_a_client_without_a_good_certificate(
    run: Runner, authority: Authority, tmp_path: Path, trouble: str, version: ssl.TLSVersion
) -> None:
    context = authority.server("server.test")
    context.verify_mode = ssl.CERT_REQUIRED
    context.maximum_version = version
    context.load_verify_locations(str(authority.file))
    made: list[asyncio.Protocol] = []

    class Served(Recorder):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            made.append(self)

    async def main() -> ssl.SSLError | OSError | None:
        server, address = await listen(Served, ssl=context)
        theirs = authority.client()
        if trouble == "wrong":
            theirs.load_cert_chain(*Authority(tmp_path, "strangers").issue("user.test"))
        problem: Any
        try:
            _, client = await connect(address, ssl=theirs, server_hostname="server.test")
        except OSError as error:  # TLS 1.2: the server sends the handshake's last message
            problem = error
        else:  # TLS 1.3: the client is done before the server has looked at its certificate
            await client.until_call("lost")
            problem = client.lost_with
        server.close()
        await server.wait_closed()
        return problem  # type: ignore[no-any-return]

    problem = run(main())
    assert made == []
    if run.ours:
        # The server's alert names the missing certificate, and arrives before the end of the
        # connection.
        assert isinstance(problem, ssl.SSLError), problem
        word = {"missing": ("required", "handshake failure"), "wrong": ("unknown ca",)}[trouble]
        assert any(one in str(problem).lower().replace("_", " ") for one in word), problem
    only_network_errors(run)


# Failures ---------------------------------------------------------------------------------------


def test_garbage_instead_of_a_client_hello(run: Runner, server_tls: ssl.SSLContext) -> None:
    made: list[asyncio.Protocol] = []

    class Served(Recorder):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            made.append(self)

    async def main() -> None:
        server, address = await listen(Served, ssl=server_tls)
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", bytes(5000), b"\x16\x03\x01\xff\xff" * 100):
            _, client = await connect(address)
            client.transport.write(garbage)
            await client.until_call("lost")
        server.close()
        await server.wait_closed()

    run(main())
    assert made == []
    only_network_errors(run)


def test_a_peer_that_hangs_up_in_the_handshake(run: Runner, client_tls: ssl.SSLContext) -> None:
    one, other = connected_pair()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        connecting = asyncio.ensure_future(
            loop.create_connection(Recorder, sock=one, ssl=client_tls, server_hostname="localhost")
        )
        await rounds()
        other.close()
        with pytest.raises(ConnectionError):
            await connecting

    run(main())


def test_a_handshake_that_takes_too_long(run: Runner, client_tls: ssl.SSLContext) -> None:
    one, other = connected_pair()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(
            ConnectionAbortedError, match=r"SSL handshake is taking longer than 0\.05 seconds"
        ):
            await loop.create_connection(
                Recorder,
                sock=one,
                ssl=client_tls,
                server_hostname="localhost",
                ssl_handshake_timeout=0.05,
            )

    run(main())
    other.close()


def test_timeouts_have_to_be_positive(run: Runner, client_tls: ssl.SSLContext) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for value in (0, -1):
            one, other = connected_pair()
            with pytest.raises(ValueError, match=f"should be a positive number, got {value}"):
                await loop.create_connection(
                    Recorder,
                    sock=one,
                    ssl=client_tls,
                    server_hostname="localhost",
                    ssl_handshake_timeout=value,
                )
            one.close()
            other.close()

    run(main())


def test_cancelling_a_connect_in_the_handshake(run: Runner, client_tls: ssl.SSLContext) -> None:
    one, other = connected_pair()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        protocol = Recorder()
        connecting = asyncio.ensure_future(
            loop.create_connection(
                lambda: protocol, sock=one, ssl=client_tls, server_hostname="localhost"
            )
        )
        await rounds()
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        # The peer sees the end; the protocol never got connection_made.
        reader, writer = await asyncio.open_connection(sock=other)
        assert (await reader.read())[:1] == b"\x16"
        writer.close()
        assert protocol.calls == []

    run(main())


def test_a_server_goes_on_after_failed_handshakes(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def main() -> None:
        server, address = await listen(Echo, ssl=server_tls)
        for _ in range(20):
            socket.create_connection(address).close()
        peer = await Peer.connect(address, client_tls)
        peer.abort()
        _, client = await connect(address, ssl=client_tls, server_hostname="localhost")
        await echoed(client, b"still here")
        await end(client, server)

    run(main())
    only_network_errors(run)


def test_a_protocol_factory_that_raises(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    def fail() -> asyncio.Protocol:
        raise ZeroDivisionError

    async def main() -> None:
        server, address = await listen(fail, ssl=server_tls)
        if run.ours:  # stock asyncio leaves the connection open
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await connect(address, ssl=client_tls, server_hostname="localhost")
        server.close()
        await rounds(20)

    run(main())
    # Stock asyncio reports it only in debug mode.
    assert run.complaints.errors in ([], [ZeroDivisionError])
    run.complaints.contexts.clear()


def test_a_failed_handshake_is_reported_in_debug_mode(
    run: Runner, server_tls: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_debug(True)
        server, address = await listen(Recorder, ssl=server_tls)
        _, client = await connect(address)
        client.transport.write(b"GET / HTTP/1.1\r\n\r\n")
        await client.until_call("lost")
        server.close()
        await rounds(20)

    with caplog.at_level("DEBUG", logger="asyncio"):
        run(main())
    assert [context["message"] for context in run.complaints.contexts] == [
        "Error on transport creation for incoming connection"
    ]
    assert issubclass(run.complaints.errors[0], ssl.SSLError)
    run.complaints.contexts.clear()
    assert any("starts SSL handshake" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("turns", range(1, 8))
def test_a_connect_that_is_cancelled_at_any_turn_leaves_nothing(
    run: Runner, client_tls: ssl.SSLContext, turns: int
) -> None:
    one, other = connected_pair()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        protocol = Recorder()
        connecting = asyncio.ensure_future(
            loop.create_connection(
                lambda: protocol, sock=one, ssl=client_tls, server_hostname="localhost"
            )
        )
        for _ in range(turns):
            await asyncio.sleep(0)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        if run.ours:  # stock asyncio continues with a handshake that had not begun
            reader, writer = await asyncio.open_connection(sock=other)
            await reader.read()
            writer.close()
        assert protocol.calls == []

    run(main())
    other.close()
    one.close()
