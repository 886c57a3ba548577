"""Several processes on one port: the routing of packets, and the death of a process."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import pickle
import signal
import socket
import threading
import time

import pytest

import uringcore
from tests.quic.harness import Recorder
from tests.quic.test_quic_server import Path
from uringcore.asyncio import connect, serve
from uringcore.quic import _worker_states as place_states
from uringcore.quic import events
from uringcore.quic._errors import QuicConnectionRefusedError
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.workers import PortGroup

WORKERS = 4


class Who(Recorder):
    """Reports its worker's index, its process id, and the counters of its endpoint."""

    index = -1

    def quic_event_received(self, event):
        super().quic_event_received(event)
        if isinstance(event, events.StreamDataReceived) and event.end_stream:
            stats = self._transport.stats()
            answer = [self.index, os.getpid(), stats["connections_accepted"]]
            answer += [stats["stateless_resets_sent"], stats["incoming_retried"]]
            self._quic.send_stream_data(
                event.stream_id, b" ".join(b"%d" % number for number in answer), True
            )


def work(worker, certfile, keyfile, backend, retry, store=None):
    """One worker process: a server that runs until it is killed."""

    async def main():
        configuration = QuicConfiguration(
            is_client=False, alpn_protocols=["test"], session_store=store, early_data=True
        )
        configuration.load_cert_chain(certfile, keyfile)
        Who.index = worker.index
        server = await serve(
            "unused",
            0,
            configuration=configuration,
            create_protocol=Who,
            workers=worker,
            retry=retry,
        )
        await server.wait_closed()

    uringcore.run(main(), backend=backend)


@contextlib.contextmanager
def crew(group, pki, kind, retry="auto", store=None):
    chosen = multiprocessing.get_context("fork")

    def start(worker):
        arguments = (worker, str(pki.server.certfile), str(pki.server.keyfile), kind, retry, store)
        process = chosen.Process(target=work, args=arguments)
        process.start()
        return process

    processes = [start(worker) for worker in group]
    try:
        yield processes, start
    finally:
        for process in processes:
            process.kill()
            process.join()


async def ask(client):
    """Returns index, process id, accepted connections, resets and retries of the worker that serves
    ``client``.
    """
    stream_id = client._quic.get_next_available_stream_id()
    client._quic.send_stream_data(stream_id, b"who?", end_stream=True)
    await client.wait_for(events.StreamDataReceived, stream_id=stream_id, end_stream=True)
    return [int(number) for number in client.data[stream_id].split()]


def client_of(port, configuration):
    return connect("127.0.0.1", port, configuration=configuration, create_protocol=Recorder)


def test_every_packet_of_200_connections_goes_to_its_worker(run, pki, client_configuration):
    """A packet at the wrong worker would cause a time-out or a reset."""

    async def main():
        configuration = client_configuration()
        limit = asyncio.Semaphore(40)
        with PortGroup("127.0.0.1", 0, workers=WORKERS) as group:
            port = group.sockname[1]
            with crew(group, pki, run.kind):

                async def one():
                    async with limit, client_of(port, configuration) as client:
                        first = await ask(client)
                        second = await ask(client)
                        assert first[:2] == second[:2]
                        return second

                answers = await asyncio.gather(*(one() for _ in range(200)))
                by_worker = {}
                for index, pid, accepted, resets, _ in answers:
                    assert resets == 0
                    by_worker.setdefault((index, pid), []).append(accepted)
                assert sorted(index for index, _ in by_worker) == list(range(WORKERS))
                for accepted in by_worker.values():
                    # Each worker accepted as many connections as it answered here: no first packet reached a
                    # second worker too.
                    assert max(accepted) == len(accepted) > 20

    run(main())


def test_a_client_whose_address_changes_stays_with_its_worker(run, pki, client_configuration):
    async def main():
        with PortGroup("127.0.0.1", 0, workers=WORKERS) as group:
            with crew(group, pki, run.kind):
                for _ in range(8):
                    path = await Rebinding.start(group.sockname)
                    async with client_of(path.port, client_configuration()) as client:
                        before = await ask(client)
                        for _ in range(8):
                            await path.rebind()
                            after = await asyncio.wait_for(ask(client), 10)
                            assert after[:2] == before[:2]
                            assert after[3] == 0
                    path.close()
                for _ in range(4):
                    async with client_of(group.sockname[1], client_configuration()) as client:
                        before = await ask(client)
                        for _ in range(4):
                            await client.migrate(local_addr=("127.0.0.1", 0))
                            after = await ask(client)
                            assert after[:2] == before[:2]
                            assert after[3] == 0

    run(main())


class Rebinding(Path):
    """A NAT that forgets its mapping: after each rebinding the server sees a new source port."""

    out = None

    @classmethod
    async def start(cls, server):
        self = await super().start(server)
        await self.rebind()
        return self

    async def rebind(self):
        loop = asyncio.get_running_loop()
        if self.out is not None:
            self.out.close()
        self.out, _ = await loop.create_datagram_endpoint(
            lambda: Inside(self), remote_addr=self.server
        )

    def datagram_received(self, data, addr):
        self.client = addr
        self.out.sendto(data)

    def close(self):
        self.out.close()
        self.transport.close()


class Inside(asyncio.DatagramProtocol):
    def __init__(self, path):
        self.path = path

    def datagram_received(self, data, addr):
        self.path.transport.sendto(data, self.path.client)


def test_others_stand_in_for_a_worker_that_died_until_it_is_replaced(
    run, pki, client_configuration
):
    """The other workers reset its connections, and accept its share of new clients."""

    async def main():
        with PortGroup("127.0.0.1", 0, workers=WORKERS) as group:
            port = group.sockname[1]
            with crew(group, pki, run.kind) as (processes, start):
                configuration = client_configuration()
                async with contextlib.AsyncExitStack() as stack:
                    clients, served = [], []
                    # The kernel picks the worker at random; some repeat for a long time.
                    while len(clients) < 24 or set(served) != set(range(WORKERS)):
                        assert len(clients) < 200
                        client = await stack.enter_async_context(client_of(port, configuration))
                        clients.append(client)
                        served.append((await ask(client))[0])
                    processes[1].kill()
                    processes[1].join()
                    group.mark(1, serving=False)
                    for index, client in zip(served, clients, strict=True):
                        if index != 1:
                            assert (await asyncio.wait_for(ask(client), 10))[0] == index
                        else:
                            client._quic.send_stream_data(100, b"hello?")
                            end = await client.wait_for(events.ConnectionTerminated)
                            assert end.kind == "stateless_reset"
                for _ in range(16):
                    async with client_of(port, configuration) as client:
                        assert (await ask(client))[0] != 1
                processes[1] = start(group[1])
                group.mark(1, serving=True)
                # The new process serves under the old index, and all other connections stay where they are.
                seen = set()
                deadline = time.monotonic() + 30
                while len(seen) < WORKERS and time.monotonic() < deadline:
                    async with client_of(port, configuration) as client:
                        index, pid = (await ask(client))[:2]
                        assert pid == processes[index].pid
                        seen.add(index)
                assert seen == set(range(WORKERS))

    run(main())


def test_a_retry_is_good_at_another_worker(run, server_configuration, client_configuration):
    """The worker that sent the Retry may be dead when the client returns."""

    class Losing(Path):
        """Marks the worker as dead when it has sent its Retry."""

        def datagram_received(self, data, addr):
            if addr == self.server and data[0] & 0xF0 == 0xF0:
                self.retries.append(data[6 + data[5] + 1] % 3)
                self.group.mark(self.retries[-1], serving=False)
            super().datagram_received(data, addr)

    async def main():
        with PortGroup("127.0.0.1", 0, workers=3) as group:
            async with in_one_process(group, server_configuration, retry=True):
                for _ in range(6):
                    path = await Losing.start(group.sockname)
                    path.group, path.retries = group, []
                    async with client_of(path.port, client_configuration()) as client:
                        (gone,) = path.retries
                        assert (await ask(client))[0] != gone
                    group.mark(gone, serving=True)
                    path.transport.close()

    run(main())


def test_a_worker_that_drains_sends_new_clients_on(run, server_configuration, client_configuration):
    """Open connections continue. If all workers drain, clients are refused."""

    async def main():
        with PortGroup("127.0.0.1", 0, workers=3) as group:
            port = group.sockname[1]
            async with in_one_process(group, server_configuration) as servers:
                async with contextlib.AsyncExitStack() as stack:
                    clients = {}
                    while set(clients) != {0, 1, 2}:
                        client = await stack.enter_async_context(
                            client_of(port, client_configuration())
                        )
                        clients[(await ask(client))[0]] = client
                    servers[1].close()
                    while servers[1].stats()["incoming_retried"] < 3:
                        async with client_of(port, client_configuration()) as client:
                            assert (await ask(client))[0] != 1
                    # The long protocol list makes a ClientHello of several datagrams.
                    names = [f"{number:0200}" for number in range(20)]
                    long = client_configuration(alpn_protocols=["test", *names])
                    async with client_of(port, long) as client:
                        assert (await ask(client))[0] != 1
                    for index, client in clients.items():
                        assert (await ask(client))[0] == index
                    servers[0].close()
                    servers[2].close()
                    with pytest.raises(QuicConnectionRefusedError):
                        async with client_of(port, client_configuration()):
                            pass
                for server in servers:
                    await asyncio.wait_for(server.wait_closed(), 20)

    run(main())


@contextlib.asynccontextmanager
async def in_one_process(group, server_configuration, **options):
    """Starts a server for each worker, all on the running loop."""
    async with contextlib.AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                await serve(
                    "",
                    0,
                    configuration=server_configuration(),
                    create_protocol=type("One", (Who,), {"index": worker.index}),
                    workers=worker,
                    **options,
                )
            )
            for worker in group
        ]


def _fails_then_serves(worker, directory, certfile, keyfile):
    marker = os.path.join(directory, f"started-{worker.index}-")
    count = sum(name.startswith(os.path.basename(marker)) for name in os.listdir(directory))
    open(f"{marker}{count}", "w").close()
    if count == 0 and worker.index == 0:
        raise SystemExit(3)
    work(worker, certfile, keyfile, "epoll", "auto")


def test_a_group_replaces_what_fails_and_ends_on_a_signal(tmp_path, pki, client_configuration):
    context = multiprocessing.get_context("spawn")
    with PortGroup("127.0.0.1", 0, workers=2) as group:
        port = group.sockname[1]
        arguments = (str(tmp_path), str(pki.server.certfile), str(pki.server.keyfile))
        found = []

        async def main():
            seen = set()
            while seen != {0, 1}:
                async with client_of(port, client_configuration()) as client:
                    seen.add((await ask(client))[0])
            found.append(seen)

        def watch():
            try:
                uringcore.run(asyncio.wait_for(main(), 40))
            finally:
                os.kill(os.getpid(), signal.SIGTERM)

        watcher = threading.Thread(target=watch)
        watcher.start()
        before = signal.getsignal(signal.SIGTERM)
        group.run(_fails_then_serves, *arguments, context=context)
        watcher.join()
        assert signal.getsignal(signal.SIGTERM) is before
        assert found == [{0, 1}]
        assert sorted(os.listdir(tmp_path)) == ["started-0-0", "started-0-1", "started-1-0"]


def test_a_group_needs_no_memory_file(monkeypatch):
    """A Python that was built with an old glibc lacks memfd_create."""
    monkeypatch.delattr(os, "memfd_create")
    with PortGroup("127.0.0.1", 0, workers=2) as group:
        states = place_states.WorkerStates(2)
        try:
            assert not os.get_inheritable(states.fileno())
            assert os.fstat(states.fileno()).st_nlink == 0
            states[1] = place_states.ENDING
            assert states.all() == bytes([place_states.ACCEPTING, place_states.ENDING])
        finally:
            states.close()
        assert len(list(group)) == 2


def test_a_group_is_a_port_with_keys():
    with pytest.raises(ValueError, match="workers"):
        PortGroup("127.0.0.1", 0, workers=0)
    with pytest.raises(ValueError, match="workers"):
        PortGroup("127.0.0.1", 0, workers=256)
    with PortGroup("127.0.0.1", 0, workers=3) as group:
        assert [worker.index for worker in group] == [0, 1, 2]
        assert len({worker.socket.getsockname() for worker in group}) == 1
        assert len({worker._stateless_reset_key for worker in group}) == 1
        assert len(group[0]._stateless_reset_key) == 32 and len(group[0]._token_key) == 64
        assert b"key" not in repr(group[0]).encode()
        with pytest.raises(TypeError):
            pickle.dumps(group[0])
        port = group.sockname[1]
        with (
            pytest.raises(OSError, match="binding"),
            contextlib.closing(PortGroup("192.0.2.77", 0, workers=1)),
        ):
            pass
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", port))


def test_substitutes_get_equal_shares_and_draining_workers_get_none():
    """Counted by the packets at the sockets: one packet is sent for each worker index."""
    with PortGroup("127.0.0.1", 0, workers=8) as group:

        def shares():
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
                for place in range(8):
                    client.sendto(bytes([0x43, place, 0, 0, 0, 0]), group.sockname)
            found = {}
            for worker in group:
                with contextlib.suppress(BlockingIOError):
                    while datagram := worker.socket.recv(100):
                        found.setdefault(worker.index, set()).add(datagram[1])
            return found

        for index in (1, 3, 4, 5, 6, 7):
            group.mark(index, serving=False)
        assert {index: len(places) for index, places in shares().items()} == {0: 4, 2: 4}
        group.mark(4, serving=True)
        group.mark(2, serving=True, accepting=False)
        found = shares()
        assert found[2] == {2}
        assert found[0] | found[4] == {0, 1, 3, 4, 5, 6, 7}
        assert len(found[0]) in (3, 4)
        # If no worker accepts new clients, the draining workers receive them, to refuse them.
        for index in (0, 4):
            group.mark(index, serving=True, accepting=False)
        assert sum(len(places) for places in shares().values()) == 8
        assert set(shares()) == {0, 2, 4}


def test_a_place_can_be_marked_in_a_forked_child():
    with PortGroup("127.0.0.1", 0, workers=3) as group:
        for index in (0, 1):
            group.mark(index, serving=False)
        child = os.fork()
        if child == 0:
            group.mark(1, serving=True)
            group.mark(2, serving=False)
            os._exit(0)
        os.waitpid(child, 0)
        group.mark(0, serving=True)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            for place in range(3):
                client.sendto(bytes([0x43, place, 0, 0, 0, 0]), group.sockname)
        received = [worker.socket.recv(100)[1] for worker in (group[0], group[1])]
        assert received == [0, 1]
        with pytest.raises(BlockingIOError):
            group[2].socket.recv(100)


def duplicate(worker):
    """Duplicates a worker's socket, as a server does. In this process the socket was rebuilt, which makes it
    blocking.
    """
    worker.socket.dup().close()


def test_a_socket_that_another_process_has_used_is_cleared_without_waiting():
    """The blocking mode belongs to the socket, which all processes share; and the socket may stay empty
    forever.
    """
    context = multiprocessing.get_context("spawn")
    with PortGroup("127.0.0.1", 0, workers=2) as group:
        process = context.Process(target=duplicate, args=(group[0],))
        process.start()
        process.join()
        assert process.exitcode == 0
        clearing = threading.Thread(target=group.clear, args=(0,), daemon=True)
        clearing.start()
        clearing.join(30)
        assert not clearing.is_alive()


def test_queued_packets_of_a_dead_worker_can_be_dropped():
    with PortGroup("127.0.0.1", 0, workers=1) as group:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.sendto(b"late", group.sockname)
            group.clear(0)
            with pytest.raises(BlockingIOError):
                group[0].socket.recv(100)
