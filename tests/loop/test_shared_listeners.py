"""One listening socket in several threads or processes: no client waits for a busy loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.loop.harness import BACKENDS, LOOPS, PATIENCE, Echo, Recorder, Runner, listen, rounds
from tests.loop.shared_sockets import Serve, Worker, workers
from tests.loop.test_fork import check as check_plainly

CLIENTS = 10

BOUND = """
import ctypes
def bound(body):
    def child():
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        body()
    return child_of(child)
"""


def check(name: str, body: str) -> None:
    """Run `body`, whose children it makes with `bound()`: they end with it, however that ends."""
    check_plainly(name, BOUND + textwrap.dedent(body))


class Answers(asyncio.Protocol):
    """Sends the name of the accepting worker, as soon as the connection is made."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self.worker.tag)
        transport.close()


async def with_create_server(worker: Worker) -> None:
    await worker.loop.create_server(lambda: Answers(worker), sock=worker.sock.dup())


async def with_start_server(worker: Worker) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(worker.tag)
        writer.close()

    await asyncio.start_server(answer, sock=worker.sock.dup())


async def with_sock_accept(worker: Worker) -> None:
    async def accept() -> None:
        while True:
            connection, _ = await worker.loop.sock_accept(worker.sock)
            with connection:
                await worker.loop.sock_sendall(connection, worker.tag)

    worker.loop.create_task(accept()).set_name("accepts")


SERVERS = pytest.mark.parametrize(
    "serve", [with_create_server, with_start_server, with_sock_accept]
)


@contextlib.contextmanager
def listening(family: socket.AddressFamily, folder: Path) -> Iterator[socket.socket]:
    with socket.socket(family) as sock:
        sock.bind(str(folder / "socket") if family == socket.AF_UNIX else ("127.0.0.1", 0))
        sock.listen(100)
        yield sock


@pytest.fixture(params=[socket.AF_INET, socket.AF_UNIX], ids=["tcp", "unix"])
def listener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[socket.socket]:
    with listening(request.param, tmp_path) as sock:
        yield sock


def connect(listener: socket.socket) -> socket.socket:
    client = socket.socket(listener.family)
    client.settimeout(PATIENCE)
    client.connect(listener.getsockname())
    return client


def answer(client: socket.socket) -> bytes:
    """Returns the worker that serves the client."""
    with client:
        return client.recv(10)


@SERVERS
@pytest.mark.parametrize("name", LOOPS)
def test_while_one_computes_another_takes_the_clients(
    name: str, serve: Serve, listener: socket.socket
) -> None:
    with workers(name, listener, serve) as (one, other):
        for busy, idle in ((one, other), (other, one)):
            with busy.computing():
                clients = [connect(listener) for _ in range(CLIENTS)]
                assert [answer(client) for client in clients] == [idle.tag] * CLIENTS


@SERVERS
@pytest.mark.parametrize("name", LOOPS)
def test_the_one_idle_loop_of_three_serves(
    name: str, serve: Serve, listener: socket.socket
) -> None:
    with workers(name, listener, serve, count=3) as everybody:
        for idle in everybody:
            with contextlib.ExitStack() as busy:
                for worker in everybody:
                    if worker is not idle:
                        busy.enter_context(worker.computing())
                assert {answer(connect(listener)) for _ in range(CLIENTS)} == {idle.tag}


class Around:
    """A wrapper that forwards attributes to a socket, like gunicorn's listeners."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sock, name)


def check_that_an_idle_loop_serves_the_rest(
    name: str,
    listener: socket.socket,
    computing: Serve,
    taken: threading.Event,
    goes_on: threading.Event,
    kept: int,
) -> None:
    """A loop that computes from its first client (`taken`) until `goes_on` keeps at most this many
    clients.
    """
    clients = [connect(listener) for _ in range(CLIENTS)]
    with workers(name, listener, computing, count=1) as (busy,):
        assert taken.wait(PATIENCE)
        idle = Worker(name, b"idle", listener)
        try:
            idle.start(with_create_server)
            assert [answer(client) for client in clients[kept:]] == [idle.tag] * (CLIENTS - kept)
        finally:
            goes_on.set()
            idle.stop()
        assert answer(clients[0]) == busy.tag


@pytest.mark.parametrize("around", [lambda sock: sock, Around], ids=["socket", "around"])
@pytest.mark.parametrize("name", BACKENDS)
def test_a_loop_accepts_one_client_a_turn(
    name: str, around: Callable[[socket.socket], Any], listener: socket.socket
) -> None:
    """Stock asyncio accepts as many clients as its backlog before it serves the first."""
    taken = threading.Event()
    goes_on = threading.Event()

    class Computes(Answers):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            taken.set()
            assert goes_on.wait(PATIENCE)

    async def computing(worker: Worker) -> None:
        sock = around(worker.sock.dup())
        await worker.loop.create_server(lambda: Computes(worker), sock=sock)

    # The first client is the busy loop's, whose answer leaves when it can.
    check_that_an_idle_loop_serves_the_rest(name, listener, computing, taken, goes_on, kept=1)


@pytest.mark.parametrize("name", BACKENDS)
def test_sock_accept_takes_one_client_a_turn(name: str, listener: socket.socket) -> None:
    """Stock asyncio's loop over `sock_accept` runs its other tasks only when no client is left."""
    taken = threading.Event()
    goes_on = threading.Event()

    async def computing(worker: Worker) -> None:
        async def handle(connection: socket.socket) -> None:
            taken.set()
            assert goes_on.wait(PATIENCE)
            with connection:
                await worker.loop.sock_sendall(connection, worker.tag)

        async def accept() -> None:
            handled = []
            while True:
                connection, _ = await worker.loop.sock_accept(worker.sock)
                handled.append(worker.loop.create_task(handle(connection)))

        worker.loop.create_task(accept()).set_name("accepts")

    # The busy loop keeps the client that it handles, and one more that it had accepted.
    check_that_an_idle_loop_serves_the_rest(name, listener, computing, taken, goes_on, kept=2)


@pytest.mark.parametrize("name", LOOPS)
def test_a_server_that_is_closed_leaves_its_clients_to_the_others(
    name: str, listener: socket.socket
) -> None:
    with listener, workers(name, listener, with_nothing) as (one, other):
        server = one.do(one.loop.create_server(lambda: Answers(one), sock=one.sock.dup()))
        with one.computing(then=server.close):
            clients = [connect(listener) for _ in range(CLIENTS)]
        one.do(asyncio.sleep(0))
        one.do(asyncio.sleep(0))
        other.do(with_create_server(other))
        assert [answer(client) for client in clients] == [other.tag] * CLIENTS


@pytest.mark.parametrize("name", LOOPS)
def test_a_server_closed_in_the_turn_of_a_client_leaves_it_to_the_others(
    name: str, listener: socket.socket
) -> None:
    with listener, workers(name, listener, with_nothing) as (one, other):
        server = one.do(one.loop.create_server(lambda: Answers(one), sock=one.sock.dup()))
        # In the next turn the loop finds the client after this.
        with one.computing(then=lambda: one.loop.call_soon(server.close)):
            client = connect(listener)
        one.do(asyncio.sleep(0))
        one.do(asyncio.sleep(0))
        other.do(with_create_server(other))
        assert answer(client) == other.tag


@pytest.mark.parametrize("name", BACKENDS)
def test_a_cancelled_sock_accept_leaves_its_client_in_the_socket(
    name: str, listener: socket.socket
) -> None:
    """Stock asyncio accepts it for the call that is cancelled, and loses it."""
    with listener, workers(name, listener, with_sock_accept) as (one, other):

        def cancel_in_its_turn() -> None:
            one.loop.call_soon(cancel)

        def cancel() -> None:
            for task in asyncio.all_tasks(one.loop):
                if task.get_name() == "accepts":
                    task.cancel()

        other.do(cancelled(other))
        with one.computing(then=cancel_in_its_turn):
            client = connect(listener)
        one.do(asyncio.sleep(0))
        one.do(asyncio.sleep(0))
        other.do(with_create_server(other))
        assert answer(client) == other.tag


async def with_nothing(worker: Worker) -> None:
    pass


async def cancelled(worker: Worker) -> None:
    for task in asyncio.all_tasks(worker.loop):
        if task.get_name() == "accepts":
            task.cancel()


@pytest.mark.parametrize("name", LOOPS)
def test_a_stopped_process_takes_no_client(name: str) -> None:
    check(
        name,
        """
        class Names(asyncio.Protocol):
            def connection_made(self, transport):
                transport.write(b"%d\\n" % os.getpid())
                transport.close()
        listener = socket.create_server(("127.0.0.1", 0))
        def serve():
            os.close(listening)
            async def main():
                await asyncio.get_running_loop().create_server(Names, sock=listener)
                os.write(serving, b"x")
                await asyncio.get_running_loop().create_future()
            new_loop().run_until_complete(main())
        listening, serving = os.pipe()
        pids = [bound(serve), bound(serve)]
        for _ in pids:
            assert os.read(listening, 1) == b"x"
        def answer():
            with socket.create_connection(listener.getsockname(), 15) as client:
                return int(client.makefile().readline())
        for stopped, other in (pids, pids[::-1]):
            os.kill(stopped, signal.SIGSTOP)
            os.waitpid(stopped, os.WUNTRACED)
            assert [answer() for _ in range(10)] == [other] * 10
            os.kill(stopped, signal.SIGCONT)
            os.waitpid(stopped, os.WCONTINUED)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            status_of(pid)
        """,
    )


@pytest.mark.parametrize("name", LOOPS)
def test_a_duplicate_of_the_loops_own_listener(name: str, listener: socket.socket) -> None:
    with workers(name, listener, with_nothing) as (one, other):
        making = one.loop.create_server(lambda: Answers(one), "127.0.0.1", 0)
        own = one.do(making).sockets[0]
        with socket.socket(fileno=os.dup(own.fileno())) as duplicate:
            making = other.loop.create_server(lambda: Answers(other), sock=duplicate.dup())
            other.do(making)
            for busy, idle in ((one, other), (other, one)):
                with busy.computing():
                    clients = [connect(duplicate) for _ in range(CLIENTS)]
                    assert [answer(client) for client in clients] == [idle.tag] * CLIENTS


@pytest.mark.parametrize("name", BACKENDS)
def test_children_that_begin_to_serve_after_the_fork_share(name: str) -> None:
    """Stock asyncio's loops share one epoll set then."""
    check(
        name,
        """
        class Names(asyncio.Protocol):
            def connection_made(self, transport):
                transport.write(b"%d\\n" % os.getpid())
                transport.close()
        loop = new_loop()
        asyncio.set_event_loop(loop)
        server = loop.run_until_complete(
            loop.create_server(Names, "127.0.0.1", 0, start_serving=False))
        server.sockets[0]._sock.listen(100)
        address = server.sockets[0].getsockname()
        serves, is_serving = os.pipe()
        def child():
            loop.run_until_complete(server.start_serving())
            os.write(is_serving, b"x")
            loop.run_forever()
        pids = [bound(child) for _ in range(2)]
        for _ in pids:
            os.read(serves, 1)
        def answer():
            with socket.create_connection(address, 15) as client:
                return int(client.makefile().readline())
        for stopped, other in (pids, pids[::-1]):
            os.kill(stopped, signal.SIGSTOP)
            os.waitpid(stopped, os.WUNTRACED)
            assert [answer() for _ in range(10)] == [other] * 10
            os.kill(stopped, signal.SIGCONT)
            os.waitpid(stopped, os.WCONTINUED)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            status_of(pid)
        server.close()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        """,
    )


@pytest.mark.parametrize("where", ["host_and_port", "path"])
@pytest.mark.parametrize("name", BACKENDS)
def test_a_fork_makes_the_loops_own_listener_a_shared_one(name: str, where: str) -> None:
    """Before it, and in parent and child: stock asyncio's loops share one epoll set then."""
    check(
        name,
        """
        class Names(asyncio.Protocol):
            def connection_made(self, transport):
                transport.write(b"%d\\n" % os.getpid())
                transport.close()
        loop = new_loop()
        asyncio.set_event_loop(loop)
        async def begin():
            if WHERE == "path":
                server = await loop.create_unix_server(Names, "\\0" + str(os.getpid()))
            else:
                server = await loop.create_server(Names, "127.0.0.1", 0)
            address = server.sockets[0].getsockname()
            client = await loop.run_in_executor(None, connect, address)
            assert await loop.run_in_executor(None, name_of, client) == os.getpid()
            return server, address
        def connect(address):
            client = socket.socket(socket.AF_UNIX if WHERE == "path" else socket.AF_INET)
            client.settimeout(15)
            client.connect(address)
            return client
        def name_of(client):
            with client:
                return int(client.makefile().readline())
        server, address = loop.run_until_complete(begin())
        asks, answers = socket.socketpair()
        def compute():
            answers.send(b"computing")
            answers.recv(1)
        def child():
            asks.close()
            loop.add_reader(answers, lambda: (answers.recv(1), compute()))
            answers.send(b"serves")
            loop.run_forever()
        pid = bound(child)
        answers.close()
        assert asks.recv(10) == b"serves"
        async def parent():
            # The child computes: the parent serves.
            await loop.run_in_executor(None, asks.send, b"c")
            assert await loop.run_in_executor(None, asks.recv, 20) == b"computing"
            for _ in range(10):
                client = await loop.run_in_executor(None, connect, address)
                assert await loop.run_in_executor(None, name_of, client) == os.getpid()
            await loop.run_in_executor(None, asks.send, b"g")
            # The parent computes: the child serves.
            for _ in range(10):
                assert name_of(connect(address)) == pid
        loop.run_until_complete(parent())
        os.kill(pid, signal.SIGKILL)
        status_of(pid)
        server.close()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        """.replace("WHERE", repr(where)),
    )


def test_a_socket_closed_beneath_its_server_takes_nothing_of_its_numbers_next_owner(
    run_ours: Runner,
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        sock = socket.create_server(("127.0.0.1", 0))
        server = await loop.create_server(asyncio.Protocol, sock=sock)
        await asyncio.sleep(0)
        number, kept = sock.fileno(), sock.dup()
        with socket.create_server(("127.0.0.1", 0)) as fresh:
            os.dup2(fresh.fileno(), number)  # as close() and another listener
            with socket.create_connection(fresh.getsockname()):
                # The old listener is readable, by the number of the new one.
                with socket.create_connection(kept.getsockname()):
                    await rounds()
                fresh.settimeout(PATIENCE)
                fresh.accept()[0].close()
        kept.close()
        server.close()

    run_ours(main())


def test_the_loops_own_listener_stays_its_own(run: Runner) -> None:
    """Started at once or later, on several addresses, with its options."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for options in ({}, {"reuse_port": True}, {"start_serving": False}):
            server, address = await listen(asyncio.Protocol, **options)
            assert server.is_serving() is options.get("start_serving", True)
            await server.start_serving()
            transport, _ = await loop.create_connection(asyncio.Protocol, *address)
            transport.close()
            server.close()

    run(main())


def test_a_listening_socket_that_its_program_closes_refuses_clients(run: Runner) -> None:
    """An epoll set forgets a closed socket at once; the loop's wait must not keep it open either."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        listener = socket.create_server(("127.0.0.1", 0))
        address = listener.getsockname()
        server = await loop.create_server(Echo, sock=listener)
        for _ in range(2):
            transport, client = await loop.create_connection(Recorder, *address)
            transport.write(b"served")
            await client.until(lambda client=client: client.data == b"served")
            transport.close()
            await client.until_call("lost")
        listener.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
        if not run.ours:
            return  # asyncio's selector does not notice the close, and fails when the number is used again
        # Its address is free, and its number now belongs to another server.
        with socket.create_server(address) as other:
            second = await loop.create_server(Echo, sock=other)
            with pytest.raises(ValueError, match="Invalid file descriptor"):  # as on asyncio
                server.close()
            transport, client = await loop.create_connection(Recorder, *address)
            transport.write(b"served")
            await client.until(lambda: client.data == b"served")
            transport.close()
            await client.until_call("lost")
            second.close()
            await second.wait_closed()

    run(main())
