"""fork with a loop in the parent, directly and through multiprocessing, and subprocesses of
children.
"""

from __future__ import annotations

import sys
import textwrap

import pytest

from tests.loop.harness import BACKENDS, LOOPS
from tests.loop.test_signals import finish, start

QUIET = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
from tests.loop.harness import Echo, Recorder, listen, until_asleep
def child_of(body):
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            body()
            status = 0
        finally:
            os._exit(status)
    return pid
def status_of(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
async def exchange(client, transport):
    client.data.clear()
    transport.write(b"ping")
    await client.until(lambda: client.data == b"ping")
"""

# The child cannot leave its task, nor is there a current one.
goes_on_inside_the_run = pytest.mark.skipif(
    sys.version_info >= (3, 14), reason="a forked child of Python 3.14 has no current task"
)


def check(name: str, body: str) -> None:
    """Runs `body`; it has to succeed and print nothing on standard error."""
    status, out, err = finish(start(name, QUIET + textwrap.dedent(body)))
    assert (status, err) == (0, ""), out


@pytest.mark.parametrize("name", LOOPS)
def test_a_child_makes_a_loop_of_its_own_inside_a_running_one(name: str) -> None:
    check(
        name,
        """
        async def main():
            loop = asyncio.get_running_loop()
            server, address = await listen(Echo)
            transport, client = await loop.create_connection(Recorder, *address)
            await exchange(client, transport)
            def child():
                asyncio._set_running_loop(None)
                async def own():
                    server, address = await listen(Echo)
                    other, recorder = await asyncio.get_running_loop().create_connection(
                        Recorder, *address)
                    await exchange(recorder, other)
                    other.close()
                    server.close()
                    sub = await asyncio.create_subprocess_exec(
                        "/bin/echo", "hi", stdout=asyncio.subprocess.PIPE)
                    assert (await sub.communicate())[0] == b"hi\\n"
                fresh = new_loop()
                asyncio.set_event_loop(fresh)
                fresh.run_until_complete(own())
                fresh.close()
            pid = child_of(child)
            # The parent's loop goes on while the child is busy.
            for _ in range(20):
                await exchange(client, transport)
            status = await loop.run_in_executor(None, status_of, pid)
            assert status == 0, status
            await exchange(client, transport)
            transport.close()
            await client.until_call("lost")
            server.close()
        loop = new_loop()
        asyncio.set_event_loop(loop)
        loop.run_until_complete(main())
        loop.close()
        """,
    )


@pytest.mark.parametrize("name", LOOPS)
def test_a_child_closes_and_drops_the_parents_loop(name: str) -> None:
    check(
        name,
        """
        import gc
        loop = new_loop()
        async def begin():
            server, address = await listen(Echo)
            transport, client = await asyncio.get_running_loop().create_connection(
                Recorder, *address)
            await exchange(client, transport)
            return server, transport, client
        server, transport, client = loop.run_until_complete(begin())
        def child():
            global loop, server, transport, client
            if name != "stock":  # its epoll set is the parent's: asyncio closes the parent's watch
                loop.close()
            del loop, server, transport, client
            gc.collect()
        pid = child_of(child)
        assert status_of(pid) == 0
        loop.run_until_complete(exchange(client, transport))
        async def end():
            transport.close()
            await client.until_call("lost")
            server.close()
        loop.run_until_complete(end())
        loop.close()
        """.replace('name != "stock"', f'{name!r} != "stock"'),
    )


@pytest.mark.parametrize("name", LOOPS)
def test_a_child_runs_the_parents_loop(name: str) -> None:
    """Idle operations continue in both, one after the other; a task's pending result arrives."""
    check(
        name,
        """
        loop = new_loop()
        asyncio.set_event_loop(loop)
        seen = []
        async def begin():
            server, address = await listen(Echo)
            transport, client = await loop.create_connection(Recorder, *address)
            await exchange(client, transport)
            loop.add_reader(one, lambda: seen.append(one.recv(10)))
            receiving = asyncio.ensure_future(loop.sock_recv(waiting, 10))
            sleeping = asyncio.ensure_future(asyncio.sleep(0.01, "slept"))
            queue = asyncio.Queue()
            getting = asyncio.ensure_future(queue.get())
            await asyncio.sleep(0)
            return server, address, transport, client, receiving, sleeping, queue, getting
        one, other = socket.socketpair()
        waiting, told = socket.socketpair()
        for sock in (one, waiting):
            sock.setblocking(False)
        server, address, transport, client, receiving, sleeping, queue, getting = (
            loop.run_until_complete(begin()))
        def in_either(tag):
            async def work():
                # A connection that was there, a new one to the listener that was there.
                await exchange(client, transport)
                fresh, recorder = await loop.create_connection(Recorder, *address)
                await exchange(recorder, fresh)
                fresh.close()
                await recorder.until_call("lost")
                other.send(tag)
                while seen != [tag]:
                    await asyncio.sleep(0.001)
                seen.clear()
                assert await sleeping == "slept"
                told.send(tag)
                assert await receiving == tag
                queue.put_nowait(tag)
                assert await getting == tag
                threading.Timer(0.01, loop.call_soon_threadsafe, (seen.append, 1)).start()
                while not seen:
                    await asyncio.sleep(0.001)
                seen.clear()
            loop.run_until_complete(work())
        assert status_of(child_of(lambda: in_either(b"child"))) == 0
        if STOCK:  # one epoll set for both: it has lost what the child took out
            os._exit(0)
        in_either(b"parent")
        async def end():
            transport.close()
            await client.until_call("lost")
            server.close()
            loop.remove_reader(one)
        loop.run_until_complete(end())
        loop.close()
        """.replace("STOCK", str(name == "stock")),
    )


@pytest.mark.parametrize("name", BACKENDS)
def test_children_serve_on_the_parents_listener_side_by_side(name: str) -> None:
    """On asyncio their loops share one epoll set, and receive events of each other's connections."""
    check(
        name,
        """
        class Names(Echo):
            def data_received(self, data):
                self.transport.write(b"%d\\n" % os.getpid())
        loop = new_loop()
        asyncio.set_event_loop(loop)
        server, address = loop.run_until_complete(listen(Names))
        def serve():
            loop.add_reader(ends[-1][0], loop.stop)
            loop.run_forever()
        ends, pids = [], []
        for _ in range(3):
            ends.append(os.pipe())
            pids.append(child_of(serve))
        # Whom the kernel prefers answers all. Then it ends, and the others do.
        left = set(pids)
        while left:
            answers = set()
            connections = [socket.create_connection(address) for _ in range(20)]
            for connection in connections:
                connection.send(b"who")
            for connection in connections:
                with connection, connection.makefile() as answer:
                    answers.add(int(answer.readline()))
            assert answers and answers <= left, (answers, left)
            for pid in answers:
                os.write(ends[pids.index(pid)][1], b"x")
                assert status_of(pid) == 0
            left -= answers
        server.close()
        loop.run_until_complete(asyncio.sleep(0.001))
        loop.close()
        """,
    )


@pytest.mark.parametrize("name", LOOPS)
def test_a_child_of_a_callback_stops_the_loop_and_runs_it_again(name: str) -> None:
    check(
        name,
        """
        loop = new_loop()
        asyncio.set_event_loop(loop)
        one, other = socket.socketpair()
        one.setblocking(False)
        pids = []
        def fork():
            # On asyncio this is with the kernel when write() returns, and never sent twice.
            transport.write(b"once")
            pid = os.fork()
            if pid:
                pids.append(pid)
            elif not loop.is_running():
                os._exit(2)
            else:
                work = asyncio.sleep(0)
                try:
                    loop.run_until_complete(work)
                except RuntimeError as error:
                    assert "already running" in str(error)
                    work.close()
                else:
                    os._exit(3)
            loop.call_later(0.01, loop.stop)
        transport, client = loop.run_until_complete(loop.create_connection(Recorder, sock=one))
        loop.call_soon(fork)
        loop.run_forever()
        loop.run_until_complete(asyncio.sleep(0.01))
        if not pids:
            os._exit(0)
        assert status_of(pids[0]) == 0
        assert other.recv(100) == b"once"
        other.send(b"x")
        loop.run_until_complete(client.until(lambda: client.data == b"x"))
        transport.close()
        loop.run_until_complete(client.until_call("lost"))
        loop.close()
        """,
    )


@pytest.mark.parametrize("name", BACKENDS)
def test_signals_of_a_child_wake_it_in_the_parents_loop(name: str) -> None:
    check(
        name,
        """
        loop = new_loop()
        seen = []
        loop.add_signal_handler(signal.SIGUSR1, seen.append, "told")
        loop.run_until_complete(asyncio.sleep(0.001))
        async def until_seen():
            kill = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGUSR1))
            kill.start()
            ticker = loop.call_later(15, loop.stop)
            while not seen:
                await asyncio.sleep(0)
            ticker.cancel()
        def child():
            loop.run_until_complete(until_seen())
            assert seen == ["told"]
            try:
                threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT)).start()
                loop.run_until_complete(asyncio.sleep(15))
            except KeyboardInterrupt:
                pass
            else:
                raise AssertionError("it slept")
            loop.close()
        assert status_of(child_of(child)) == 0
        loop.run_until_complete(asyncio.sleep(0.001))
        assert seen == []
        loop.run_until_complete(until_seen())
        loop.close()
        """,
    )


@goes_on_inside_the_run
@pytest.mark.parametrize("name", BACKENDS)
def test_signals_of_a_child_that_goes_on_inside_the_run(name: str) -> None:
    """On asyncio before 3.12 they reach the process that reads them first, since 3.12 neither."""
    check(
        name,
        """
        async def main():
            loop = asyncio.get_running_loop()
            seen = []
            loop.add_signal_handler(signal.SIGUSR1, seen.append, "told")
            await asyncio.sleep(0.001)
            pid = os.fork()
            if pid == 0:
                asyncio._set_running_loop(loop)
                ticker = loop.call_later(10, os._exit, 1)
                os.kill(os.getpid(), signal.SIGUSR1)  # before its first sleep, and in one
                while not seen:
                    await asyncio.sleep(0.001)
                threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGUSR1)).start()
                while len(seen) < 2:
                    await asyncio.sleep(0)
                os._exit(0)
            assert await loop.run_in_executor(None, status_of, pid) == 0
            assert seen == []
            os.kill(os.getpid(), signal.SIGUSR1)
            while not seen:
                await asyncio.sleep(0.001)
        loop = new_loop()
        loop.run_until_complete(main())
        loop.close()
        """,
    )


@pytest.mark.parametrize("name", LOOPS)
def test_datagrams_and_the_rest_of_a_large_write_in_a_child(name: str) -> None:
    """The parent exits at once, like one that becomes a daemon."""
    check(
        name,
        """
        class Datagrams(asyncio.DatagramProtocol):
            def __init__(self):
                self.got = asyncio.Queue()
            def datagram_received(self, data, address):
                self.got.put_nowait(data)
        loop = new_loop()
        asyncio.set_event_loop(loop)
        one, other = socket.socketpair()
        one.setblocking(False)
        payload = bytes(range(256)) * 20_000
        async def begin():
            udp, protocol = await loop.create_datagram_endpoint(
                Datagrams, local_addr=("127.0.0.1", 0))
            stream, recorder = await loop.create_connection(Recorder, sock=one)
            stream.write(payload)
            await asyncio.sleep(0.01)
            return udp, protocol, stream, recorder
        udp, protocol, stream, recorder = loop.run_until_complete(begin())
        def child():
            async def work():
                udp.sendto(b"to myself", udp.get_extra_info("sockname"))
                assert await protocol.got.get() == b"to myself"
                stream.close()
                await recorder.until_call("lost")
                assert recorder.lost_with is None
            loop.run_until_complete(work())
        pid = child_of(child)
        one.close()
        received = bytearray()
        while len(received) < len(payload):
            piece = other.recv(1 << 16)
            assert piece, len(received)
            received += piece
        assert received == payload
        assert status_of(pid) == 0
        os._exit(0)
        """,
    )


@pytest.mark.parametrize("name", BACKENDS)
def test_a_child_that_aborts_a_transport_leaves_its_queue_to_the_parent(name: str) -> None:
    """Data queued at the fork is in both processes, and each that runs its loop sends it.

    Not on asyncio, whose child shares its parent's epoll set and removes the transport from it.
    """
    check(
        name,
        """
        loop = new_loop()
        asyncio.set_event_loop(loop)
        one, other = socket.socketpair()
        one.setblocking(False)
        payload = bytes(range(256)) * 20_000
        async def begin():
            stream, recorder = await loop.create_connection(Recorder, sock=one)
            stream.write(payload)
            await asyncio.sleep(0.01)
            return stream, recorder
        stream, recorder = loop.run_until_complete(begin())
        def child():
            async def work():
                stream.abort()
                await recorder.until_call("lost")
            loop.run_until_complete(work())
        assert status_of(child_of(child)) == 0
        received = bytearray()
        def receive():
            while piece := other.recv(1 << 16):
                received.extend(piece)
        thread = threading.Thread(target=receive)
        thread.start()
        async def finish():
            stream.close()
            await recorder.until_call("lost")
        loop.run_until_complete(finish())
        thread.join()
        loop.close()
        assert received == payload
        """,
    )


@pytest.mark.parametrize("name", BACKENDS)
def test_a_loop_that_another_thread_runs_is_nobodys_in_a_child(name: str) -> None:
    check(
        name,
        """
        loop = new_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        until_asleep(loop)
        def child():
            try:
                loop.run_until_complete(asyncio.Future(loop=loop))
            except RuntimeError as error:
                assert "belongs to the parent" in str(error), error
            else:
                raise AssertionError("it ran")
            loop.close()
        assert status_of(child_of(child)) == 0
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        """,
    )


@pytest.mark.parametrize("count", [1, 2])  # one alone takes another code path than several
@pytest.mark.parametrize("use", ["close", "run"])
@pytest.mark.parametrize("name", BACKENDS)
def test_data_written_before_another_thread_forks_is_sent_once(
    name: str, use: str, count: int
) -> None:
    """The loop cannot become idle then: its thread is in the middle of a callback."""
    check(
        name,
        f"use, count = {use!r}, {count}\n"
        + textwrap.dedent(
            """
        import errno
        go, forked = threading.Event(), threading.Event()
        def in_child(loop, transports, protocols):
            if use == "run":
                def stop_when_told():  # no task, for the parent's is not left here
                    all_told = all("lost" in protocol.calls for protocol in protocols)
                    (loop.stop if all_told else lambda: loop.call_soon(stop_when_told))()
                loop.call_soon(stop_when_told)
                loop.run_forever()
                # The parent's bytes are not its own: it is told that it lost its way into the stream.
                assert [protocol.lost_with.errno for protocol in protocols] == (
                    [errno.ECANCELED] * count)
            else:
                for transport in transports[:1]:
                    transport.abort()
            loop.close()
        def fork_here(*args):
            go.wait()
            statuses.append(status_of(child_of(lambda: in_child(*args))))
            forked.set()
        async def main():
            loop = asyncio.get_running_loop()
            transports, protocols, peers = [], [], []
            forker = threading.Thread(target=fork_here, args=(loop, transports, protocols))
            forker.start()
            for _ in range(count):
                one, other = socket.socketpair()
                one.setblocking(False)
                stream, recorder = await loop.create_connection(Recorder, sock=one)
                protocols.append(recorder)
                receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                receiver.bind(("127.0.0.1", 0))
                datagrams, _ = await loop.create_datagram_endpoint(
                    asyncio.DatagramProtocol, remote_addr=receiver.getsockname())
                transports += stream, datagrams
                peers += other, receiver
            # More than a stream's socket takes: the rest is the loop's at the fork.
            much = b"once" * 500_000
            for transport in transports:
                if hasattr(transport, "sendto"):
                    # The first may leave at once.
                    transport.sendto(b"one")
                    transport.sendto(b"two")
                else:
                    transport.write(much)
                    assert transport.get_write_buffer_size() > 0
            go.set()
            forked.wait()
            forker.join()
            for transport in transports:
                transport.close()
            for peer in peers:
                is_stream = peer.type == socket.SOCK_STREAM
                await asyncio.to_thread(receive, peer, much if is_stream else b"onetwo")
        def receive(peer, expected):
            peer.settimeout(10)
            received = b""
            while len(received) < len(expected):
                piece = peer.recv(1 << 16)
                assert piece, len(received)
                received += piece
            assert received == expected
            peer.setblocking(False)
            try:
                more = peer.recv(100)
            except BlockingIOError:
                more = b""
            assert more == b"", more
        statuses = []
        loop = new_loop()
        loop.run_until_complete(main())
        assert statuses == [0]
        loop.close()
        """
        ),
    )


@goes_on_inside_the_run
@pytest.mark.parametrize("name", BACKENDS)
def test_an_accept_goes_on_in_both_and_each_has_a_connection(name: str) -> None:
    check(
        name,
        """
        async def main():
            loop = asyncio.get_running_loop()
            listener = socket.create_server(("127.0.0.1", 0))
            listener.setblocking(False)
            accepting = asyncio.ensure_future(loop.sock_accept(listener))
            await asyncio.sleep(0.001)
            clients = [socket.create_connection(listener.getsockname()) for _ in range(2)]
            pids = []
            # It runs in the turn that finds the connections, and before one is accepted.
            loop.call_soon(lambda: pids.append(os.fork()))
            accepted, _ = await accepting
            accepted.send(b"parent" if pids[0] else b"child")
            if not pids[0]:
                os._exit(0)
            assert await loop.run_in_executor(None, status_of, pids[0]) == 0
            for client in clients:
                client.settimeout(10)
            assert {client.recv(10) for client in clients} == {b"parent", b"child"}
        loop = new_loop()
        loop.run_until_complete(main())
        loop.close()
        """,
    )


@pytest.mark.parametrize("name", BACKENDS)
def test_a_childs_signals_are_not_the_parents(name: str) -> None:
    """On asyncio before 3.12 they are: both share the wakeup socket."""
    check(
        name,
        """
        async def main():
            loop = asyncio.get_running_loop()
            seen = []
            loop.add_signal_handler(signal.SIGUSR1, seen.append, 1)
            def child():
                os.kill(os.getpid(), signal.SIGUSR1)
                time.sleep(0.05)
            pid = child_of(child)
            assert await loop.run_in_executor(None, status_of, pid) == 0
            for _ in range(10):
                await asyncio.sleep(0.005)
            assert seen == []
            os.kill(os.getpid(), signal.SIGUSR1)
            while not seen:
                await asyncio.sleep(0.001)
        loop = new_loop()
        loop.run_until_complete(main())
        loop.close()
        """,
    )


@pytest.mark.parametrize("name", LOOPS)
def test_forks_from_an_executors_thread(name: str) -> None:
    check(
        name,
        """
        def fork_here():
            return status_of(child_of(lambda: None))
        async def main():
            loop = asyncio.get_running_loop()
            server, address = await listen(Echo)
            transport, client = await loop.create_connection(Recorder, *address)
            forks = [loop.run_in_executor(None, fork_here) for _ in range(10)]
            for _ in range(50):
                await exchange(client, transport)
            assert await asyncio.gather(*forks) == [0] * 10
            transport.close()
            await client.until_call("lost")
            server.close()
        loop = new_loop()
        loop.run_until_complete(main())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        """,
    )


@pytest.mark.parametrize("name", BACKENDS)
def test_forks_while_children_are_being_made(name: str) -> None:
    """A forked child has the memory of a half-made subprocess, but neither its thread nor its
    child.
    """
    check(
        name,
        """
        import gc
        async def main():
            for _ in range(20):
                starting = [
                    asyncio.ensure_future(asyncio.create_subprocess_exec(
                        "/bin/cat", stdin=asyncio.subprocess.PIPE,
                        stdout=asyncio.subprocess.PIPE))
                    for _ in range(4)
                ]
                await asyncio.sleep(0)
                def child():
                    starting.clear()
                    gc.collect()
                pid = child_of(child)
                children = await asyncio.gather(*starting)
                for one in children:
                    out, _ = await one.communicate(b"alive")
                    assert (out, one.returncode) == (b"alive", 0)
                assert status_of(pid) == 0
        loop = new_loop()
        asyncio.set_event_loop(loop)
        loop.run_until_complete(main())
        loop.close()
        """,
    )


PARALLEL = '''
"""Run by the tests of multiprocessing: a module of its own, so that children can import it."""
import asyncio, concurrent.futures, multiprocessing, os, sys
from tests.loop.harness import factory


async def answer(number):
    await asyncio.sleep(0.001)
    child = await asyncio.create_subprocess_exec(
        "/bin/echo", str(number), stdout=asyncio.subprocess.PIPE)
    out, _ = await child.communicate()
    return int(out)


def work(name, number):
    """What a child process does: a loop of its own, a subprocess of its own."""
    loop = factory(name)()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(answer(number)) * 2
    finally:
        loop.close()


def put(queue, name, number):
    queue.put(work(name, number))


async def main(name, method):
    loop = asyncio.get_running_loop()
    context = multiprocessing.get_context(method)
    ticks = 0
    async def tick():
        nonlocal ticks
        while True:
            await asyncio.sleep(0.001)
            ticks += 1
    ticker = asyncio.ensure_future(tick())
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        jobs = [loop.run_in_executor(pool, work, name, number) for number in range(6)]
        assert await asyncio.gather(*jobs) == [number * 2 for number in range(6)]
    queue = context.Queue()
    process = context.Process(target=put, args=(queue, name, 21))
    process.start()
    assert await loop.run_in_executor(None, queue.get) == 42
    await loop.run_in_executor(None, process.join)
    assert process.exitcode == 0
    assert await answer(7) == 7
    assert ticks > 0
    ticker.cancel()


if __name__ == "__main__":
    import warnings
    warnings.simplefilter("ignore", DeprecationWarning)
    name, method = sys.argv[1:]
    loop = factory(name)()
    asyncio.set_event_loop(loop)
    loop.run_until_complete(asyncio.wait_for(main(name, method), 60))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.starmap(work, [(name, 1), (name, 2)]) == [2, 4]
'''


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
@pytest.mark.parametrize("name", LOOPS)
def test_multiprocessing(name: str, method: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    import os
    import subprocess
    import sys
    from pathlib import Path

    folder = tmp_path_factory.mktemp("parallel")
    script = folder / "parallel.py"
    script.write_text(PARALLEL)
    done = subprocess.run(
        [sys.executable, str(script), name, method],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
