"""Loops by name, protocols that record, and the process's resources, for the tests of the loop."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
LoopFactory = Callable[[], asyncio.AbstractEventLoop]
LOOPS = ("stock", "uring", "epoll")
BACKENDS = ("uring", "epoll")
# The one time limit for waits: a loaded machine is slow, and a hang still fails.
PATIENCE = 20.0


def factory(name: str) -> LoopFactory:
    """Returns a function that makes the loop called `name`, one of `LOOPS`."""
    if name == "stock":
        return asyncio.SelectorEventLoop
    import uringcore

    return lambda: uringcore.new_event_loop(backend=name)


class Complaints:
    """A loop exception handler that records its reports."""

    def __init__(self) -> None:
        self.contexts: list[dict[str, Any]] = []

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.contexts.append(context)

    @property
    def errors(self) -> list[type[BaseException]]:
        """The types of the exceptions, in order."""
        return [type(one["exception"]) for one in self.contexts if "exception" in one]


class Runner:
    """Runs coroutines, each on a loop of its own that is closed afterwards.

    A report to the loop's exception handler fails the test, unless it is expected: then the test
    reads `complaints` and clears them.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.factory = factory(name)
        self.complaints = Complaints()

    @property
    def ours(self) -> bool:
        """True if it is our loop, which has `stats()`."""
        return self.name in BACKENDS

    def __call__(self, main: Coroutine[Any, Any, T], *, timeout: float = PATIENCE) -> T:
        loop = self.factory()
        loop.set_exception_handler(self.complaints)
        asyncio.set_event_loop(loop)
        try:
            return loop.run_until_complete(asyncio.wait_for(main, timeout))
        finally:
            try:
                _cancel_all(loop)
                loop.run_until_complete(loop.shutdown_asyncgens())
                loop.run_until_complete(loop.shutdown_default_executor())
            finally:
                asyncio.set_event_loop(None)
                loop.close()

    def expect(self, *errors: type[BaseException]) -> None:
        """Asserts that the exception handler received exactly these, in this order."""
        assert self.complaints.errors == list(errors), self.complaints.contexts
        self.complaints.contexts.clear()


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))


class Recorder(asyncio.Protocol):
    """A stream protocol that records its calls, and lets a test wait for them."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport = None  # type: ignore[assignment]
        self.data = bytearray()
        self.calls: list[str] = []
        self.lost_with: BaseException | None = None
        self.eof_answer: bool | None = None
        self._changed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self._note("made")

    def data_received(self, data: bytes) -> None:
        self.data += data
        self._note("data")

    def eof_received(self) -> bool | None:
        self._note("eof")
        return self.eof_answer

    def connection_lost(self, exc: BaseException | None) -> None:
        self.lost_with = exc
        self._note("lost")

    def pause_writing(self) -> None:
        self._note("pause")

    def resume_writing(self) -> None:
        self._note("resume")

    def _note(self, call: str) -> None:
        if call != "data" or self.calls[-1:] != ["data"]:
            self.calls.append(call)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds; the test's own time-out ends it otherwise."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    async def until_call(self, call: str) -> None:
        """Wait until the protocol's method `call` was called."""
        await self.until(lambda: call in self.calls)


class Echo(asyncio.Protocol):
    """Echoes received data."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


async def listen(
    make: Callable[[], asyncio.BaseProtocol], **options: Any
) -> tuple[asyncio.AbstractServer, tuple[str, int]]:
    """Starts a server on a free port of 127.0.0.1 and returns it with its address."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(make, "127.0.0.1", 0, **options)  # type: ignore[arg-type]
    address = server.sockets[0].getsockname()
    return server, (address[0], address[1])


def open_descriptors() -> int:
    """Returns the number of this process's file descriptors."""
    return len(os.listdir("/proc/self/fd"))


def resident_bytes() -> int:
    """Returns this process's resident memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def collect() -> None:
    """Collects cycles and runs their finalizers."""
    for _ in range(3):
        gc.collect()


async def rounds(
    count: int = 5, *, through: tuple[socket.socket, socket.socket] | None = None
) -> None:
    """Let the loop poll the kernel `count` times: each time it waits for a byte that is sent meanwhile.

    Afterwards it has processed all earlier events, so a test may check that none had an effect. A test in
    which the number of a closed descriptor must stay free passes its own pair of sockets.
    """
    loop = asyncio.get_running_loop()
    one, other = through or socket.socketpair()
    one.setblocking(False)
    for _ in range(count):
        byte = asyncio.ensure_future(loop.sock_recv(one, 1))
        await asyncio.sleep(0)  # its first step, which finds nothing
        other.send(b"x")
        assert await byte == b"x"
    if through is None:
        one.close()
        other.close()


async def eventually(condition: Callable[[], object]) -> None:
    """Wait until `condition` holds, for what no callback reports; fail after `PATIENCE`."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true in time"
        await asyncio.sleep(0.001)


def until_blocked(pid: int) -> None:
    """Wait until a process sleeps in the kernel, more than for a moment."""
    seen = 0
    deadline = time.monotonic() + PATIENCE
    while seen < 3:
        assert time.monotonic() < deadline, "the loop never sleeps"
        # The state follows the name, which may have spaces and is in parentheses.
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        seen = seen + 1 if state == "S" else 0
        time.sleep(0.001)


def is_open(descriptor: int) -> bool:
    """This process has a file by that number."""
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


async def at_rest(count: Callable[[], int]) -> int:
    """Wait until a count of the loop's operations grows only because of the wait itself; return the count."""
    now = count()
    while True:
        last = now
        await asyncio.sleep(0.3)
        now = count()
        if now - last <= 4:
            return now


def until_asleep(loop: asyncio.AbstractEventLoop) -> None:
    """Wait, in a thread other than the loop's, until one of our loops sleeps in the kernel."""
    refused = 0
    # More than once: the loop may have slept for a moment only.
    while refused < 3:
        try:
            loop.stats()  # type: ignore[attr-defined]
        except RuntimeError:
            refused += 1
        else:
            refused = 0
        time.sleep(0.001)


def connected_pair() -> tuple[socket.socket, socket.socket]:
    """Two connected non-blocking TCP sockets on loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
    one.setblocking(False)
    other.setblocking(False)
    return one, other


def python_version() -> tuple[int, int]:
    """The interpreter's version."""
    return sys.version_info[:2]
