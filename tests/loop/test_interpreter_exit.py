"""The interpreter ends while a daemon thread runs a loop, or while a transport is open."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.loop.harness import BACKENDS, LOOPS

# The thread's activity when the main thread returns.
KINDS = {
    "turning": "while True: await asyncio.sleep(0)",
    "in a callback": "while True: sum(range(100_000)); await asyncio.sleep(0)",
    "waking": "while True: await asyncio.sleep(0.0001)",
    "asleep": "await asyncio.sleep(3600)",
    "in a protocol": """
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        while True:
            writer.write(b"x" * 10)
            await reader.readexactly(10)
    """,
    "in a sock_ call": """
        one, other = socket.socketpair()
        one.setblocking(False); other.setblocking(False)
        while True:
            await loop.sock_sendall(one, b"x")
            await loop.sock_recv(other, 1)
            await asyncio.sleep(0)
    """,
    "nested": """
        import nest_asyncio
        nest_asyncio.apply(loop)
        while True: loop.run_until_complete(asyncio.sleep(0.0001))
    """,
}
OURS = {
    "in a file operation": """
        from uringcore import aio
        while True:
            async with aio.open(sys.executable, "rb", buffering=0) as file:
                while await file.read(300_000): pass
    """,
    "in an executor": "while True: await loop.run_in_executor(None, sum, range(1000))",
}
PROGRAM = """
import asyncio, socket, sys, threading, time

async def echo(reader, writer):
    while data := await reader.read(100):
        writer.write(data)

async def forever():
    loop = asyncio.get_running_loop()
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    loop.call_later(0.02, entered.set)
    {body}

def run(name):
    if name == "stock":
        loop = asyncio.SelectorEventLoop()
    else:
        import uringcore
        loop = uringcore.new_event_loop(backend=name)
    loop.run_until_complete(forever())

entered = threading.Event()
threading.Thread(target=run, args=(sys.argv[1],), daemon=True).start()
assert entered.wait(60)
"""


def _ends_well(name: str, body: str) -> None:
    body = body.strip().replace("\n    ", "\n")
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM.format(body=body), name],
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == 0, done.stderr
        assert "FATAL" not in done.stderr


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_interpreter_ends_while_a_daemon_thread_runs_a_loop(name: str, kind: str) -> None:
    _ends_well(name, KINDS[kind])


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("kind", OURS)
def test_the_interpreter_ends_while_a_daemon_thread_runs_a_loop_of_ours(
    name: str, kind: str
) -> None:
    _ends_well(name, OURS[kind])


SHOWN_LATE = """
import asyncio, socket, sys

class Late(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport

    def __del__(self):
        # Nothing can be imported any more.
        assert sys.meta_path is None
        print(repr(self.transport).startswith("<"), self.transport.get_extra_info("peername", 3) == "")

async def main():
    global protocol, theirs
    ours, theirs = socket.socketpair()
    _, protocol = await asyncio.get_running_loop().create_connection(Late, sock=ours)

if sys.argv[1] == "stock":
    loop = asyncio.SelectorEventLoop()
else:
    import uringcore
    loop = uringcore.new_event_loop(backend=sys.argv[1])
loop.run_until_complete(main())
"""


@pytest.mark.parametrize("name", LOOPS)
def test_the_repr_of_a_transport_works_when_the_interpreter_ends(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHOWN_LATE, name], capture_output=True, text=True, timeout=100
    )
    assert done.stdout == "True True\n", done.stderr


def _run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=100
    )


NEVER_CLOSED = """
import asyncio, gc, sys
import uringcore

async def main():
    await asyncio.sleep(0)

class CollectedEarly(uringcore.UringEventLoop):
    # The loop is older than its sockets by a collection.
    def _make_self_pipe(self):
        gc.collect(0)
        super()._make_self_pipe()

def go():
    kind = CollectedEarly if sys.argv[2] == "collected" else uringcore.new_event_loop
    loop = kind(sys.argv[1])
    loop.run_until_complete(main())

garbage = [[] for _ in range(0 if sys.argv[2] == "collected" else int(sys.argv[2]))]
go()
"""


@pytest.mark.parametrize("before", ["0", "250", "500", "650", "collected"])
@pytest.mark.parametrize("name", BACKENDS)
def test_an_unclosed_loop_ends_with_the_interpreter(name: str, before: str) -> None:
    """The last collection may find the loop and its sockets in any order."""
    done = _run(NEVER_CLOSED, name, before)
    assert (done.returncode, done.stderr) == (0, "")


ERRORS_LATE = """
import asyncio, socket, sys
import uringcore

def unbound():
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setblocking(False)
    return sock

class Told(asyncio.DatagramProtocol):
    def error_received(self, exc):
        print(type(exc).__name__)

class Late(uringcore.UringEventLoop):
    def __del__(self):
        assert sys.meta_path is None
        for wrong in (-1, 2**40, "text"):
            try:
                print(self.remove_reader(wrong))
            except ValueError:
                print("ValueError")
        # Made here: the collector may have finalised an older one first.
        transport = self._make_datagram_transport(unbound(), Told())
        transport.sendto(b"x", ("127.0.0.1", 2**40))
        self.close()

async def main():
    transport, _ = await loop.create_datagram_endpoint(Told, sock=unbound())
    transport.close()

loop = Late(sys.argv[1])
loop.run_until_complete(main())
loop.set_exception_handler(lambda loop, context: print(type(context["exception"]).__name__))
"""


@pytest.mark.parametrize("name", BACKENDS)
def test_errors_are_raised_when_the_interpreter_ends(name: str) -> None:
    done = _run(ERRORS_LATE, name)
    assert done.stdout.split() == ["ValueError", "False", "ValueError", "OverflowError"]
    assert (done.returncode, done.stderr) == (0, "")


AFTER_THE_MAIN_THREAD = {
    "in a thread that outlives it": """
        threading.Thread(target=lambda: (threading.main_thread().join(), run())).start()
    """,
    "at exit": "atexit.register(run)",
}
LATE_LOOP = """
import asyncio, atexit, sys, threading

async def main():
    await asyncio.sleep(0.001)
    print("ran")

def run():
    loop = factory()
    loop.run_until_complete(main())
    loop.close()

if sys.argv[1] == "stock":
    factory = asyncio.SelectorEventLoop
else:
    import uringcore
    factory = lambda: uringcore.new_event_loop(backend=sys.argv[1])
{begin}
"""


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("when", AFTER_THE_MAIN_THREAD)
def test_a_loop_is_made_after_the_main_thread_has_ended(name: str, when: str) -> None:
    """At that time CPython rejects the import of an executor's threads."""
    done = _run(LATE_LOOP.format(begin=AFTER_THE_MAIN_THREAD[when].strip()), name)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")
