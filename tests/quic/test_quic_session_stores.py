"""Session stores that may block: only handshakes that need the store's answer wait, and only for a limited
time.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time

import pytest

from tests.quic.harness import (
    Recorder,
    completed,
    connecting,
    early_echo,
    eventually,
    serving,
    ticket_of,
)
from uringcore.asyncio import connect, serve
from uringcore.quic import events, sessions
from uringcore.quic._errors import QuicConnectionRefusedError
from uringcore.quic._session_store_thread import StoreThread
from uringcore.quic.connection import QuicConnection
from uringcore.quic.sessions import SharedSessionStore

pytestmark = pytest.mark.either_backend

HOLDER = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def locked(path):
    """Another process locks the file while the block runs."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout.readline() == b"locked\n"
        try:
            yield
        finally:
            holder.stdin.close()


class Slow:
    """A store that blocks until the test opens its gate. It records its callers and their threads."""

    may_block = True

    def __init__(self):
        self.sessions = {}
        self.calls = []
        self.threads = set()
        self.stuck = threading.Event()
        self.gate = threading.Event()
        self.gate.set()

    def _note(self, name, key):
        self.calls.append((name, key))
        self.threads.add(threading.get_ident())
        if not self.gate.is_set():
            self.stuck.set()
            assert self.gate.wait(60)

    def put(self, ticket, session):
        self._note("put", ticket)
        self.sessions[ticket] = session

    def take(self, ticket):
        self._note("take", ticket)
        return self.sessions.pop(ticket, None)


@contextlib.contextmanager
def shut(store):
    """Blocks every caller of the store."""
    store.gate.clear()
    try:
        yield
    finally:
        store.gate.set()


class Watched(SharedSessionStore):
    """Sets ``inside`` while a thread is in ``take``."""

    def __init__(self, path):
        super().__init__(path)
        self.inside = threading.Event()

    def take(self, ticket):
        self.inside.set()
        try:
            return super().take(ticket)
        finally:
            self.inside.clear()


@pytest.fixture
def while_opening(monkeypatch):
    """Runs a function after a store has opened its files and before it checks them again."""

    def during(act):
        connect = sqlite3.connect

        class Interrupted(sqlite3.Connection):
            def execute(self, statement, *args):
                done = super().execute(statement, *args)
                if "tokens" in statement:
                    act()
                return done

        def connecting(*args, **options):
            return connect(*args, factory=Interrupted, **options)

        monkeypatch.setattr(sqlite3, "connect", connecting)

    return during


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
def test_a_file_that_is_removed_while_the_store_opens_is_noticed(tmp_path, while_opening, suffix):
    """If another user created the file in a sticky directory, that user may remove it; SQLite still has it
    open.
    """
    path = tmp_path / f"sessions{suffix}"
    while_opening(path.unlink)
    with pytest.raises(PermissionError, match="was removed since it was opened") as caught:
        SharedSessionStore(tmp_path / "sessions")
    assert caught.value.filename == str(path)


def test_a_journal_that_is_planted_while_the_store_opens_is_noticed(tmp_path, while_opening):
    planted = tmp_path / "sessions-journal"

    def plant():
        planted.touch()
        planted.chmod(0o666)

    while_opening(plant)
    with pytest.raises(PermissionError, match="mode 0666") as caught:
        SharedSessionStore(tmp_path / "sessions")
    assert caught.value.filename == str(planted)


def test_a_store_works_where_there_is_no_log_to_write_ahead(tmp_path, monkeypatch):
    """On a file system without shared memory SQLite uses neither -wal nor -shm."""
    connect = sqlite3.connect

    class Plain(sqlite3.Connection):
        def execute(self, statement, *args):
            if "tokens" in statement:
                for suffix in ("-wal", "-shm"):
                    (tmp_path / f"sessions{suffix}").unlink(missing_ok=True)
            return super().execute(statement.replace("= WAL", "= DELETE"), *args)

    def connecting(*args, **options):
        return connect(*args, factory=Plain, **options)

    monkeypatch.setattr(sqlite3, "connect", connecting)
    store = SharedSessionStore(tmp_path / "sessions")
    store.put(b"ticket", b"session")
    store.close()
    assert SharedSessionStore(tmp_path / "sessions").take(b"ticket") == b"session"


def test_a_store_that_is_refused_leaves_nothing_behind(tmp_path):
    for suffix in ("-wal", "-shm", "-journal"):
        planted = tmp_path / f"sessions{suffix}"
        planted.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(PermissionError, match="is a symbolic link"):
            SharedSessionStore(tmp_path / "sessions")
        assert list(tmp_path.iterdir()) == [planted]
        planted.unlink()


def test_a_locked_file_stops_neither_the_loop_nor_handshakes(
    run_anywhere, tmp_path, monkeypatch, server_configuration, client_configuration
):
    # Longer than the lock is held: a caller is blocked for all of that time.
    monkeypatch.setattr(sessions, "_BUSY", 50.0)

    async def main():
        store = Watched(tmp_path / "sessions")
        configuration = server_configuration(session_store=store, early_data=True)
        async with serving(configuration) as (port, _):
            tickets = [await ticket_of(port, client_configuration()) for _ in range(2)]
            await eventually(lambda: len(store) == 4)
            plain = client_configuration()
            async with connect("127.0.0.1", port, configuration=plain) as other:
                # No write is pending when the file is locked.
                await eventually(lambda: len(store) == 6)
                with locked(tmp_path / "sessions"):
                    resuming = client_configuration(session_ticket=tickets[0])
                    async with connecting(port, resuming) as client:
                        client.transmit()
                        await eventually(store.inside.is_set)
                        # The loop keeps running and serves other clients. A handshake without a ticket does
                        # not use the store, and the handshake with a ticket completes without the session.
                        await other.ping()
                        async with connect("127.0.0.1", port, configuration=plain) as third:
                            await third.ping()
                        await client.wait_connected()
                        await client.ping()
                        assert store.inside.is_set(), "all of that while the store was stuck"
                        assert completed(client) == (False, False)
            # Once the file is unlocked, sessions are resumed again, each one once.
            await asyncio.to_thread(StoreThread.of(store)._drain, 60)
            again = client_configuration(session_ticket=tickets[1])
            assert await early_echo(port, again, b"early") == (True, True)
            assert await early_echo(port, again, b"early") == (False, False)
        store.close()

    run_anywhere(main())


def test_a_store_that_may_block_is_called_on_one_thread_in_order(
    run_anywhere, server_configuration, client_configuration
):
    async def main():
        store = Slow()
        configuration = server_configuration(session_store=store, early_data=True)
        async with serving(configuration) as (port, _):
            ticket = await ticket_of(port, client_configuration())
            resuming = client_configuration(session_ticket=ticket)
            # The put comes before the take, even if the store is slow.
            assert await early_echo(port, resuming, b"early") == (True, True)
            assert await early_echo(port, resuming, b"early") == (False, False)
        mine = [name for name, key in store.calls if key == ticket.ticket]
        assert mine == ["put", "take", "take"]
        assert len(store.threads) == 1 and threading.get_ident() not in store.threads

    run_anywhere(main())


def test_a_store_in_memory_is_called_where_it_is(run, server_configuration, client_configuration):
    class Fast(Slow):
        may_block = False

    async def main():
        store = Fast()
        async with serving(server_configuration(session_store=store)) as (port, _):
            await ticket_of(port, client_configuration())
            assert store.threads == {threading.get_ident()}

    run(main())


def test_handshakes_go_on_while_a_store_is_stuck(
    run_anywhere, server_configuration, client_configuration
):
    async def main():
        store = Slow()
        configuration = server_configuration(session_store=store, early_data=True)
        async with serving(configuration) as (port, servers):
            tickets = [await ticket_of(port, client_configuration()) for _ in range(3)]
            await eventually(lambda: len(store.sessions) == 6)
            with shut(store):
                clients = [client_configuration(session_ticket=ticket) for ticket in tickets]
                outcomes = await asyncio.gather(
                    *(early_echo(port, client, b"early") for client in clients)
                )
                # The first call is blocked in the store, and the others wait behind it.
                assert store.stuck.is_set()
                assert outcomes == [(False, False)] * 3
            # The store's calls are in order: this one's end means that the earlier ones have ended.
            newest = await ticket_of(port, client_configuration())
            await eventually(lambda: newest.ticket in store.sessions)
            asked = {key for name, key in store.calls if name == "take"}
            # Tickets whose handshakes stopped waiting were not looked up, so they are still valid.
            unspent = [ticket for ticket in tickets if ticket.ticket not in asked]
            assert len(unspent) == 2
            again = client_configuration(session_ticket=unspent[0])
            assert await early_echo(port, again, b"early") == (True, True)

    run_anywhere(main())


@pytest.mark.parametrize("way", ["abort", "drain", "loop"])
def test_an_endpoint_or_a_loop_may_end_during_a_lookup_in_its_store(
    run_anywhere, way, server_configuration, client_configuration
):
    store = Slow()

    async def main():
        configuration = server_configuration(session_store=store)
        async with serving(configuration) as (port, _):
            ticket = await ticket_of(port, client_configuration())
            await eventually(lambda: len(store.sessions) == 2)
            store.gate.clear()
            resuming = client_configuration(session_ticket=ticket)
            async with connecting(port, resuming) as client:
                client.transmit()
                await eventually(store.stuck.is_set)
                if way == "loop":
                    asyncio.get_running_loop().call_soon(store.gate.set)
                    return
        if way == "abort":
            # The endpoint is closed.
            store.gate.set()
            await eventually(lambda: not StoreThread.of(store)._queue)

    try:
        run_anywhere(main())
    finally:
        store.gate.set()
    thread = StoreThread.of(store)
    thread._drain(60)
    assert not thread._queue and thread.store is store


@contextlib.asynccontextmanager
async def waiting(store, server, protocols, port, client_configuration):
    """A client whose handshake waits for the store; yields a task of its result."""
    ticket = await ticket_of(port, client_configuration())
    await eventually(lambda: len(store.sessions) == 2)
    before = len(protocols)

    async def served():
        configuration = client_configuration(session_ticket=ticket)
        async with connect("127.0.0.1", port, configuration=configuration) as client:
            await client.ping()

    with shut(store):
        task = asyncio.ensure_future(served())
        await eventually(store.stuck.is_set)
        assert len(protocols) == before, "nobody has been accepted"
        yield task
    await asyncio.wait([task])


@contextlib.asynccontextmanager
async def a_server(store, server_configuration):
    protocols = []

    def create(*args, **kwargs):
        protocols.append(Recorder(*args, **kwargs))
        return protocols[-1]

    configuration = server_configuration(session_store=store)
    server = await serve("127.0.0.1", 0, configuration=configuration, create_protocol=create)
    try:
        yield server, protocols
    finally:
        server.close()
        server.close_clients()
        await server.wait_closed()


def test_a_server_that_ends_serves_those_that_wait_for_its_store(
    run_anywhere, monkeypatch, server_configuration, client_configuration
):
    async def main():
        store = Slow()
        async with a_server(store, server_configuration) as (server, protocols):
            port = server.sockname[1]
            async with waiting(store, server, protocols, port, client_configuration) as task:
                # This is the server's only connection, so without the pending lookup its socket would close
                # now.
                await eventually(lambda: all(p._quic.is_closed for p in protocols))
                server.close()
                for _ in range(10):
                    await asyncio.sleep(0)
                assert not server.transport._closed.done()
            assert task.exception() is None
            await server.wait_closed()

    run_anywhere(main())


def test_clients_that_wait_for_a_store_are_closed_with_the_others(
    run_anywhere, server_configuration, client_configuration
):
    async def main():
        store = Slow()
        async with a_server(store, server_configuration) as (server, protocols):
            port = server.sockname[1]
            async with waiting(store, server, protocols, port, client_configuration) as task:
                before = len(protocols)
                server.stop_accepting()
                server.close_clients()
                with pytest.raises(QuicConnectionRefusedError):
                    await task
            await asyncio.to_thread(StoreThread.of(store)._drain, 60)
            assert server.stats()["refused_for_closing"] == 1
            assert len(protocols) == before

    run_anywhere(main())


def test_callbacks_after_a_lookup_run_in_the_endpoints_context(
    run_anywhere, server_configuration, client_configuration
):
    where = contextvars.ContextVar("where", default="the store's thread")
    seen = []

    class Noting(Recorder):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            seen.append(where.get())

        def quic_event_received(self, event):
            seen.append(where.get())
            super().quic_event_received(event)

    class Lost(Slow):
        def take(self, ticket):
            super().take(ticket)
            raise LookupError("it is lost")

    async def main():
        where.set("the server")
        loop = asyncio.get_running_loop()
        # Stock asyncio reports exceptions of callbacks in a context of its own.
        is_ours = run_anywhere.kind != "asyncio"
        loop.set_exception_handler(lambda *_: is_ours and seen.append(where.get()))
        async with serving(server_configuration(session_store=Lost()), Noting) as (port, _):

            async def client():
                where.set("the client")
                ticket = await ticket_of(port, client_configuration())
                seen.clear()
                configuration = client_configuration(session_ticket=ticket)
                async with connect("127.0.0.1", port, configuration=configuration) as other:
                    await other.ping()

            await asyncio.ensure_future(client())
            assert len(seen) > 2 and set(seen) == {"the server"}

    run_anywhere(main())


def test_an_error_of_a_store_is_reported_on_the_loop(
    run_anywhere, server_configuration, client_configuration
):
    class Broken:
        may_block = True

        def put(self, ticket, session):
            raise RuntimeError("cannot be written")

        def take(self, ticket):
            raise LookupError("nor read")

        def spend(self, token):
            raise OSError("knows of no token")

    async def main():
        reported = []
        loop = asyncio.get_running_loop()
        here = threading.get_ident()

        def report(_, context):
            assert threading.get_ident() == here
            reported.append(str(context["exception"]))

        loop.set_exception_handler(report)
        async with serving(server_configuration(session_store=Broken())) as (port, _):
            tokens = []
            plain = client_configuration()
            ticket = await ticket_of(port, plain, token_handler=tokens.append)
            resuming = client_configuration(session_ticket=ticket)
            async with connect(
                "127.0.0.1", port, configuration=resuming, create_protocol=Recorder
            ) as client:
                assert completed(client) == (False, False)
                await client.ping()
            resuming.token = tokens[0]
            async with connect("127.0.0.1", port, configuration=resuming) as client:
                await client.ping()
            await eventually(lambda: len(set(reported)) == 3)
        assert set(reported) == {"cannot be written", "nor read", "knows of no token"}

    run_anywhere(main())


def test_each_of_several_errors_that_come_at_once_is_reported(
    run_anywhere, server_configuration, client_configuration
):
    may_go = threading.Event()

    class Broken:
        may_block = True

        def put(self, ticket, session):
            may_go.wait()
            raise RuntimeError(ticket.hex())

        def take(self, ticket):
            return None

    async def main():
        reported = set()
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.add(str(context["exception"])))
        store = Broken()
        async with serving(server_configuration(session_store=store)) as (port, _):
            for _ in range(3):
                await ticket_of(port, client_configuration())
            # The loop does not run until all of them are raised.
            may_go.set()
            StoreThread.of(store)._drain(30)
            await eventually(lambda: len(reported) == 6)  # a server issues two tickets

    run_anywhere(main())


def test_tokens_are_spent_once_at_a_store_that_may_block(
    run, tmp_path, server_configuration, client_configuration
):
    async def main():
        one, two = (SharedSessionStore(tmp_path / "sessions") for _ in range(2))
        servers = [
            await serve(
                "127.0.0.1",
                0,
                configuration=server_configuration(session_store=store, token_key=b"k" * 32),
                retry=True,
            )
            for store in (one, two)
        ]
        tokens = []

        async def retries(server, token):
            """Returns the number of Retry packets that a client with this token causes."""
            before = server.stats()["incoming_retried"]
            async with connect(
                "127.0.0.1",
                server.sockname[1],
                configuration=client_configuration(token=token),
                token_handler=tokens.append,
            ) as client:
                await client.ping()
                await eventually(lambda: tokens)
            return server.stats()["incoming_retried"] - before

        assert await retries(servers[0], b"") == 1
        token = tokens[0]
        assert await retries(servers[0], token) == 0
        assert await retries(servers[1], token) == 1, "the token was used at the other server"
        for server in servers:
            server.close()
            await server.wait_closed(0)
        one.close()
        two.close()

    run(main())


def test_a_queue_that_is_full_refuses_and_recovers():
    store = Slow()
    thread = StoreThread.of(store)
    assert StoreThread.of(store) is thread
    answers = []
    with shut(store):
        assert thread.keep(b"0", b"", lambda *_: None)
        assert store.stuck.wait(60)
        accepted = 1
        while thread.keep(b"%d" % accepted, b"session", lambda *_: None):
            accepted += 1
        assert accepted == 1024
        assert not thread.ask(
            [b"1"], None, time.monotonic() + 60, lambda *answer: answers.append(answer)
        )
    thread._drain(60)
    assert len(store.sessions) == 1024
    assert thread.ask(
        [b"1", b"no"], None, time.monotonic() + 60, lambda *answer: answers.append(answer)
    )
    # A call whose deadline has passed does not reach the store.
    assert thread.ask([b"2"], None, time.monotonic(), lambda *answer: answers.append(answer))
    thread._drain(60)
    assert answers == [(True, [(b"1", b"session")], []), (True, [], [])]
    assert b"2" in store.sessions


def test_a_forked_child_has_a_thread_of_its_own():
    store = Slow()
    thread = StoreThread.of(store)
    assert thread.keep(b"parent", b"", lambda *_: None)
    thread._drain(60)
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        thread.keep(b"child", b"", lambda *_: None)
        thread._drain(30)
        os._exit(0 if b"child" in store.sessions else 1)
    assert os.waitpid(pid, 0)[1] == 0


def test_a_process_ends_while_its_store_is_stuck():
    program = """
import threading
from uringcore.quic._session_store_thread import StoreThread

class Store:
    may_block = True
    def put(self, ticket, session):
        print("stuck", flush=True)
        threading.Event().wait()

StoreThread.of(Store()).keep(b"", b"", print)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=60, check=True
    )
    assert not ended.stderr


def test_an_interpreter_ends_while_its_store_thread_is_idle():
    # The only way to run a subinterpreter within a process that all Python versions have.
    pytest.importorskip("_testcapi")
    program = """
import _testcapi

_testcapi.run_in_subinterp('''
from uringcore.quic._session_store_thread import StoreThread

class Store:
    may_block = True
    def put(self, ticket, session):
        print("kept", flush=True)

store = Store()
thread = StoreThread.of(store)
thread.keep(b"", b"", print)
thread._drain(60)
''')
print("ended", flush=True)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=60, text=True, check=False
    )
    assert ended.stdout == "kept\nended\n", ended.stderr


def test_a_thread_that_has_ended_takes_nothing_more():
    store = Slow()
    thread = StoreThread(store)
    assert thread.keep(b"1", b"", print)
    thread._end(time.monotonic() + 60)
    assert not thread._thread.is_alive() and b"1" in store.sessions
    assert not thread.keep(b"2", b"", print)


def test_a_connection_without_a_loop_gets_a_timer_for_its_store(
    server_configuration, client_configuration
):
    store = Slow()
    now = 0.0

    def exchange(client, server, until):
        nonlocal now
        sides = {"client": client, "server": server}
        for _ in range(100_000):
            for name, side in sides.items():
                other = sides["server" if name == "client" else "client"]
                for data, _addr in side.datagrams_to_send(now):
                    other.receive_datagram(data, ("192.0.2.1", 4433), now)
            if until():
                return
            due = [at for side in sides.values() if (at := side.get_timer()) is not None]
            now = max(now, min(due))
            for side in sides.values():
                at = side.get_timer()
                if at is not None and at <= now:
                    side.handle_timer(now)
        raise AssertionError("the condition did not become true")

    def connected(ticket, keep):
        client = QuicConnection(
            configuration=client_configuration(server_name="localhost", session_ticket=ticket),
            session_ticket_handler=keep,
        )
        server = QuicConnection(configuration=configuration)
        client.connect(("192.0.2.1", 4433), now)
        return client, server

    def events_of(connection):
        found = []
        while (event := connection.next_event()) is not None:
            found.append(event)
        return found

    configuration = server_configuration(session_store=store)
    tickets = []
    client, server = connected(None, tickets.append)
    exchange(client, server, lambda: len(tickets) == 2)
    StoreThread.of(store)._drain(60)
    assert len(store.sessions) == 2
    seen = []

    def is_done():
        # Only simulated time passes here; the store's thread needs real time.
        StoreThread.of(store)._drain(60)
        seen.extend(e for e in events_of(client) if isinstance(e, events.HandshakeCompleted))
        return seen

    client, server = connected(tickets[0], tickets.append)
    exchange(client, server, is_done)
    assert seen[0].session_resumed
    assert ("take", tickets[0].ticket) in store.calls
    # While a store does not answer, the connection's timer polls it until the handshake's deadline, and no
    # longer.
    with shut(store):
        store.stuck.clear()
        client, server = connected(tickets[1], tickets.append)
        for data, _addr in client.datagrams_to_send(now):
            server.receive_datagram(data, ("192.0.2.1", 4433), now)
        assert store.stuck.wait(60)
        begun, looks = now, 0
        while (at := server.get_timer()) is not None and at < begun + 5:
            looks += 1
            assert looks < 1_000, f"{looks} times in {at - begun} seconds"
            server.handle_timer(at)
            server.datagrams_to_send(at)
            events_of(server)
        assert looks < 150
