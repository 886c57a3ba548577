"""A loop run inside itself: nest_asyncio as it is released, and loop iterations that a program runs
one by one.

nest_asyncio replaces methods of the loop's class and of asyncio, so each test has a process of its
own.
"""

from __future__ import annotations

import asyncio
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.loop.harness import BACKENDS, LOOPS, connected_pair, factory
from tests.loop.test_signals import finish, start

NESTED = """
import contextvars, nest_asyncio
from tests.loop.harness import Echo, Recorder, listen
async def exchange(client, transport, text):
    client.data.clear()
    transport.write(text)
    await client.until(lambda: client.data == text)
def nested(work):
    return asyncio.get_running_loop().run_until_complete(work)
loop = new_loop()
asyncio.set_event_loop(loop)
"""


runs_nest_asyncio = pytest.mark.skipif(
    sys.version_info >= (3, 14), reason="nest_asyncio does not run on Python 3.14, on no loop"
)


def check(name: str, body: str) -> None:
    """Run `body` after NESTED; it has to succeed and print nothing on standard error."""
    status, out, err = finish(start(name, NESTED + textwrap.dedent(body)))
    assert (status, err) == (0, ""), (out, err)


@runs_nest_asyncio
@pytest.mark.parametrize("when", ["before the run", "while the loop runs"])
@pytest.mark.parametrize("name", LOOPS)
def test_run_until_complete_in_a_task(name: str, when: str) -> None:
    check(
        name,
        f"""
        applied_late = {when == "while the loop runs"}
        if not applied_late:
            nest_asyncio.apply(loop)
        seen = []
        async def inner(depth):
            await asyncio.sleep(0.002)
            if depth:
                nested(inner(depth - 1))
            seen.append(depth)
            return depth
        async def main():
            if applied_late:
                nest_asyncio.apply()
                await asyncio.sleep(0)
            assert nested(inner(3)) == 3
            assert seen == [0, 1, 2, 3], seen
            try:
                nested(asyncio.wait_for(asyncio.sleep(10), 0.001))
            except asyncio.TimeoutError:
                seen.append("time-out")
            assert asyncio.get_running_loop() is loop
        loop.run_until_complete(main())
        assert seen[-1] == "time-out"
        assert not loop.is_running()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        """,
    )


@pytest.mark.parametrize("name", LOOPS)
def test_asyncio_run_inside_a_running_loop(name: str) -> None:
    check(
        name,
        """
        nest_asyncio.apply(loop)
        async def inner():
            await asyncio.sleep(0.001)
            return asyncio.get_running_loop()
        async def main():
            return asyncio.run(inner()), asyncio.run(inner())
        assert asyncio.run(main()) == (loop, loop)
        loop.close()
        """,
    )


@runs_nest_asyncio
@pytest.mark.parametrize("name", LOOPS)
def test_everything_goes_on_during_a_nested_run(name: str) -> None:
    """Tasks, timers, threads, watchers, connections, children, and what a cancelled timer leaves."""
    check(
        name,
        """
        nest_asyncio.apply(loop)
        ticks = []
        async def tick():
            while True:
                await asyncio.sleep(0.001)
                ticks.append(1)
        async def work():
            server, address = await listen(Echo)
            transport, client = await loop.create_connection(Recorder, *address)
            for number in range(20):
                await exchange(client, transport, b"%d" % number)
            one, other = socket.socketpair()
            readable = asyncio.Event()
            loop.add_reader(one, readable.set)
            other.send(b"x")
            await readable.wait()
            loop.remove_reader(one)
            assert await loop.run_in_executor(None, lambda: 7) == 7
            child = await asyncio.create_subprocess_exec(
                "/bin/echo", "hi", stdout=asyncio.subprocess.PIPE)
            assert (await child.communicate())[0] == b"hi\\n"
            loop.call_later(0.001, lambda: 1 / 0).cancel()
            transport.close()
            await client.until_call("lost")
            server.close()
            one.close(); other.close()
        async def main():
            ticker = asyncio.ensure_future(tick())
            outside = asyncio.ensure_future(work())
            nested(work())
            assert len(ticks) > 0
            await outside
            ticker.cancel()
        loop.run_until_complete(main())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        """,
    )


@pytest.mark.parametrize("name", LOOPS)
def test_a_protocol_runs_the_loop_from_its_callback(name: str) -> None:
    check(
        name,
        """
        nest_asyncio.apply(loop)
        class Asks(Recorder):
            def data_received(self, data):
                # Over another connection of the same kind, while this one is in a callback.
                self.answer = nested(ask(address, 2)) if data == b"1" else b"end"
                super().data_received(data)
                self.transport.write(self.answer)
        async def ask(address, number):
            transport, client = await loop.create_connection(Recorder, *address)
            transport.write(b"%d" % number)
            await client.until(lambda: client.data)
            transport.close()
            await client.until_call("lost")
            return bytes(client.data)
        async def main():
            global address
            server, address = await listen(Asks)
            assert await ask(address, 1) == b"end"
            server.close()
        loop.run_until_complete(main())
        loop.close()
        """,
    )


@pytest.mark.parametrize("is_tls", [False, True])
@pytest.mark.parametrize("name", ["uring", "epoll"])
def test_data_for_a_connection_inside_a_callback_is_delivered(
    name: str, is_tls: bool, certificate: tuple[Path, Path]
) -> None:
    """asyncio fails: it reports that the connection's context is entered already."""
    check(
        name,
        f"""
        import ssl
        serving, connecting = {{}}, {{}}
        if {is_tls}:
            serving["ssl"] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            serving["ssl"].load_cert_chain({str(certificate[0])!r}, {str(certificate[1])!r})
            connecting["ssl"] = ssl.create_default_context(cafile={str(certificate[0])!r})
        nest_asyncio.apply(loop)
        class Waits(Recorder):
            def data_received(self, data):
                super().data_received(data)
                if data == b"1":
                    self.transport.write(b"ready")
                    nested(self.until(lambda: self.data == b"12"))
                    self.transport.write(b"both")
        async def main():
            server, address = await listen(Waits, **serving)
            transport, client = await loop.create_connection(Recorder, *address, **connecting)
            transport.write(b"1")
            await client.until(lambda: client.data == b"ready")
            transport.write(b"2")
            await client.until(lambda: client.data == b"readyboth")
            transport.close()
            await client.until_call("lost")
            server.close()
        loop.run_until_complete(main())
        loop.close()
        """,
    )


@pytest.mark.parametrize("name", ["uring", "epoll"])
def test_data_after_a_full_buffer_is_delivered_while_its_protocol_runs_the_loop(
    name: str,
) -> None:
    check(
        name,
        """
        import socket
        nest_asyncio.apply(loop)
        class Waits(asyncio.BufferedProtocol):
            size = wanted = 0
            def __init__(self):
                self.buffer = bytearray(40_000)
                self.news = asyncio.Event()
            def get_buffer(self, sizehint):
                return self.buffer
            def buffer_updated(self, count):
                self.size += count
                self.news.set()
                if self.size >= self.wanted > 0:
                    whole, self.wanted = self.wanted + 60_000, 0
                    nested(self.until(whole))
            async def until(self, size):
                while self.size < size:
                    self.news.clear()
                    await self.news.wait()
        async def main():
            ours, peer = socket.socketpair()
            transport, protocol = await loop.create_connection(Waits, sock=ours)
            for total, wanted in ((100_000, 0), (200_000, 140_000), (340_000, 280_000)):
                # The first of its pieces, and the second, are waited in.
                protocol.wanted = wanted
                transport.pause_reading()
                peer.sendall(bytes(100_000 if wanted < 200_000 else 140_000))
                transport.resume_reading()
                await protocol.until(total)
            transport.abort()
            peer.close()
        loop.run_until_complete(main())
        loop.close()
        """,
    )


@pytest.mark.parametrize("name", LOOPS)
def test_errors_and_exits_of_a_nested_run(name: str) -> None:
    check(
        name,
        """
        nest_asyncio.apply(loop)
        told = []
        loop.set_exception_handler(lambda loop, context: told.append(context["exception"]))
        async def main():
            loop.call_soon(lambda: 1 / 0)
            nested(asyncio.sleep(0.001))
            assert [type(one) for one in told] == [ZeroDivisionError], told
            def leave():
                raise SystemExit(3)
            loop.call_soon(leave)
            loop.call_soon(told.append, "next")
            try:
                nested(asyncio.sleep(1))
            except SystemExit as error:
                told.append(error.code)
            await asyncio.sleep(0.001)
            assert told[1:] == [3, "next"], told
        loop.run_until_complete(main())
        # What a run that is over wrote last has gone out.
        one, other = socket.socketpair()
        one.setblocking(False)
        async def write():
            transport, _ = await loop.create_connection(Recorder, sock=one)
            transport.write(b"last")
            return transport
        transport = loop.run_until_complete(write())
        assert other.recv(10) == b"last"
        transport.close()
        loop.run_until_complete(asyncio.sleep(0.001))
        other.close()
        loop.close()
        """,
    )


@pytest.mark.parametrize("name", LOOPS)
def test_ctrl_c_leaves_a_nested_run(name: str) -> None:
    check(
        name,
        """
        nest_asyncio.apply(loop)
        async def main():
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
            sleeper = asyncio.ensure_future(asyncio.sleep(15))
            try:
                nested(sleeper)
            except KeyboardInterrupt:
                sleeper.cancel()
            else:
                raise AssertionError("it slept")
            await asyncio.sleep(0.001)
        loop.run_until_complete(main())
        loop.close()
        """,
    )


# Without nest_asyncio ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LOOPS)
def test_one_turn_at_a_time(name: str) -> None:
    loop: Any = factory(name)()
    seen: list[str] = []

    def first() -> None:
        seen.append("first")
        loop.call_soon(seen.append, "child")

    loop.call_soon(first)
    loop.call_soon(seen.append, "second")
    loop._run_once()
    assert seen == ["first", "second"]
    loop._run_once()
    assert seen[2:] == ["child"]
    # A turn that finds nothing waits.
    loop.call_later(0.01, seen.append, "timer")
    loop._run_once()
    while seen[3:] != ["timer"]:
        loop._run_once()
    loop.close()


@pytest.mark.parametrize("name", LOOPS)
def test_a_subclass_has_turns_of_its_own(name: str) -> None:
    kind: Any = type(factory(name)())

    class Counting(kind):  # type: ignore[misc]
        turns = 0

        def _run_once(self) -> None:
            self.turns += 1
            super()._run_once()

    loop = Counting() if name == "stock" else Counting(backend=name)
    loop.run_until_complete(asyncio.sleep(0))
    before = loop.turns
    assert before > 1
    loop.run_until_complete(asyncio.sleep(0.001))
    assert loop.turns > before
    loop.close()


@pytest.mark.parametrize("name", LOOPS)
def test_the_ready_queue_can_be_read_and_run(name: str) -> None:
    loop: Any = factory(name)()
    seen: list[int] = []
    handles = [loop.call_soon(seen.append, number) for number in range(3)]
    ready = loop._ready
    assert (len(ready), list(ready), ready[-1]) == (3, handles, handles[2])
    assert handles[1] in ready
    ready.popleft()._run()
    assert (seen, len(ready)) == ([0], 2)
    ready.append(ready.popleft())
    loop._run_once()
    assert seen == [0, 2, 1]
    first, second, third = (loop.call_soon(seen.append, number) for number in (3, 4, 5))
    ready.remove(second)
    with pytest.raises(ValueError):
        ready.remove(second)
    ready.appendleft(ready.popleft())
    ready.remove(third)
    ready.appendleft(third)
    ready.extend([second])
    assert list(ready) == [third, first, second]
    loop._run_once()
    assert seen == [0, 2, 1, 5, 3, 4]
    loop.call_soon(seen.append, 3)
    ready.clear()
    assert not ready
    with pytest.raises(IndexError):
        ready.popleft()
    with pytest.raises(IndexError):
        ready[0]
    loop.close()


@pytest.mark.parametrize("name", LOOPS)
def test_a_handle_that_is_run_by_hand(name: str) -> None:
    loop: Any = factory(name)()
    seen: list[Any] = []
    loop.set_exception_handler(lambda loop, context: seen.append(type(context["exception"])))

    async def main() -> None:
        timer: Any = loop.call_later(1000, seen.append, "timer")
        timer._run()
        timer.cancel()
        failing: Any = loop.call_later(1000, lambda: 1 / 0)
        failing._run()
        failing.cancel()

    loop.run_until_complete(main())
    assert seen == ["timer", ZeroDivisionError]
    loop.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_waiting_again_and_again_finds_each_thing_once(backend: str) -> None:
    loop: Any = factory(backend)()
    one, other = connected_pair()
    with one, other:
        received: list[bytes] = []
        loop.add_reader(one, lambda: received.append(one.recv(10)))
        loop._selector.select(0)
        other.send(b"once")
        while not loop._ready:
            loop._selector.select(1)
        for _ in range(100):
            loop._selector.select(0)
        assert len(loop._ready) == 1
        # Clearing the ready queue does not disable a reader.
        loop._ready.clear()
        loop._run_once()
        assert received == [b"once"]
        # The next operation is armed.
        other.send(b"more")
        while len(received) < 2:
            loop._run_once()
        assert received == [b"once", b"more"]
        loop.remove_reader(one)
    loop.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_another_thread_runs_no_turn_of_a_loop_that_runs(backend: str) -> None:
    loop: Any = factory(backend)()
    # Twice for each callback: at its start, and before its end.
    meeting = threading.Barrier(2, timeout=30)

    def callback() -> None:
        meeting.wait()
        meeting.wait()

    def run() -> None:
        loop.call_soon(callback)
        loop.run_until_complete(asyncio.sleep(0.001))
        # A call outside of a run behaves the same way.
        loop.call_soon(callback)
        loop._run_once()

    thread = threading.Thread(target=run)
    thread.start()
    for _ in range(2):
        meeting.wait()
        for turn in (loop._run_once, lambda: loop._selector.select(0)):
            with pytest.raises(RuntimeError, match="other than the current one"):
                turn()
        meeting.wait()
    thread.join()
    loop.call_soon(int)
    loop._run_once()
    loop.close()


@pytest.mark.parametrize("name", LOOPS)
def test_a_run_that_a_program_numbers_in_its_own_way(name: str) -> None:
    """Libraries do this if they replace `threading.get_ident` for threads of their own."""
    loop: Any = factory(name)()
    one, other = connected_pair()

    async def main() -> None:
        loop._thread_id = 7
        loop.call_later(0.001, other.send, b"x")
        assert await loop.sock_recv(one, 1) == b"x"
        assert loop._thread_id == 7

    with one, other:
        loop.run_until_complete(main())
    loop.close()
