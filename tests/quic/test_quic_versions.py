"""QUIC versions 1 and 2, used in the first flight or negotiated, against aioquic and against uringcore."""

from __future__ import annotations

import asyncio
import inspect
import itertools

import pytest

from tests.quic.aioquic_peer import AioquicEcho, AioquicRecorder, aioquic_client
from tests.quic.harness import Recorder, patterned, serving
from tests.support.interpreter_roles import is_default_interpreter
from uringcore.asyncio import connect
from uringcore.quic._errors import QuicVersionError
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.connection import QuicConnection
from uringcore.quic.events import HandshakeCompleted
from uringcore.quic.packet import QuicProtocolVersion

pytestmark = pytest.mark.either_backend

aioquic_asyncio = pytest.importorskip("aioquic.asyncio")
aioquic_configuration = pytest.importorskip("aioquic.quic.configuration")
aioquic_crypto = pytest.importorskip("aioquic.quic.crypto")

V1 = QuicProtocolVersion.VERSION_1
V2 = QuicProtocolVersion.VERSION_2
RESERVED = 0x1A2A3A4A

# The client's versions, its first version, the server's versions, and the result.
DIRECT = {
    "v1": ([V1, V2], None, [V1, V2], V1),
    "v2": ([V2], None, [V1, V2], V2),
    "v2-first": ([V2, V1], None, [V1, V2], V2),
    "v1-to-v2": ([V2, V1], V1, [V1, V2], V2),
    "v2-to-v1": ([V1, V2], V2, [V1, V2], V1),
}
ASKED = {
    "v1-asked-for-v2": ([V1, V2], None, [V2], V2),
    "v2-asked-for-v1": ([V2, V1], None, [V1], V1),
    "unknown-asked-for-v1": ([RESERVED, V1], None, [V1, V2], V1),
    "unknown-original": ([V2, V1], RESERVED, [V1, V2], V2),
}
WITH_AIOQUIC = pytest.mark.skipif(
    not is_default_interpreter(), reason="the wire is the same under every interpreter"
)
CASES = [pytest.param(*case, id=name) for name, case in {**DIRECT, **ASKED}.items()]


def needs_aioquic_that_speaks(expected):
    """The last aioquic for CPython 3.10 derives the next keys of version 2 with version 1's label."""
    if expected == V2 and "quicv2 ku" not in inspect.getsource(aioquic_crypto):
        pytest.skip("this aioquic cannot change keys in QUIC version 2")


async def exchange(client, ours):
    """Sends data there and back, with key updates in between.

    Our side starts the updates: aioquic may update its keys again before it has used the last ones, which a
    peer that updates at the same time cannot follow (RFC 9001 section 6.1 forbids it).
    """
    for number in range(2):
        reader, writer = await client.create_stream()
        sent = patterned(1 << 18, number)
        writer.write(sent)
        writer.write_eof()
        assert await reader.read() == sent
        ours._quic.request_key_update()


@WITH_AIOQUIC
@pytest.mark.parametrize(("supported", "original", "servers", "expected"), CASES)
@pytest.mark.parametrize("retry", [False, True], ids=["", "retry"])
def test_our_client_and_aioquics_server_agree(
    run, pki, client_configuration, supported, original, servers, expected, retry
):
    needs_aioquic_that_speaks(expected)
    accepted = []

    class Server(AioquicEcho):
        def connection_made(self, transport):
            accepted.append(self)
            super().connection_made(transport)

    configuration = aioquic_configuration.QuicConfiguration(
        is_client=False, alpn_protocols=["test"], supported_versions=servers
    )
    configuration.load_cert_chain(str(pki.server.certfile), str(pki.server.keyfile))

    async def main():
        server = await aioquic_asyncio.serve(
            "127.0.0.1", 0, configuration=configuration, create_protocol=Server, retry=retry
        )
        port = server._transport.get_extra_info("sockname")[1]
        try:
            ours = client_configuration(supported_versions=supported, original_version=original)
            async with connect("127.0.0.1", port, configuration=ours) as client:
                await exchange(client, client)
                assert client._quic.version == expected
                assert accepted[-1]._quic._version == expected
            assert client._quic.version == expected
        finally:
            server.close()

    run(main())


# aioquic's client raises KeyError for a first version that is not among its supported versions.
@WITH_AIOQUIC
@pytest.mark.parametrize(("supported", "original", "servers", "expected"), CASES[:-1])
@pytest.mark.parametrize("retry", [False, True], ids=["", "retry"])
def test_aioquics_client_and_our_server_agree(
    run, pki, server_configuration, supported, original, servers, expected, retry
):
    needs_aioquic_that_speaks(expected)

    async def main():
        ours = server_configuration(supported_versions=servers)
        async with serving(ours, retry=retry) as (port, protocols):
            theirs = aioquic_client(pki, supported_versions=supported, original_version=original)
            async with aioquic_asyncio.connect(
                "127.0.0.1", port, configuration=theirs, create_protocol=AioquicRecorder
            ) as client:
                await exchange(client, protocols[-1])
                assert client._quic._version == expected
                assert protocols[-1]._quic.version == expected

    run(main())


@pytest.mark.parametrize(("supported", "original", "servers", "expected"), CASES)
def test_both_of_ours_agree(
    run_anywhere, client_configuration, server_configuration, supported, original, servers, expected
):
    async def main():
        async with serving(server_configuration(supported_versions=servers)) as (port, protocols):
            ours = client_configuration(supported_versions=supported, original_version=original)
            async with connect(
                "127.0.0.1", port, configuration=ours, create_protocol=Recorder
            ) as client:
                await exchange(client, client)
                assert client._quic.version == protocols[-1]._quic.version == expected
                completed = [e for e in client.events if isinstance(e, HandshakeCompleted)]
                assert len(completed) == 1

    run_anywhere(main())


@pytest.mark.parametrize(("ours", "theirs"), [([V1], [V2]), ([V2], [V1])])
def test_a_missing_common_version_raises_at_once(run, pki, client_configuration, ours, theirs):
    async def main():
        configuration = aioquic_configuration.QuicConfiguration(
            is_client=False, alpn_protocols=["test"], supported_versions=theirs
        )
        configuration.load_cert_chain(str(pki.server.certfile), str(pki.server.keyfile))
        server = await aioquic_asyncio.serve("127.0.0.1", 0, configuration=configuration)
        port = server._transport.get_extra_info("sockname")[1]
        try:
            attempt = connect(
                "127.0.0.1", port, configuration=client_configuration(supported_versions=ours)
            )
            with pytest.raises(QuicVersionError, match="none of our QUIC versions"):
                await asyncio.wait_for(attempt.__aenter__(), 5)
        finally:
            server.close()

    run(main())


def test_version_of_a_connection_without_a_loop(client_configuration, server_configuration):
    """The version is None before the start, then that of the first flight, then that of the handshake, and it
    stays.
    """
    client = QuicConnection(
        configuration=client_configuration(
            supported_versions=[V2, V1], original_version=V1, server_name="localhost"
        )
    )
    server = QuicConnection(configuration=server_configuration())
    assert client.version is None and server.version is None
    client.connect(("192.0.2.1", 4433), now=0.0)
    assert client.version == V1
    now = 0.0
    for _ in range(10):
        for sender, receiver, address in (
            (client, server, ("192.0.2.9", 1234)),
            (server, client, ("192.0.2.1", 4433)),
        ):
            for data, _ in sender.datagrams_to_send(now):
                receiver.receive_datagram(data, address, now)
        now += 0.01
    assert client.is_established and server.is_established
    assert client.version == server.version == V2
    client.close()
    assert client.version == V2


def test_default_versions_are_aioquics():
    theirs = aioquic_configuration.QuicConfiguration()
    ours = QuicConfiguration()
    assert ours.supported_versions == theirs.supported_versions
    assert ours.original_version is theirs.original_version is None


def test_reserved_versions_are_offered_and_never_chosen(run, pki, client_configuration):
    """aioquic's side shows our version information: it always contains a reserved version."""
    seen = []

    class Server(AioquicEcho):
        def quic_event_received(self, event):
            information = self._quic._remote_version_information
            seen.append((information.chosen_version, information.available_versions))
            super().quic_event_received(event)

    configuration = aioquic_configuration.QuicConfiguration(
        is_client=False, alpn_protocols=["test"], supported_versions=[V1, V2]
    )
    configuration.load_cert_chain(str(pki.server.certfile), str(pki.server.keyfile))

    async def main():
        server = await aioquic_asyncio.serve(
            "127.0.0.1", 0, configuration=configuration, create_protocol=Server
        )
        port = server._transport.get_extra_info("sockname")[1]
        try:
            ours = client_configuration(supported_versions=[RESERVED, V1], original_version=V1)
            async with connect("127.0.0.1", port, configuration=ours) as client:
                await client.ping()
        finally:
            server.close()

    run(main())
    chosen, available = seen[0]
    assert (chosen, available[:2]) == (V1, [RESERVED, V1])
    greased = available[2:]
    assert len(greased) == 1
    assert all(version & 0x0F0F0F0F == 0x0A0A0A0A for version in greased)


def test_every_pair_of_lists_ends_the_same_on_both_sides(
    run, client_configuration, server_configuration
):
    lists = [[V1], [V2], [V1, V2], [V2, V1]]

    async def main():
        for servers in lists:
            async with serving(server_configuration(supported_versions=servers)) as (port, made):
                for supported, original in itertools.product(lists, (None, V1, V2)):
                    if not set(supported) & set(servers):
                        continue
                    ours = client_configuration(
                        supported_versions=supported, original_version=original
                    )
                    async with connect("127.0.0.1", port, configuration=ours) as client:
                        await client.ping()
                        assert client._quic.version == made[-1]._quic.version
                        assert client._quic.version in servers

    run(main())
