"""A name with several addresses: the connection is made to the first address that answers (RFC 8305)."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import socket
import warnings
from typing import ClassVar

import pytest

from tests.quic.harness import Echo, Recorder, completed, eventually, serving, ticket_of
from tests.support.free_ports import free_port
from uringcore.asyncio import connect, serve
from uringcore.http3._unpooled_connection import connect as http3_connect
from uringcore.quic import events
from uringcore.quic._errors import (
    QuicCertificateError,
    QuicConnectionError,
    QuicConnectionRefusedError,
    QuicIdleTimeoutError,
    QuicVersionError,
)
from uringcore.quic._happy_eyeballs import interleaved
from uringcore.quic._open_endpoint import create_quic_endpoint
from uringcore.quic.packet import QuicProtocolVersion

NAME = "several.example"


class Names:
    """Replaces the resolver: `NAME` has these hosts, in this order."""

    def __init__(self, loop, monkeypatch, *hosts):
        self.hosts = hosts
        self._loop = loop
        self._getaddrinfo = loop.getaddrinfo
        monkeypatch.setattr(loop, "getaddrinfo", self.getaddrinfo, raising=False)

    async def getaddrinfo(self, host, port, **options):
        if host != NAME:
            return await self._getaddrinfo(host, port, **options)
        found = []
        for one in self.hosts:
            found += await self._getaddrinfo(one, port, type=socket.SOCK_DGRAM)
        return found


@contextlib.contextmanager
def silent(*hosts, port):
    """Sockets that receive and never answer; yields them."""
    with contextlib.ExitStack() as stack:
        found = []
        for host in hosts:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            sock = stack.enter_context(socket.socket(family, socket.SOCK_DGRAM))
            sock.setblocking(False)
            sock.bind((host, port))
            found.append(sock)
        yield found


def heard(sock):
    """Returns the number of datagrams that wait at a socket."""
    count = 0
    with contextlib.suppress(BlockingIOError):
        while sock.recv(2048):
            count += 1
    return count


def named(client_configuration, **fields):
    return client_configuration(server_name="localhost", **fields)


class Counting(Recorder):
    made: ClassVar[list[Counting]] = []

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.lost = []
        self.made.append(self)

    def connection_lost(self, exc):
        super().connection_lost(exc)
        self.lost.append(exc)


@pytest.fixture
def made():
    Counting.made = []
    return Counting.made


@pytest.mark.parametrize("hole", ["127.0.0.2", "::1"])
def test_a_first_address_that_is_silent_does_not_keep_a_client_from_the_next(
    run_anywhere, hole, made, monkeypatch, server_configuration, client_configuration
):
    async def main():
        loop = asyncio.get_running_loop()
        async with serving(server_configuration()) as (port, _):
            with silent(hole, port=port) as (mute,):
                Names(loop, monkeypatch, hole, "127.0.0.1")
                # Only the next address can end this attempt within the test's time limit.
                configuration = named(client_configuration, idle_timeout=3600.0)
                async with connect(
                    NAME, port, configuration=configuration, create_protocol=Counting
                ) as client:
                    assert made == [client], "the program sees one connection"
                    assert client._quic.get_peer_address()[0] == "127.0.0.1"
                    assert sum(isinstance(e, events.HandshakeCompleted) for e in client.events) == 1
                    assert heard(mute) > 0, "the first one was tried"
                    client._quic.send_stream_data(0, b"hello", True)
                    client.transmit()
                    await client.wait_for(events.StreamDataReceived, stream_id=0, end_stream=True)
                    assert client.data[0] == b"hello"
        ends = [e for e in made[0].events if isinstance(e, events.ConnectionTerminated)]
        assert len(ends) == 1 and made[0].lost == [None]

    run_anywhere(main())


def test_a_first_address_that_refuses_is_followed_by_the_next_without_a_delay(
    run_anywhere, made, monkeypatch, server_configuration, client_configuration
):
    async def main():
        loop = asyncio.get_running_loop()
        async with serving(server_configuration()) as (port, _):
            Names(loop, monkeypatch, "127.0.0.2", "127.0.0.1")
            # With this delay, only the refusal can start the second attempt.
            async with connect(
                NAME,
                port,
                configuration=named(client_configuration),
                create_protocol=Counting,
                happy_eyeballs_delay=3600,
            ) as client:
                assert made == [client]
                await client.ping()

    run_anywhere(main())


def test_the_first_address_is_used_when_it_answers(
    run_anywhere, monkeypatch, server_configuration, client_configuration
):
    async def main():
        loop = asyncio.get_running_loop()
        async with serving(server_configuration()) as (port, _):
            with silent("127.0.0.2", port=port) as (mute,):
                Names(loop, monkeypatch, "127.0.0.1", "127.0.0.2")
                async with connect(
                    NAME,
                    port,
                    configuration=named(client_configuration),
                    happy_eyeballs_delay=3600,
                ) as client:
                    await client.ping()
                assert heard(mute) == 0

    run_anywhere(main())


def test_when_all_addresses_fail_their_errors_are_in_the_message(
    run_anywhere, made, monkeypatch, client_configuration
):
    port = free_port()

    async def main():
        loop = asyncio.get_running_loop()
        Names(loop, monkeypatch, "127.0.0.2", "127.0.0.3")
        configuration = named(client_configuration)
        with pytest.raises(QuicConnectionRefusedError, match="Multiple exceptions") as caught:
            async with connect(NAME, port, configuration=configuration, create_protocol=Counting):
                pytest.fail("nobody is there")
        assert "127.0.0.2" in str(caught.value) and "127.0.0.3" in str(caught.value)
        assert made == [], "no protocol is made without a connection"
        with silent("127.0.0.4", port=port):
            Names(loop, monkeypatch, "127.0.0.2", "127.0.0.4")
            configuration = named(client_configuration, idle_timeout=0.3)
            with pytest.raises(QuicConnectionError) as caught:
                async with connect(NAME, port, configuration=configuration):
                    pytest.fail("nobody answers")
            assert "refused" in str(caught.value) and "timed out" in str(caught.value)
            Names(loop, monkeypatch, "127.0.0.4", "127.0.0.4")
            with pytest.raises(QuicIdleTimeoutError) as caught:
                async with connect(NAME, port, configuration=configuration):
                    pytest.fail("nobody answers")
            assert "Multiple" not in str(caught.value), "one address, one error"

    run_anywhere(main())


def test_a_server_that_cannot_prove_who_it_is_ends_the_search(
    run_anywhere, pki, monkeypatch, server_configuration, client_configuration
):
    async def main():
        loop = asyncio.get_running_loop()
        async with serving(server_configuration()) as (port, _):
            with silent("127.0.0.2", port=port) as (mute,):
                Names(loop, monkeypatch, "127.0.0.1", "127.0.0.2")
                configuration = named(client_configuration, authority=pki.stranger)
                with pytest.raises(QuicCertificateError):
                    async with connect(
                        NAME, port, configuration=configuration, happy_eyeballs_delay=3600
                    ):
                        pytest.fail("the certificate is a stranger's")
                assert heard(mute) == 0

    run_anywhere(main())


def test_cancelling_closes_every_attempt(run_anywhere, made, monkeypatch, client_configuration):
    async def main():
        loop = asyncio.get_running_loop()
        port = free_port()
        with silent("127.0.0.2", port=port) as (first,):
            with silent("127.0.0.3", port=port) as (second,):
                Names(loop, monkeypatch, "127.0.0.2", "127.0.0.3")
                configuration = named(client_configuration)

                async def connecting():
                    async with connect(
                        NAME,
                        port,
                        configuration=configuration,
                        create_protocol=Counting,
                        happy_eyeballs_delay=0.01,
                    ):
                        pytest.fail("nobody answers")

                task = asyncio.ensure_future(connecting())
                tried = set()

                def both():
                    tried.update(sock for sock in (first, second) if heard(sock))
                    return len(tried) == 2

                await eventually(both)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert made == []
                if run_anywhere.kind != "asyncio":
                    await eventually(lambda: loop.stats()["quic_endpoints"] == 0)

    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        run_anywhere(main())
        gc.collect()


def test_the_losers_are_closed(run, monkeypatch, server_configuration, client_configuration):
    async def main():
        loop = asyncio.get_running_loop()
        async with serving(server_configuration()) as (port, _):
            with silent("127.0.0.2", port=port):
                Names(loop, monkeypatch, "127.0.0.2", "127.0.0.1")
                configuration = named(client_configuration)
                async with connect(NAME, port, configuration=configuration) as client:
                    await client.ping()
                    # The endpoints of the server and of the successful attempt remain.
                    await eventually(lambda: loop.stats()["quic_endpoints"] == 2)
                await eventually(lambda: loop.stats()["quic_endpoints"] == 1)

    run(main())


def test_a_local_port_is_used_by_one_attempt_after_the_other(
    run_anywhere, monkeypatch, server_configuration, client_configuration
):
    local_port = free_port()

    async def main():
        loop = asyncio.get_running_loop()
        async with serving(server_configuration()) as (port, _):
            with silent("127.0.0.2", port=port) as (mute,):
                Names(loop, monkeypatch, "127.0.0.2", "127.0.0.1")
                configuration = named(client_configuration, idle_timeout=3600.0)

                async def connected():
                    async with connect(
                        NAME,
                        port,
                        configuration=configuration,
                        local_port=local_port,
                        happy_eyeballs_delay=0.01,
                    ) as client:
                        assert client._transport.get_extra_info("sockname")[1] == local_port
                        await client.ping()

                task = asyncio.ensure_future(connected())
                count = 0

                def has_asked_again():
                    nonlocal count
                    count += heard(mute)
                    return count > 1

                # The delay has long passed. Only the end of the first attempt starts the second.
                await eventually(has_asked_again)
                mute.close()
                await task

    run_anywhere(main())


def test_cancelling_does_not_wait_if_no_port_is_shared(run, monkeypatch, client_configuration):
    async def main():
        loop = asyncio.get_running_loop()
        port = free_port()
        with silent("127.0.0.2", port=port) as (mute,):
            Names(loop, monkeypatch, "127.0.0.2", "127.0.0.1")

            async def connecting():
                configuration = named(client_configuration)
                async with connect(
                    NAME, port, configuration=configuration, happy_eyeballs_delay=None
                ):
                    pytest.fail("nobody answers")

            task = asyncio.ensure_future(connecting())
            await eventually(lambda: heard(mute))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert loop.stats()["quic_endpoints"] == 1, (
                "the socket waits for the answer to the close"
            )

    run(main())


# A socket that is bound to a loopback address cannot send there.
UNREACHABLE = "192.0.2.1"


def test_an_unreachable_address_is_followed_by_the_next_without_a_delay(
    run_anywhere, monkeypatch, server_configuration, client_configuration
):
    async def main():
        loop = asyncio.get_running_loop()
        async with serving(server_configuration()) as (port, _):
            Names(loop, monkeypatch, UNREACHABLE, "127.0.0.1")
            ticket = await ticket_of(port, named(client_configuration))
            configuration = named(client_configuration, idle_timeout=3600.0, session_ticket=ticket)
            async with connect(
                NAME,
                port,
                configuration=configuration,
                create_protocol=Recorder,
                local_host="127.0.0.1",
                happy_eyeballs_delay=3600,
            ) as client:
                await client.ping()
                assert completed(client)[0], "the first attempt must not use the ticket up"

    run_anywhere(main())


def test_an_unreachable_address_does_not_change_the_others_error(
    run_anywhere, monkeypatch, client_configuration
):
    port = free_port()

    async def main():
        loop = asyncio.get_running_loop()
        Names(loop, monkeypatch, UNREACHABLE, "127.0.0.1")

        async def failed(kind, **fields):
            configuration = named(client_configuration, **fields)
            with pytest.raises(kind) as caught:
                async with connect(NAME, port, configuration=configuration, local_host="127.0.0.1"):
                    pytest.fail("nobody is there")
            assert os.strerror(errno.EINVAL) in str(caught.value)
            return caught.value

        refused = await failed(ConnectionRefusedError)
        assert refused.errno == errno.ECONNREFUSED
        with silent("127.0.0.1", port=port):
            await failed(QuicIdleTimeoutError, idle_timeout=0.3)

    run_anywhere(main())


def test_a_server_of_another_version_does_not_end_the_search(
    run_anywhere, monkeypatch, server_configuration, client_configuration
):
    async def main():
        loop = asyncio.get_running_loop()
        configuration = named(
            client_configuration, supported_versions=[QuicProtocolVersion.VERSION_1]
        )
        other = server_configuration(supported_versions=[QuicProtocolVersion.VERSION_2])
        async with serving(other, host="127.0.0.2") as (port, _):
            Names(loop, monkeypatch, "127.0.0.2", "127.0.0.1")
            server = await serve("127.0.0.1", port, configuration=server_configuration())
            async with connect(
                NAME, port, configuration=configuration, happy_eyeballs_delay=3600
            ) as client:
                assert client._quic.get_peer_address()[0] == "127.0.0.1"
                await client.ping()
            server.close()
            await server.wait_closed(0)
        async with serving(other, host="127.0.0.3") as (port, _):
            Names(loop, monkeypatch, UNREACHABLE, "127.0.0.3")
            with pytest.raises(QuicVersionError):
                async with connect(NAME, port, configuration=configuration, local_host="127.0.0.1"):
                    pytest.fail("it speaks no version of ours")

    run_anywhere(main())


def test_credentials_are_shown_at_one_address(
    run_anywhere, monkeypatch, server_configuration, client_configuration
):
    async def main():
        loop = asyncio.get_running_loop()
        async with serving(server_configuration(), retry=True) as (port, _):
            tokens = []
            plain = named(client_configuration)
            ticket = await ticket_of(port, plain, token_handler=tokens.append)
            await eventually(lambda: tokens)
            configuration = named(
                client_configuration, session_ticket=ticket, token=tokens[0], idle_timeout=3600.0
            )
            with silent("127.0.0.2", port=port):
                for hosts, is_known in (
                    (("127.0.0.2", "127.0.0.1"), False),
                    (("127.0.0.1", "127.0.0.2"), True),
                ):
                    Names(loop, monkeypatch, *hosts)
                    # The first address that answers may take as long as it needs.
                    delay = 3600 if is_known else 0.01
                    async with connect(
                        NAME,
                        port,
                        configuration=configuration,
                        create_protocol=Recorder,
                        happy_eyeballs_delay=delay,
                    ) as client:
                        assert completed(client)[0] is is_known
                        await client.ping()

    run_anywhere(main())


class Plain:
    """A protocol with only the methods that ``QuicTransport.connect`` calls."""

    def __init__(self, quic):
        self.quic = quic

    def connection_made(self, transport):
        self.transport = transport

    def connect(self, addr):
        self.quic.connect(addr, now=asyncio.get_running_loop().time())

    def events(self):
        found = []
        while (event := self.quic.next_event()) is not None:
            found.append(event)
        return found


@pytest.mark.parametrize("hosts", [["127.0.0.1"], ["127.0.0.2", "127.0.0.1"]])
def test_a_protocol_may_be_any_object(
    run_anywhere, hosts, monkeypatch, server_configuration, client_configuration
):
    async def main():
        loop = asyncio.get_running_loop()
        async with serving(server_configuration()) as (port, _):
            Names(loop, monkeypatch, *hosts)
            transport, protocol = await create_quic_endpoint(
                loop,
                Plain,
                remote_addr=(NAME, port),
                configuration=named(client_configuration),
            )
            transport.flush()
            kinds = set()

            def is_connected():
                kinds.update(type(event) for event in protocol.events())
                return events.HandshakeCompleted in kinds

            await eventually(is_connected)
            protocol.quic.send_stream_data(0, b"hello", end_stream=True)
            transport.flush()

            def is_answered():
                kinds.update(type(event) for event in protocol.events())
                return events.StreamDataReceived in kinds

            await eventually(is_answered)
            transport.close()
            await transport.wait_closed()

    run_anywhere(main())


def test_without_waiting_it_is_the_first_address(
    run_anywhere, monkeypatch, server_configuration, client_configuration
):
    async def main():
        loop = asyncio.get_running_loop()
        async with serving(server_configuration()) as (port, _):
            with silent("127.0.0.2", port=port) as (mute,):
                Names(loop, monkeypatch, "127.0.0.1", "127.0.0.2")
                async with connect(
                    NAME, port, configuration=named(client_configuration), wait_connected=False
                ) as client:
                    await client.ping()
                assert heard(mute) == 0

    run_anywhere(main())


def test_an_endpoint_with_a_remote_name_too(
    run_anywhere, made, monkeypatch, server_configuration, client_configuration
):
    async def main():
        loop = asyncio.get_running_loop()
        async with serving(server_configuration()) as (port, _):
            with silent("127.0.0.2", port=port):
                Names(loop, monkeypatch, "127.0.0.2", "127.0.0.1")
                transport, protocol = await create_quic_endpoint(
                    loop,
                    Counting,
                    remote_addr=(NAME, port),
                    configuration=named(client_configuration, idle_timeout=3600.0),
                )
                assert made == [protocol]
                await protocol.wait_connected()
                await protocol.ping()
                protocol.close()
                await protocol.wait_closed()
                transport.close()
                await transport.wait_closed()

    run_anywhere(main())


def test_a_factory_that_raises_leaves_nothing_open(
    run_anywhere, monkeypatch, server_configuration, client_configuration
):
    async def main():
        loop = asyncio.get_running_loop()
        async with serving(server_configuration(), Echo) as (port, protocols):
            Names(loop, monkeypatch, "127.0.0.2", "127.0.0.1")

            def refuse(quic, stream_handler):
                raise RuntimeError("not today")

            with pytest.raises(RuntimeError, match="not today"):
                async with connect(
                    NAME,
                    port,
                    configuration=named(client_configuration),
                    create_protocol=refuse,
                ):
                    pytest.fail("there is no protocol")
            await protocols[0].wait_for(events.ConnectionTerminated)

    run_anywhere(main())


def test_http3_clients_go_on_to_the_next_address(run, monkeypatch, pki, server_configuration):
    async def main():
        loop = asyncio.get_running_loop()
        async with serving(server_configuration(alpn_protocols=["h3"])) as (port, _):
            with silent("127.0.0.2", port=port):
                Names(loop, monkeypatch, "127.0.0.2", "127.0.0.1")
                async with http3_connect(f"https://{NAME}:{port}/", verify=False) as client:
                    assert client._protocol._http is not None
                    assert client._protocol._quic.get_peer_address()[0] == "127.0.0.1"

    run(main())


def test_families_take_turns():
    v4, v6 = socket.AF_INET, socket.AF_INET6
    found = [(v6, ("a",)), (v6, ("b",)), (v6, ("a",)), (v4, ("c",)), (v6, ("d",))]
    assert interleaved(found) == [(v6, ("a",)), (v4, ("c",)), (v6, ("b",)), (v6, ("d",))]
    assert interleaved(found[3:]) == found[3:]
