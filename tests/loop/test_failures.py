"""Protocols that raise, peers that die: the loop continues and reports the error."""

from __future__ import annotations

import asyncio
import contextvars
import errno
import gc
import os
import signal
import socket
import subprocess
import sys
import warnings
from typing import Any

import pytest

from tests.loop.harness import (
    PATIENCE,
    Echo,
    Recorder,
    Runner,
    collect,
    connected_pair,
    eventually,
    is_open,
    listen,
    open_descriptors,
    rounds,
)
from tests.loop.test_listening import filled_descriptors

# Connects, sends without end, and is killed during that.
SENDER = """
import socket, sys
sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
while True:
    sock.sendall(b"x" * 65536)
"""
# Connects and reads nothing, so that the other side blocks in the middle of a write.
STALLER = """
import socket, sys, time
sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
time.sleep(60)
"""


async def _served_after(factory: type[asyncio.Protocol], first: bytes) -> None:
    """A client whose server protocol fails loses its connection; the next one is served."""
    loop = asyncio.get_running_loop()
    made = 0

    def make() -> asyncio.Protocol:
        nonlocal made
        made += 1
        return factory() if made == 1 else Echo()

    server, address = await listen(make)
    transport, client = await loop.create_connection(Recorder, *address)
    transport.write(first)
    await asyncio.wait_for(client.until_call("lost"), 10)
    transport, client = await loop.create_connection(Recorder, *address)
    transport.write(b"served")
    await client.until(lambda: client.data == b"served")
    transport.close()
    await client.until_call("lost")
    server.close()
    await rounds()


def test_data_received_raises(run: Runner) -> None:
    class Fails(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            raise ZeroDivisionError

    run(_served_after(Fails, b"data"))
    run.expect(ZeroDivisionError)


def test_get_buffer_raises(run: Runner) -> None:
    class Fails(asyncio.BufferedProtocol):
        def get_buffer(self, sizehint: int) -> bytearray:
            raise ZeroDivisionError

    run(_served_after(Fails, b"data"))  # type: ignore[arg-type]
    run.expect(ZeroDivisionError)


def test_buffer_updated_raises(run: Runner) -> None:
    class Fails(asyncio.BufferedProtocol):
        def get_buffer(self, sizehint: int) -> bytearray:
            return bytearray(100)

        def buffer_updated(self, nbytes: int) -> None:
            raise ZeroDivisionError

    run(_served_after(Fails, b"data"))  # type: ignore[arg-type]
    run.expect(ZeroDivisionError)


def test_connection_made_raises(run: Runner) -> None:
    class Fails(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport
            asyncio.get_running_loop().call_later(0.02, transport.abort)  # type: ignore[attr-defined]
            raise ZeroDivisionError

    run(_served_after(Fails, b""))
    run.expect(ZeroDivisionError)


def test_eof_received_raises(run: Runner) -> None:
    class Fails(Recorder):
        def eof_received(self) -> bool:
            raise ZeroDivisionError

    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = connected_pair()
        _, protocol = await loop.create_connection(Fails, sock=one)
        other.close()
        await protocol.until_call("lost")

    run(main())
    run.expect(ZeroDivisionError)


def test_connection_lost_raises(run: Runner) -> None:
    class Fails(Recorder):
        def connection_lost(self, exc: BaseException | None) -> None:
            super().connection_lost(exc)
            raise ZeroDivisionError

    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = connected_pair()
        transport, protocol = await loop.create_connection(Fails, sock=one)
        descriptor = transport.get_extra_info("socket").fileno()
        transport.close()
        await protocol.until_call("lost")
        # The socket is closed nevertheless.
        await eventually(lambda: not is_open(descriptor))
        other.close()

    run(main())
    run.expect(ZeroDivisionError)


def test_pause_and_resume_writing_raise(run: Runner) -> None:
    class Fails(Recorder):
        def pause_writing(self) -> None:
            super().pause_writing()
            raise ZeroDivisionError

        def resume_writing(self) -> None:
            super().resume_writing()
            raise ZeroDivisionError

    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = connected_pair()
        left, sender = await loop.create_connection(Fails, sock=one)
        right, receiver = await loop.create_connection(Recorder, sock=other)
        right.pause_reading()
        written = 0
        while "pause" not in sender.calls:
            left.write(b"w" * 65536)
            written += 65536
            await asyncio.sleep(0)
        right.resume_reading()
        await receiver.until(lambda: len(receiver.data) == written)
        await sender.until_call("resume")
        left.close()
        await receiver.until_call("lost")

    run(main())
    run.expect(ZeroDivisionError, ZeroDivisionError)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_an_exit_in_data_received_leaves_the_loop(run: Runner, error: type[BaseException]) -> None:
    class Leaves(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            raise error

    loop = run.factory()
    loop.set_exception_handler(run.complaints)
    one, other = connected_pair()
    try:
        transport, _ = loop.run_until_complete(loop.create_connection(Leaves, sock=one))
        other.send(b"data")
        loop.call_later(10, loop.stop)
        with pytest.raises(error):
            loop.run_forever()
        transport.close()
        loop.run_until_complete(rounds())
    finally:
        other.close()
        loop.close()


def test_an_exit_in_connection_made_keeps_the_connection(run: Runner) -> None:
    class Leaves(Recorder):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            raise KeyboardInterrupt

    loop = run.factory()
    loop.set_exception_handler(run.complaints)
    one, other = connected_pair()
    try:
        task = loop.create_task(loop.create_connection(Leaves, sock=one))
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(task)
        other.send(b"data")
        transport, recorder = loop.run_until_complete(asyncio.wait_for(task, PATIENCE))
        loop.run_until_complete(asyncio.wait_for(recorder.until_call("data"), PATIENCE))
        assert recorder.data == b"data"
        transport.close()
        loop.run_until_complete(recorder.until_call("lost"))
    finally:
        other.close()
        loop.close()


@pytest.mark.parametrize("program", [SENDER, STALLER], ids=["sending", "stalled"])
def test_a_peer_that_is_killed_in_mid_transfer(run: Runner, program: str) -> None:
    class Feed(Recorder):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            if program is STALLER:
                self.transport.write(b"y" * 50_000_000)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        accepted: asyncio.Queue[Feed] = asyncio.Queue()

        def make() -> Feed:
            protocol = Feed()
            accepted.put_nowait(protocol)
            return protocol

        server, address = await listen(make)
        child = subprocess.Popen([sys.executable, "-c", program, str(address[1])])
        try:
            protocol = await accepted.get()
            if program is SENDER:
                await protocol.until(lambda: len(protocol.data) > 1_000_000)
            else:
                await protocol.until_call("made")
                await eventually(lambda: protocol.transport.get_write_buffer_size() > 0)
            child.send_signal(signal.SIGKILL)
            await protocol.until_call("lost")
        finally:
            child.kill()
            child.wait()
        server.close()
        if run.ours:
            stats = loop.stats  # type: ignore[attr-defined]
            await eventually(lambda: (stats()["streams"], stats()["buffers_out"]) == (0, 0))

    run(main())


def test_loops_end_with_connections_still_open(run: Runner) -> None:
    """A program that stops without closing must neither hang nor crash in close()."""
    loop = run.factory()
    loop.set_exception_handler(run.complaints)

    async def start() -> list[asyncio.Transport]:
        one, other = connected_pair()
        left, _ = await loop.create_connection(Recorder, sock=one)
        right, _ = await loop.create_connection(Recorder, sock=other)
        left.write(b"z" * 10_000_000)
        return [left, right]

    kept = loop.run_until_complete(start())
    for transport in kept:
        transport.abort()
    loop.close()


def test_closing_a_loop_does_not_close_a_descriptor_twice(run: Runner) -> None:
    """The socket of an accepted connection outlives its loop; its number may be another file's by
    then.
    """
    loop = run.factory()
    accepted: list[asyncio.BaseTransport] = []

    class Server(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted.append(transport)

    async def start() -> int:
        server, address = await listen(Server)
        client, _ = await loop.create_connection(Recorder, *address)
        while not accepted:
            await asyncio.sleep(0.01)
        number = accepted[0].get_extra_info("socket").fileno()
        client.abort()
        server.close()
        return number

    number = loop.run_until_complete(start())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # this test needs an unclosed transport
        loop.close()
        kept = accepted[0].get_extra_info("socket")
        assert kept.fileno() == number, "the transport keeps its socket while it is referenced"
        others = [os.open(os.devnull, os.O_RDONLY) for _ in range(number + 1)]
        assert number not in others
        accepted.clear()
        del kept
        gc.collect()
        for other in others:
            os.fstat(other)
            os.close(other)
    with pytest.raises(OSError):
        os.fstat(number)


def test_a_socket_whose_close_fails_does_not_end_the_loop(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = connected_pair()
        spare = socket.socketpair()
        transport, recorder = await loop.create_connection(Recorder, sock=one)
        number = one.detach()
        stranger = socket.socket(fileno=number)
        os.close(number)
        transport.abort()
        await recorder.until_call("lost")
        await rounds(through=spare)
        for sock in (other, *spare):
            sock.close()
        stranger.detach()

    run(main())
    run.complaints.contexts.clear()


def test_an_exception_handler_that_raises_is_logged(
    run: Runner, caplog: pytest.LogCaptureFixture
) -> None:
    loop = run.factory()

    def handler(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        raise ZeroDivisionError("in the handler")

    def fail() -> None:
        raise LookupError("in the callback")

    loop.set_exception_handler(handler)
    loop.call_soon(fail)
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    text = caplog.text
    assert "Unhandled error in exception handler" in text
    assert "in the handler" in text


def test_the_exception_handler_runs_in_the_context_of_what_failed(run: Runner) -> None:
    """The handler runs in the handle's context since CPython 3.12, and in the context of a task whose loss is
    noticed later.
    """
    variable = contextvars.ContextVar("variable", default="outer")
    seen: list[str] = []

    def handler(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        seen.append(variable.get())

    def fail() -> None:
        variable.set("callback")
        raise LookupError

    async def fail_as_task() -> None:
        variable.set("task")
        raise LookupError

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(handler)
        loop.call_soon(fail)
        await asyncio.sleep(0)
        asyncio.ensure_future(fail_as_task())  # noqa: RUF006  losing it is the point
        await asyncio.sleep(0)
        collect()
        await asyncio.sleep(0)

    run(main())
    expected = ["callback", "task"] if sys.version_info >= (3, 12) else ["outer", "outer"]
    assert seen == expected


def test_objects_of_a_callback_are_dropped_outside_its_context(run: Runner) -> None:
    variable = contextvars.ContextVar("variable", default="outer")
    seen: list[str] = []

    class Owned:
        def __call__(self) -> None:
            variable.set("inner")

        def __del__(self) -> None:
            seen.append(variable.get())

    async def main() -> None:
        loop = asyncio.get_running_loop()
        context = contextvars.copy_context()
        loop.call_soon(Owned(), context=context)
        loop.call_soon(lambda: seen.append("next"), context=context)
        await rounds()

    run(main())
    assert seen == ["outer", "next"]


def test_a_loop_without_descriptors_raises_with_the_errno(run_ours: Runner) -> None:
    """Like asyncio, which is not run here: its loop logs an error when it is collected after that."""
    before = open_descriptors()
    with filled_descriptors():
        with pytest.raises(OSError) as failed:
            run_ours.factory()
        assert failed.value.errno == errno.EMFILE
    collect()
    assert open_descriptors() == before
    run_ours.factory().close()


@pytest.mark.parametrize("how", ["close", "abort", "write"])
def test_a_descriptor_that_was_closed_under_its_transport(run: Runner, how: str) -> None:
    """The report names the transport, and its protocol if it is available."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = connected_pair()
        transport, protocol = await loop.create_connection(Recorder, sock=one)
        os.close(one.fileno())
        if how == "write":
            transport.write(b"lost")
        else:
            getattr(transport, how)()
        await protocol.until_call("lost")
        while not run.complaints.contexts:
            await asyncio.sleep(0.01)
        assert run.complaints.errors == [OSError]
        context = run.complaints.contexts.pop()
        assert context["exception"].errno == errno.EBADF
        if run.ours:
            assert context["transport"] is transport
            assert context["protocol"] is protocol
        else:
            assert "_call_connection_lost" in context["message"]
        other.setblocking(True)
        assert other.recv(10) == b""
        other.close()
        one.detach()

    run(main())
