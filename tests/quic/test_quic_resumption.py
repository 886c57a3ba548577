"""Session tickets, 0-RTT data and address validation tokens, also with aioquic on the other side."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import datetime
import os
import pickle
import sqlite3
import ssl
import subprocess
import sys
import time
import traceback

import pytest
from cryptography.hazmat.primitives import serialization

from tests.quic.aioquic_peer import (
    AioquicStore,
    aioquic_client,
    aioquic_serving,
    aioquic_ticket_of,
    telling_class,
)
from tests.quic.harness import (
    Recorder,
    completed,
    early_echo,
    eventually,
    kept,
    patterned,
    serving,
    ticket_of,
)
from uringcore.asyncio import connect, serve
from uringcore.quic import events
from uringcore.quic.sessions import SharedSessionStore
from uringcore.tls import CipherSuite, MemorySessionStore, SessionTicket

pytestmark = pytest.mark.either_backend

aioquic_asyncio = pytest.importorskip("aioquic.asyncio")
aioquic_configuration = pytest.importorskip("aioquic.quic.configuration")
aioquic_events = pytest.importorskip("aioquic.quic.events")
aioquic_tls = pytest.importorskip("aioquic.tls")


def test_a_ticket_resumes_later_and_elsewhere(
    run_anywhere, server_configuration, client_configuration
):
    async def main():
        async with serving(server_configuration()) as (port, servers):
            ticket = await ticket_of(port, client_configuration())
            assert isinstance(ticket, SessionTicket) and ticket.is_valid
            assert ticket.server_name == "127.0.0.1"
            assert ticket.max_early_data_size is None
            lifetime = ticket.not_valid_after - ticket.not_valid_before
            assert lifetime == datetime.timedelta(days=1)
            assert len(ticket.peer_certificates) == 1

            configuration = client_configuration()
            configuration.session_ticket = pickle.loads(pickle.dumps(ticket))
            assert configuration.session_ticket == ticket
            async with connect(
                "127.0.0.1", port, configuration=configuration, create_protocol=Recorder
            ) as client:
                assert completed(client) == (True, False)
                assert client._quic.get_peer_certificates() == ticket.peer_certificates
                await client.ping()
                # Programs for aioquic read these attributes.
                tls = client._quic.tls
                assert (tls.session_resumed, tls.early_data_accepted) == (True, False)
                assert tls.alpn_negotiated == "test"
                assert tls.cipher_suite is CipherSuite.AES_128_GCM_SHA256
                der = tls._peer_certificate.public_bytes(serialization.Encoding.DER)
                assert [der] == ticket.peer_certificates and tls._peer_certificate_chain == []
            assert [server._quic.tls.session_resumed for server in servers] == [False, True]
            assert [completed(server)[0] for server in servers] == [False, True]

    run_anywhere(main())


def test_a_ticket_resumes_in_another_process(run, pki, server_configuration, client_configuration):
    program = """
import asyncio, pickle, sys
from uringcore.asyncio import QuicConnectionProtocol, connect
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.events import HandshakeCompleted

class Telling(QuicConnectionProtocol):
    def quic_event_received(self, event):
        if isinstance(event, HandshakeCompleted):
            print(event.session_resumed)

async def main():
    configuration = QuicConfiguration(alpn_protocols=["test"])
    configuration.load_verify_locations(cafile=sys.argv[2])
    with open(sys.argv[3], "rb") as file:
        configuration.session_ticket = pickle.load(file)
    async with connect("127.0.0.1", int(sys.argv[1]), configuration=configuration,
                       create_protocol=Telling) as client:
        await client.ping()

asyncio.run(main())
"""

    async def main():
        async with serving(server_configuration()) as (port, _):
            ticket = await ticket_of(port, client_configuration())
            kept = pki.authority.certfile.with_name("ticket.pickle")
            kept.write_bytes(pickle.dumps(ticket))
            child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                program,
                str(port),
                str(pki.authority.certfile),
                str(kept),
                stdout=subprocess.PIPE,
            )
            out, _ = await child.communicate()
            assert (child.returncode, out) == (0, b"True\n")

    run(main())


def test_early_data_is_read_before_the_handshake_is_complete(
    run_anywhere, server_configuration, client_configuration
):
    async def main():
        async with serving(server_configuration(early_data=True)) as (port, servers):
            configuration = client_configuration()
            ticket = await ticket_of(port, configuration)
            assert ticket.max_early_data_size == 0xFFFFFFFF
            configuration.session_ticket = ticket
            data = patterned(20_000, 1)
            assert await early_echo(port, configuration, data) == (True, True)
            server = servers[-1]
            assert completed(server) == (True, True)
            kinds = [type(event) for event in server.events]
            first = kinds.index(events.StreamDataReceived)
            assert first < kinds.index(events.HandshakeCompleted)
            assert server.events[first].early_data
            assert server.data[0] == data

            # The ticket is used up: a second use gives a full handshake, and no data is lost.
            assert await early_echo(port, configuration, data) == (False, False)
            server = servers[-1]
            assert server.data[0] == data
            assert not any(getattr(event, "early_data", False) for event in server.events)

            # A client may switch early data off.
            configuration = client_configuration(early_data=False)
            configuration.session_ticket = await ticket_of(port, client_configuration())
            assert await early_echo(port, configuration, data) == (True, False)

    run_anywhere(main())


def test_a_restarted_server_rejects_early_data_and_nothing_is_lost(
    run, server_configuration, client_configuration
):
    async def main():
        async with serving(server_configuration(early_data=True)) as (port, _):
            ticket = await ticket_of(port, client_configuration())
        async with serving(server_configuration(early_data=True)) as (port, servers):
            configuration = client_configuration(session_ticket=ticket)
            data = patterned(300_000, 2)
            assert await early_echo(port, configuration, data) == (False, False)
            assert servers[0].data[0] == data

    run(main())


def test_readers_and_writers_use_early_data_too(run, server_configuration, client_configuration):
    async def answer(reader, writer):
        writer.write(b"to " + await reader.read())
        writer.write_eof()

    async def main():
        configuration = server_configuration(early_data=True)
        async with serving(configuration, Recorder, stream_handler=answer) as (port, _):
            ticket = await ticket_of(port, client_configuration())
            configuration = client_configuration(session_ticket=ticket)
            async with connect(
                "127.0.0.1",
                port,
                configuration=configuration,
                create_protocol=Recorder,
                wait_connected=False,
            ) as client:
                reader, writer = await client.create_stream()
                writer.write(b"you")
                writer.write_eof()
                assert await reader.read() == b"to you"
                assert completed(client) == (True, True)

    run(main())


def test_servers_with_one_store_resume_each_others_sessions(
    run, server_configuration, client_configuration
):
    async def main():
        store = MemorySessionStore(10)
        async with (
            serving(server_configuration(session_store=store)) as (one, _),
            serving(server_configuration(session_store=store)) as (two, servers),
        ):
            configuration = client_configuration()
            configuration.session_ticket = await ticket_of(one, configuration)
            assert len(store) == 2
            async with connect("127.0.0.1", two, configuration=configuration) as client:
                await client.ping()
            assert completed(servers[0]) == (True, False)

    run(main())


def test_sessions_outlive_a_new_certificate(run, pki, server_configuration, client_configuration):
    async def main():
        configuration = server_configuration()
        store = configuration._sessions()
        configuration.setup()
        configuration.load_cert_chain(pki.expired.certfile, pki.expired.keyfile)
        configuration.setup()
        assert configuration._sessions() is store

    run(main())


def test_a_handler_that_raises_is_reported_and_disturbs_nothing(
    run, server_configuration, client_configuration
):
    def refuse(_):
        raise RuntimeError("the disk is full")

    async def main():
        reported = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context))
        async with (
            serving(server_configuration()) as (port, _),
            connect(
                "127.0.0.1",
                port,
                configuration=client_configuration(),
                session_ticket_handler=refuse,
                token_handler=refuse,
                create_protocol=Recorder,
            ) as client,
        ):
            await client.ping()
            await eventually(lambda: len(reported) == 4)
            await client.ping()
        assert {str(context["exception"]) for context in reported} == {"the disk is full"}

    run(main())


def test_a_token_spares_the_retry(run, server_configuration, client_configuration):
    async def main():
        async with serving(server_configuration(), retry=True) as (port, _):
            tokens = []
            async with connect(
                "127.0.0.1",
                port,
                configuration=client_configuration(),
                token_handler=tokens.append,
            ) as client:
                await eventually(lambda: len(tokens) == 2)
                await client.ping()
                assert client.stats()["packets_sent"] > 0
            assert all(isinstance(token, bytes) and token for token in tokens)
            async with connect(
                "127.0.0.1", port, configuration=client_configuration(token=tokens[0])
            ) as client:
                await client.ping()

    run(main())


class Store:
    """A store with only the required methods."""

    def __init__(self):
        self.sessions = {}
        self.taken = []

    def put(self, ticket, session):
        self.sessions[ticket] = session

    def take(self, ticket):
        self.taken.append(ticket)
        return self.sessions.pop(ticket, None)


def test_a_store_of_the_programs_own(run_anywhere, server_configuration, client_configuration):
    async def main():
        store = Store()
        configuration = server_configuration(session_store=store, early_data=True)
        async with serving(configuration) as (port, servers):
            # The many protocol names make a ClientHello of several datagrams.
            names = ["test", *(f"{number:0200}" for number in range(15))]
            configuration = client_configuration(alpn_protocols=names)
            ticket = await ticket_of(port, configuration)
            assert len(store.sessions) == 2 and not store.taken
            configuration.session_ticket = ticket
            data = patterned(30_000, 5)
            assert await early_echo(port, configuration, data) == (True, True)
            assert store.taken == [ticket.ticket]
            assert servers[-1].data[0] == data
            assert await early_echo(port, configuration, data) == (False, False)
            assert store.taken == [ticket.ticket] * 2

    run_anywhere(main())


def test_a_store_that_raises_costs_the_resumption_only(
    run, server_configuration, client_configuration
):
    class Broken:
        def put(self, ticket, session):
            raise RuntimeError("the store cannot be reached")

        def take(self, ticket):
            raise RuntimeError("nor read")

    class Nonsense(Store):
        def take(self, ticket):
            return 7

    async def main():
        reported = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
        for store, expected in [(Broken(), RuntimeError), (Nonsense(), TypeError)]:
            reported.clear()
            async with serving(server_configuration(session_store=store)) as (port, _):
                configuration = client_configuration()
                configuration.session_ticket = await ticket_of(port, configuration)
                async with connect(
                    "127.0.0.1", port, configuration=configuration, create_protocol=Recorder
                ) as client:
                    assert completed(client) == (False, False)
                    await client.ping()
            assert expected in {type(error) for error in reported}

    run(main())


def test_aioquics_callbacks_of_a_server(run_anywhere, server_configuration, client_configuration):
    async def main():
        store = AioquicStore()
        async with serving(
            server_configuration(),
            session_ticket_fetcher=store.pop,
            session_ticket_handler=store.add,
        ) as (port, _):
            ticket = await ticket_of(port, client_configuration())
            assert ticket.ticket in store.tickets
            kept = pickle.loads(pickle.dumps(store.tickets[ticket.ticket]))
            assert kept == store.tickets[ticket.ticket] and kept.is_valid
            store.tickets = {ticket.ticket: kept}
            configuration = client_configuration(session_ticket=ticket)
            # If a ticket handler is set, the server accepts 0-RTT data, as in aioquic.
            assert await early_echo(port, configuration, b"early") == (True, True)
            assert ticket.ticket not in store.tickets

    run_anywhere(main())


def test_a_shared_store_returns_each_session_once(tmp_path):
    path = tmp_path / "sessions"
    one, two = SharedSessionStore(path), pickle.loads(pickle.dumps(SharedSessionStore(path)))
    assert path.stat().st_mode & 0o777 == 0o600
    one.put(b"ticket", b"session")
    assert len(two) == 1
    taken = [two.take(b"ticket"), one.take(b"ticket"), two.take(b"ticket")]
    assert taken == [b"session", None, None]

    # Several processes take concurrently, and each session goes to exactly one.
    for number in range(200):
        one.put(b"%d" % number, b"session %d" % number)
    program = """
import sys
from uringcore.quic.sessions import SharedSessionStore
store = SharedSessionStore(sys.argv[1])
print(sum(store.take(b"%d" % number) is not None for number in range(200)))
"""
    children = [
        subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE)
        for _ in range(3)
    ]
    assert sum(int(child.communicate()[0]) for child in children) == 200

    pid = os.fork()
    if pid == 0:
        try:
            one.put(b"from", b"child")
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert one.take(b"from") == b"child"
    one.close()
    assert len(one) == 0
    two.close()


def test_a_shared_store_is_bounded_and_forgets_what_is_old(tmp_path, monkeypatch):
    store = SharedSessionStore(tmp_path / "sessions", capacity=32)
    for number in range(100):
        store.put(b"%d" % number, b"")
    assert len(store) <= 32
    assert store.take(b"0") is None and store.take(b"99") == b""
    later = time.time() + 86_401
    monkeypatch.setattr(time, "time", lambda: later)
    assert store.take(b"98") is None
    store.close()
    with pytest.raises(OSError, match="absent"):
        SharedSessionStore(tmp_path / "absent" / "sessions")
    (tmp_path / "none").write_bytes(b"this is no database" * 100)
    (tmp_path / "none").chmod(0o600)
    with pytest.raises(sqlite3.DatabaseError):
        SharedSessionStore(tmp_path / "none")


def test_early_data_across_servers_that_share_a_file(
    run, tmp_path, server_configuration, client_configuration
):
    async def main():
        def settings():
            store = SharedSessionStore(tmp_path / "sessions")
            return server_configuration(session_store=store, early_data=True)

        async with serving(settings()) as (one, _), serving(settings()) as (two, servers):
            configuration = client_configuration()
            configuration.session_ticket = await ticket_of(one, configuration)
            await kept(tmp_path / "sessions", configuration.session_ticket)
            assert await early_echo(two, configuration, b"early") == (True, True)
            assert await early_echo(one, configuration, b"early") == (False, False)

    run(main())


def test_a_server_takes_up_a_new_certificate(
    run_anywhere, pki, server_configuration, client_configuration
):
    async def main():
        configuration = server_configuration()
        server = await serve("127.0.0.1", 0, configuration=configuration, create_protocol=Recorder)
        port = server.sockname[1]

        async def shown():
            async with connect(
                "127.0.0.1", port, configuration=client_configuration(verify_mode=ssl.CERT_NONE)
            ) as client:
                return client._quic.get_peer_certificates()[0]

        old = await shown()
        ticket = await ticket_of(port, client_configuration())
        async with connect("127.0.0.1", port, configuration=client_configuration()) as client:
            configuration.load_cert_chain(pki.elsewhere.certfile, pki.elsewhere.keyfile)
            server.reload()
            assert await shown() != old
            await client.ping()
            configuration.certificate = b"nonsense"
            with pytest.raises(ValueError, match="^certificate"):
                server.reload()
            assert await shown() != old
        # Resumption continues to work.
        async with connect(
            "127.0.0.1",
            port,
            configuration=client_configuration(session_ticket=ticket),
            create_protocol=Recorder,
        ) as client:
            assert completed(client) == (True, False)
        server.close()
        await server.wait_closed(1)

    run_anywhere(main())


# aioquic ------------------------------------------------------------------------------------------


def test_our_client_resumes_and_sends_early_data_to_their_server(run, pki, client_configuration):
    async def main():
        telling, store = telling_class(), AioquicStore()
        handlers = {"session_ticket_fetcher": store.pop, "session_ticket_handler": store.add}
        async with aioquic_serving(pki, telling, handlers=handlers) as port:
            ticket = await ticket_of(port, client_configuration())
            assert ticket.max_early_data_size == 0xFFFFFFFF
            configuration = client_configuration(session_ticket=ticket)
            data = patterned(5_000, 3)
            assert await early_echo(port, configuration, data) == (True, True)
            assert telling.completed == ((False, False), (True, True))
            assert await early_echo(port, configuration, data) == (False, False)

    run(main())


def test_their_client_resumes_and_sends_early_data_to_our_server(run, pki, server_configuration):
    async def main():
        async with serving(server_configuration(early_data=True)) as (port, servers):
            telling = telling_class()
            ticket = await aioquic_ticket_of(port, aioquic_client(pki), telling)
            configuration = aioquic_client(pki, session_ticket=ticket)
            async with aioquic_asyncio.connect(
                "127.0.0.1",
                port,
                configuration=configuration,
                create_protocol=telling,
                wait_connected=False,
            ) as client:
                reader, writer = await client.create_stream()
                writer.write(b"early")
                writer.write_eof()
                client.transmit()
                await asyncio.wait_for(client.wait_connected(), 10)
                await eventually(lambda: servers[-1].data.get(0) == b"early")
            assert telling.completed == ((False, False), (True, True))
            assert completed(servers[-1]) == (True, True)
            early = [e for e in servers[-1].events if isinstance(e, events.StreamDataReceived)]
            assert early[0].early_data

    run(main())


def test_tickets_are_exchanged_with_aioquic(run, pki, server_configuration, client_configuration):
    """A program may switch to uringcore and keep its file of tickets."""

    async def main():
        async with serving(server_configuration()) as (port, servers):
            theirs = []
            async with aioquic_asyncio.connect(
                "127.0.0.1",
                port,
                configuration=aioquic_client(pki),
                session_ticket_handler=theirs.append,
            ) as client:
                await client.ping()
                await eventually(lambda: theirs)
            # aioquic's ticket has a server name only if the configuration has one; resumption needs it.
            ticket = dataclasses.replace(theirs[0], server_name="127.0.0.1")
            assert isinstance(ticket, aioquic_tls.SessionTicket)
            configuration = client_configuration(session_ticket=ticket)
            async with connect(
                "127.0.0.1", port, configuration=configuration, create_protocol=Recorder
            ) as client:
                assert completed(client) == (True, False)
                assert client._quic.get_peer_certificates() == []

            ours = await ticket_of(port, client_configuration())
            configuration = aioquic_client(pki, server_name="127.0.0.1", session_ticket=ours)
            telling = telling_class()
            async with aioquic_asyncio.connect(
                "127.0.0.1", port, configuration=configuration, create_protocol=telling
            ) as client:
                await client.ping()
            assert telling.completed == ((True, False),)

    run(main())


def test_an_invalid_ticket_is_refused_at_once(client_configuration):
    good = SessionTicket(
        age_add=1,
        cipher_suite=0x1301,
        not_valid_after=datetime.datetime(2999, 1, 1, tzinfo=datetime.timezone.utc),
        not_valid_before=datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc),
        resumption_secret=bytes(32),
        server_name="localhost",
        ticket=b"ticket",
    )
    client_configuration(session_ticket=good).setup()
    assert "secret" not in repr(good)
    assert "ticket=b'ticket'" in repr(good)
    for field, value in [
        ("resumption_secret", b"short"),
        ("ticket", b""),
        ("cipher_suite", 0x1399),
        ("age_add", "many"),
        ("age_add", -1),
        ("not_valid_before", None),
    ]:
        bad = copy.copy(good)
        setattr(bad, field, value)
        with pytest.raises(ValueError, match="^session_ticket: "):
            client_configuration(session_ticket=bad).setup()
