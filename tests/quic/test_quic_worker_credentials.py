"""Sessions, 0-RTT data and address validation tokens across the processes that share a port."""

from __future__ import annotations

import asyncio

import pytest

from tests.quic.harness import Recorder, eventually, kept
from tests.quic.test_quic_workers import ask, crew
from uringcore.asyncio import connect
from uringcore.quic import events, sessions
from uringcore.quic.sessions import SharedSessionStore
from uringcore.quic.workers import PortGroup

WORKERS = 3


@pytest.fixture
def store(tmp_path, monkeypatch):
    # On a busy machine, a process that holds the file's lock may not run for a while.
    monkeypatch.setattr(sessions, "_BUSY", 20)
    return SharedSessionStore(tmp_path / "sessions")


def test_a_ticket_and_a_token_are_good_once_at_whichever_process(
    run, pki, client_configuration, store
):
    """The server sends a Retry to every client without a valid token."""

    async def main():
        with PortGroup("127.0.0.1", 0, workers=WORKERS) as group:
            with crew(group, pki, run.kind, retry=True, store=store):
                counts = Retries(group.sockname[1])
                for index in range(WORKERS):
                    counts.of[index] = 0
                await resumed(counts)
                await one_of_many(counts)

    async def resumed(counts):
        """Repeats until a session of one process was resumed at a second one and shown again at a third."""
        while True:
            first, ticket, token = await counts.credentials(client_configuration())
            await kept(store._path, ticket)
            configuration = client_configuration(session_ticket=ticket, token=token)
            second, outcome, retried = await counts.visit(configuration, early=True)
            assert (outcome, retried) == ((True, True), False)
            third, outcome, retried = await counts.visit(configuration, early=True)
            assert (outcome, retried) == ((False, False), True)
            if len({first, second, third}) == WORKERS:
                return

    async def one_of_many(counts):
        """Of several clients that send one ticket at the same time, one is accepted."""
        _, ticket, token = await counts.credentials(client_configuration())
        await kept(store._path, ticket)
        configuration = client_configuration(session_ticket=ticket, token=token)
        before = sum((await counts.all(client_configuration)).values())
        found = await asyncio.gather(
            *(counts.visit(configuration, early=True, counts=False) for _ in range(15))
        )
        outcomes = [outcome for _, outcome, _ in found]
        assert outcomes.count((True, True)) == 1
        assert outcomes.count((False, False)) == 14
        assert len({index for index, _, _ in found}) > 1
        after = await counts.all(client_configuration)
        assert sum(after.values()) - before - counts.own == 14

    run(main())


class Retries:
    """Connects to a port, and records how many Retry packets each of its processes has sent."""

    def __init__(self, port):
        self.port = port
        self.of = {}
        self.own = 0

    async def credentials(self, configuration):
        """Returns the worker's index, a ticket and a token."""
        tickets, tokens = [], []
        async with connect(
            "127.0.0.1",
            self.port,
            configuration=configuration,
            create_protocol=Recorder,
            session_ticket_handler=tickets.append,
            token_handler=tokens.append,
        ) as client:
            await eventually(lambda: tickets and tokens)
            index, *_, self.of[index] = await ask(client)
        return index, tickets[0], tokens[0]

    async def visit(self, configuration, *, early=False, counts=True):
        """Returns the worker's index, two flags (session resumed, early data accepted), and true if there was
        a Retry.
        """
        async with connect(
            "127.0.0.1",
            self.port,
            configuration=configuration,
            create_protocol=Recorder,
            wait_connected=not early,
        ) as client:
            index, *_, retried = await ask(client)
            done = await client.wait_for(events.HandshakeCompleted)
        before = self.of[index]
        if counts:
            self.of[index] = retried
        return index, (done.session_resumed, done.early_data_accepted), retried > before

    async def all(self, client_configuration):
        """Returns each process's number of Retries; `own` counts those that this call has caused."""
        found = {}
        self.own = 0
        while len(found) < WORKERS:
            # A new configuration for each visit: it contains no token of an earlier connection.
            index, _, _ = await self.visit(client_configuration())
            self.own += 1
            found[index] = self.of[index]
        return found


def test_a_store_records_used_tokens_up_to_a_bound(tmp_path, monkeypatch):
    path = tmp_path / "sessions"
    one, other = SharedSessionStore(path, capacity=32), SharedSessionStore(path, capacity=32)
    assert one.spend(b"first")
    assert not other.spend(b"first") and not one.spend(b"first")
    assert other.spend(b"second") and not one.spend(b"second")
    spent = sum(one.spend(b"%d" % number) for number in range(100))
    assert 30 <= spent <= 34, "beyond the store's bound every token counts as used"
    now = sessions.time.time()
    monkeypatch.setattr(sessions.time, "time", lambda: now + 86_401)
    again = [one.spend(b"later %d" % number) for number in range(10)]
    assert again[-1], "the store forgets expired tokens and accepts new ones"
    one.close()
    other.close()
