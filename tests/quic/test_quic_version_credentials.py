"""Tickets, tokens and 0-RTT data of QUIC versions 1 and 2: none is used with the other version."""

from __future__ import annotations

import asyncio
import dataclasses
import pickle

import pytest

from tests.quic.aioquic_peer import (
    AioquicStore,
    aioquic_client,
    aioquic_serving,
    aioquic_ticket_of,
    telling_class,
)
from tests.quic.harness import early_echo, eventually, patterned, serving, ticket_of
from uringcore.asyncio import connect
from uringcore.quic._errors import QuicConfigurationError
from uringcore.quic.packet import QuicProtocolVersion
from uringcore.tls import AddressToken, SessionTicket

pytestmark = pytest.mark.either_backend

aioquic_asyncio = pytest.importorskip("aioquic.asyncio")
aioquic_configuration = pytest.importorskip("aioquic.quic.configuration")

V1 = QuicProtocolVersion.VERSION_1
V2 = QuicProtocolVersion.VERSION_2

# The version of the ticket, the client's first version, and its versions in order of preference.
SAME = {
    "v1": (V1, V1, [V1, V2]),
    "v2": (V2, V2, [V2, V1]),
    "v1-to-v2": (V1, V1, [V2, V1]),
    "v2-to-v1": (V2, V2, [V1, V2]),
}
OTHER = {
    "v1-for-v2": (V1, V2, [V2, V1]),
    "v2-for-v1": (V2, V1, [V1, V2]),
}
CASES = [pytest.param(*case, id=name) for name, case in {**SAME, **OTHER}.items()]


@pytest.mark.parametrize(("of", "first", "supported"), CASES)
def test_early_data_is_for_connections_that_begin_with_the_tickets_version(
    run_anywhere, client_configuration, server_configuration, of, first, supported
):
    async def main():
        async with serving(server_configuration(early_data=True)) as (port, servers):
            ticket = await ticket_of(port, client_configuration(supported_versions=[of]))
            assert ticket.version == of
            data = patterned(5_000, 3)
            for version, taken in [(of, of == first), (None, False)]:
                # In the second round the ticket has no version, so the server has to refuse it: it was used
                # before, or belongs to another version.
                shown = dataclasses.replace(ticket, version=version)
                configuration = client_configuration(
                    supported_versions=supported, original_version=first, session_ticket=shown
                )
                assert await early_echo(port, configuration, data) == (taken, taken)
                assert servers[-1].data[0] == data
                assert servers[-1]._quic.version == supported[0]

    run_anywhere(main())


def test_a_server_takes_no_ticket_of_another_version(
    run, client_configuration, server_configuration
):
    """The client does not record or does not check the version of its ticket."""

    async def main():
        async with serving(server_configuration(early_data=True)) as (port, _):
            for of, first in [(V1, V2), (V2, V1)]:
                ticket = await ticket_of(port, client_configuration(supported_versions=[of]))
                ticket.version = None
                configuration = client_configuration(
                    supported_versions=[first], session_ticket=ticket
                )
                assert await early_echo(port, configuration, b"early") == (False, False)

    run(main())


def test_a_token_is_for_connections_that_begin_with_its_version(
    run, client_configuration, server_configuration
):
    async def main():
        async with serving(server_configuration(), retry=True) as (port, servers):

            async def token(version):
                tokens = []
                configuration = client_configuration(supported_versions=[version])
                async with connect(
                    "127.0.0.1", port, configuration=configuration, token_handler=tokens.append
                ):
                    await eventually(lambda: tokens)
                return tokens[0]

            async def retries(token, version):
                def count():
                    return servers[-1]._transport.stats()["incoming_retried"]

                before = count()
                configuration = client_configuration(supported_versions=[version], token=token)
                async with connect("127.0.0.1", port, configuration=configuration) as client:
                    await client.ping()
                return count() - before

            for version, other in [(V1, V2), (V2, V1)]:
                one = await token(version)
                assert one.version == version
                # In order: the client does not send it, so it stays valid; the server refuses it; the server
                # accepts it; it is valid only once. Plain bytes are accepted too.
                assert await retries(one, other) == 1
                assert await retries(bytes(one), other) == 1
                assert await retries(one, version) == 0
                assert await retries(one, version) == 1
                assert await retries(bytes(await token(version)), version) == 0

    run(main())


def test_a_token_goes_through_a_file_with_its_version(client_configuration):
    token = AddressToken(b"token", V2)
    found = pickle.loads(pickle.dumps(token))
    assert (found, found.version) == (b"token", V2)
    assert AddressToken(b"plain").version is None
    client_configuration(token=token).setup()
    with pytest.raises(QuicConfigurationError, match=r"^token: .*version"):
        client_configuration(token=AddressToken(b"token", -1)).setup()


def test_a_ticket_that_was_kept_before_versions_were_is_taken(
    run, client_configuration, server_configuration
):
    async def main():
        async with serving(server_configuration(early_data=True)) as (port, _):
            ticket = await ticket_of(port, client_configuration())
            state = dict(vars(ticket))
            assert state.pop("version") == V1
            old = SessionTicket.__new__(SessionTicket)
            vars(old).update(state)
            configuration = client_configuration(session_ticket=pickle.loads(pickle.dumps(old)))
            assert await early_echo(port, configuration, b"early") == (True, True)
            ticket.version = 1 << 32
            with pytest.raises(QuicConfigurationError, match=r"^session_ticket: .*version"):
                client_configuration(session_ticket=ticket).setup()

    run(main())


@pytest.mark.parametrize(
    ("first", "supported"),
    [case[1:] for case in SAME.values()],
    ids=list(SAME),
)
def test_our_client_sends_early_data_to_aioquics_server(
    run, pki, client_configuration, first, supported
):
    """aioquic derives the keys of 0-RTT packets for the version that it has chosen. It cannot read packets
    that arrived with another version, so their data has to be sent again.
    """
    store, telling, received = AioquicStore(), telling_class(), []

    class Server(telling):
        def quic_event_received(self, event):
            if hasattr(event, "data"):
                received.append(event.data)
            super().quic_event_received(event)

    async def main():
        handlers = {"session_ticket_fetcher": store.pop, "session_ticket_handler": store.add}
        async with aioquic_serving(
            pki, Server, handlers=handlers, supported_versions=[V1, V2]
        ) as port:
            ticket = await ticket_of(port, client_configuration(supported_versions=[first]))
            configuration = client_configuration(
                supported_versions=supported, original_version=first, session_ticket=ticket
            )
            data = patterned(5_000, 3)
            assert await early_echo(port, configuration, data) == (True, True)
            assert b"".join(received) == data

    run(main())


@pytest.mark.parametrize(
    ("first", "supported"),
    [case[1:] for case in SAME.values()],
    ids=list(SAME),
)
def test_aioquics_client_sends_early_data_to_our_server(
    run, pki, server_configuration, first, supported
):
    async def main():
        async with serving(server_configuration(early_data=True)) as (port, servers):
            telling = telling_class()
            configuration = aioquic_client(pki, supported_versions=[first])
            ticket = await aioquic_ticket_of(port, configuration)
            async with aioquic_asyncio.connect(
                "127.0.0.1",
                port,
                configuration=aioquic_client(
                    pki,
                    supported_versions=supported,
                    original_version=first,
                    session_ticket=ticket,
                ),
                create_protocol=telling,
                wait_connected=False,
            ) as client:
                _, writer = await client.create_stream()
                writer.write(b"early")
                writer.write_eof()
                client.transmit()
                await asyncio.wait_for(client.wait_connected(), 10)
                await eventually(lambda: servers[-1].data.get(0) == b"early")
                assert client._quic._version == servers[-1]._quic.version == supported[0]
            assert telling.completed == ((True, True),)

    run(main())
