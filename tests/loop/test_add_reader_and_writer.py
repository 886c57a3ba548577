"""add_reader and add_writer."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import selectors
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.loop.harness import Runner, rounds


def test_a_reader_is_level_triggered(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = socket.socketpair()
        one.setblocking(False)
        seen: list[bytes] = []
        done = asyncio.Event()

        def read() -> None:
            # One byte a call: the rest must bring the callback back without new data.
            seen.append(one.recv(1))
            if len(seen) == 5:
                done.set()

        loop.add_reader(one, read)
        other.send(b"abcde")
        await done.wait()
        assert b"".join(seen) == b"abcde"
        assert loop.remove_reader(one)
        assert not loop.remove_reader(one)
        other.send(b"f")
        await rounds()
        assert len(seen) == 5
        one.close()
        other.close()

    run(main())


def test_a_writer_is_called_while_there_is_room(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = socket.socketpair()
        one.setblocking(False)
        other.setblocking(False)
        total = 3_000_000
        left = memoryview(b"w" * total)
        received = 0
        done = asyncio.Event()

        def write() -> None:
            nonlocal left
            left = left[one.send(left) :]
            if not left:
                loop.remove_writer(one)

        def read() -> None:
            nonlocal received
            received += len(other.recv(100_000))
            if received == total:
                done.set()

        loop.add_writer(one.fileno(), write)
        loop.add_reader(other.fileno(), read)
        await done.wait()
        assert loop.remove_reader(other)
        assert not loop.remove_writer(one)
        one.close()
        other.close()

    run(main())


def test_reader_and_writer_of_one_descriptor(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = socket.socketpair()
        calls: list[str] = []
        loop.add_reader(one, calls.append, "readable")
        loop.add_writer(one, calls.append, "writable")
        await rounds()
        assert set(calls) == {"writable"}
        loop.remove_writer(one)
        calls.clear()
        other.send(b"x")
        await rounds()
        assert set(calls) == {"readable"}
        loop.remove_reader(one)
        one.close()
        other.close()

    run(main())


def test_adding_again_replaces_the_callback(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        reader, writer = os.pipe()
        seen: list[str] = []
        loop.add_reader(reader, seen.append, "old")
        loop.add_reader(reader, seen.append, "new")
        os.write(writer, b"x")
        await rounds()
        loop.remove_reader(reader)
        assert set(seen) == {"new"}
        os.close(reader)
        os.close(writer)

    run(main())


def test_end_of_file_is_readable(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        reader, writer = os.pipe()
        ended = asyncio.Event()
        loop.add_reader(reader, ended.set)
        os.close(writer)
        await ended.wait()
        loop.remove_reader(reader)
        os.close(reader)

    run(main())


def test_a_descriptor_number_that_is_reused(run: Runner) -> None:
    """Removing, closing and opening again must never deliver for the old file."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for round_number in range(50):
            reader, writer = os.pipe()
            seen: list[int] = []
            ready = asyncio.Event()

            def read(fd: int = reader, got: list[int] = seen, ready: asyncio.Event = ready) -> None:
                got.append(len(os.read(fd, 100)))
                ready.set()

            loop.add_reader(reader, read)
            os.write(writer, b"x" * (round_number + 1))
            await ready.wait()
            loop.remove_reader(reader)
            os.close(reader)
            os.close(writer)
            assert seen == [round_number + 1]

    run(main())


def test_a_raising_callback_is_reported_and_stays(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        reader, writer = os.pipe()
        calls = 0
        twice = asyncio.Event()

        def fail() -> None:
            nonlocal calls
            calls += 1
            if calls == 2:
                os.read(reader, 1)
                twice.set()
            raise ZeroDivisionError

        loop.add_reader(reader, fail)
        os.write(writer, b"x")
        await twice.wait()
        loop.remove_reader(reader)
        os.close(reader)
        os.close(writer)

    run(main())
    run.expect(ZeroDivisionError, ZeroDivisionError)


def test_wrong_descriptors_are_refused(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(ValueError):
            loop.add_reader(-1, print)
        with pytest.raises(ValueError):
            loop.add_writer("no descriptor", print)  # type: ignore[arg-type]
        closed = socket.socket()
        number = closed.fileno()
        closed.close()
        with pytest.raises((OSError, ValueError)):
            loop.add_reader(number, print)

    run(main())


@pytest.mark.parametrize(
    "path",
    ["/proc/self/mounts", "/proc/pressure/cpu", "/sys/kernel/mm/transparent_hugepage/enabled"],
)
def test_a_file_that_the_kernel_makes_up_may_be_watched(run: Runner, path: str) -> None:
    """Of regular files, some of procfs and sysfs can be polled; epoll accepts those."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        try:
            fd = os.open(path, os.O_RDONLY)
        except OSError as error:
            pytest.skip(f"{path}: {error.strerror}")
        ready = asyncio.Event()
        loop.add_reader(fd, ready.set)
        await ready.wait()
        loop.remove_reader(fd)
        os.close(fd)

    run(main())


@pytest.mark.parametrize("kind", ["file", "folder", "fifo", "socket", "device"])
@pytest.mark.parametrize("path_only", [False, True])
def test_an_unpollable_file_is_refused(
    run: Runner, tmp_path: Path, kind: str, path_only: bool
) -> None:
    path = tmp_path / kind
    if kind == "file":
        path.touch()
    elif kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))
    else:
        path = Path("/dev/null")
    if kind in ("fifo", "socket") and not path_only:
        return  # the one can be watched, the other not be opened

    async def main() -> None:
        loop = asyncio.get_running_loop()
        fd = os.open(path, os.O_PATH if path_only else os.O_RDONLY)
        for add in (loop.add_reader, loop.add_writer):
            with pytest.raises(OSError) as refused:
                add(fd, print)
            assert refused.value.errno == (errno.EBADF if path_only else errno.EPERM)
        assert not loop.remove_reader(fd)
        os.close(fd)

    run(main())


def test_a_wake_up_for_nothing_does_not_reach_the_callback(run: Runner) -> None:
    """The event that woke the loop may be gone when its iteration begins: another reader was
    faster.
    """

    async def main() -> None:
        loop = asyncio.get_running_loop()
        reader, writer = os.pipe()
        found: list[bytes] = []
        for fd in (reader, writer):
            os.set_blocking(fd, False)

        def read() -> None:
            found.append(os.read(reader, 10))

        loop.add_reader(reader, read)
        await asyncio.sleep(0)  # until the kernel waits for it
        await asyncio.sleep(0)
        for _ in range(10):
            os.write(writer, b"x")
            assert os.read(reader, 10) == b"x"
            await asyncio.sleep(0)
        assert found == []
        os.write(writer, b"y")
        while not found:
            await asyncio.sleep(0)
        assert found == [b"y"]
        loop.remove_reader(reader)
        os.close(reader)
        os.close(writer)

    run(main())


def test_connecting_to_an_address_without_a_host_fails(run: Runner) -> None:
    """A socket of AF_VSOCK wakes its waiters while it connects."""
    vsock = getattr(socket, "AF_VSOCK", None)
    if vsock is None:
        pytest.skip("this Python has no AF_VSOCK")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        try:
            sock = socket.socket(vsock, socket.SOCK_STREAM)
        except OSError as error:
            pytest.skip(f"AF_VSOCK: {error.strerror}")
        with sock:
            sock.setblocking(False)
            # A context of a virtual machine that is not there.
            with pytest.raises(OSError):
                await loop.sock_connect(sock, (77, 1234))  # type: ignore[arg-type]

    run(main())


def test_a_transports_descriptor_is_refused(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = socket.socketpair()
        transport, _ = await loop.create_unix_connection(asyncio.Protocol, sock=one)
        number = transport.get_extra_info("socket").fileno()
        for add in (loop.add_reader, loop.add_writer):
            with pytest.raises(RuntimeError) as refused:
                add(number, print)
            expected = f"File descriptor {number} is used by transport {transport!r}"
            assert str(refused.value) == expected
        transport.close()
        await rounds()
        other.close()

    run(main())


def test_readiness_of_a_removed_watcher_does_not_reach_its_successor(run: Runner) -> None:
    """Both were ready in one turn; the first callback puts another file under the second's number."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        wake_read, wake_write = os.pipe()
        watched, peer = socket.socketpair()
        full, drain = socket.socketpair()
        full.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                full.send(bytes(65536))
        number = watched.fileno()
        calls: list[str] = []

        def first() -> None:
            os.read(wake_read, 1)
            loop.remove_reader(wake_read)
            loop.remove_writer(number)
            os.dup2(full.fileno(), number)
            loop.add_writer(number, calls.append, "successor")

        def second() -> None:
            calls.append("original")
            loop.remove_writer(number)

        os.write(wake_write, b"1")
        loop.add_reader(wake_read, first)
        loop.add_writer(number, second)
        await rounds()
        assert "successor" not in calls
        loop.remove_writer(number)
        for one in (watched, peer, full, drain):
            one.close()
        os.close(wake_read)
        os.close(wake_write)

    run(main())


def test_a_replaced_callback_is_not_called_and_the_new_one_is(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = socket.socketpair()
        first, first_peer = socket.socketpair()
        calls: list[str] = []
        done = asyncio.Event()

        def new() -> None:
            calls.append("new")
            one.recv(1)
            done.set()

        def replace() -> None:
            first.recv(1)
            loop.add_reader(one, new)

        loop.add_reader(first, replace)
        loop.add_reader(one, calls.append, "old")
        # Both ready at once: whichever comes first, the old callback ends with the replacement.
        first_peer.send(b"x")
        other.send(b"x")
        await done.wait()
        assert calls[-1] == "new"
        assert calls.count("new") == 1
        for fd in (one, first):
            assert loop.remove_reader(fd)
        for sock in (one, other, first, first_peer):
            sock.close()

    run(main())


def test_a_file_closed_by_its_callback_is_not_reported_again(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = socket.socketpair()
        spare = socket.socketpair()
        number = one.fileno()
        calls = 0

        def read() -> None:
            nonlocal calls
            calls += 1
            if calls == 1:
                one.close()

        loop.add_reader(one, read)
        other.send(b"x")
        await rounds(through=spare)
        assert calls == 1
        loop.remove_reader(number)
        for sock in (other, *spare):
            sock.close()

    run(main())


def test_watchers_from_another_thread(run: Runner) -> None:
    """Not documented as safe, but it works on asyncio's epoll, and so it does here."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = socket.socketpair()
        one.setblocking(False)
        seen: list[bytes] = []

        def read() -> None:
            seen.append(one.recv(10))
            loop.call_soon(changed.set)

        changed = asyncio.Event()
        await asyncio.to_thread(loop.add_reader, one, read)
        await asyncio.to_thread(other.send, b"a")
        await changed.wait()
        assert seen == [b"a"]
        assert await asyncio.to_thread(loop.remove_reader, one)
        assert not await asyncio.to_thread(loop.remove_reader, one)
        other.send(b"b")
        await rounds()
        assert seen == [b"a"]
        changed.clear()
        loop.add_reader(one, read)
        await changed.wait()
        assert seen == [b"a", b"b"]
        loop.remove_reader(one)
        one.close()
        other.close()

    run(main())


def test_an_object_closed_while_watched_can_still_be_removed(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = socket.socketpair()
        stranger, _ = pair = socket.socketpair()
        loop.add_reader(one, print)
        loop.add_writer(one, print)
        loop.remove_writer(one)
        loop.add_reader(other, print)
        one.close()
        for each in pair:
            each.close()
        assert loop.remove_reader(one)
        for gone in (one, stranger, -1):
            with pytest.raises(ValueError, match="Invalid file descriptor: -1"):
                loop.remove_reader(gone)
            with pytest.raises(ValueError, match="Invalid file descriptor: -1"):
                loop.add_reader(gone, print)
        with pytest.raises(ValueError, match="Invalid file object: 'x'"):
            loop.remove_writer("x")  # type: ignore[arg-type]
        assert loop.remove_reader(other)
        other.close()

    run(main())


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_removed_reader_holds_its_address_no_longer(run: Runner, kind: socket.SocketKind) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_INET, kind) as first:
            first.bind(("127.0.0.1", 0))
            address = first.getsockname()
            if kind == socket.SOCK_STREAM:
                first.listen()
            loop.add_reader(first, print)
            await rounds()  # the loop has waited for it
            assert loop.remove_reader(first)
        # In the same turn.
        with socket.socket(socket.AF_INET, kind) as second:
            second.bind(address)

    run(main())


def test_the_peer_of_a_removed_reader_gets_the_end(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = socket.socketpair()
        other.setblocking(False)
        loop.add_reader(one, print)
        await rounds()
        loop.remove_reader(one)
        one.close()
        assert other.recv(1) == b""
        other.close()

    run(main())


def test_the_loops_selector_shows_what_is_watched(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        selector = loop._selector  # type: ignore[attr-defined]
        one, other = socket.socketpair()
        with pytest.raises(KeyError):
            selector.get_key(one)
        loop.add_reader(one, print, "read")
        loop.add_writer(one.fileno(), print, "write")
        key = selector.get_key(one)
        assert key == selector.get_key(one.fileno())
        assert (key.fileobj, key.fd) == (one, one.fileno())
        assert key.events == selectors.EVENT_READ | selectors.EVENT_WRITE
        assert [handle._args for handle in key.data] == [("read",), ("write",)]
        assert one.fileno() in selector.get_map()
        loop.remove_reader(one)
        assert selector.get_key(one).events == selectors.EVENT_WRITE
        loop.remove_writer(one)
        with pytest.raises(KeyError):
            selector.get_key(one)
        assert one.fileno() not in selector.get_map()
        one.close()
        other.close()

    run(main())


def test_nothing_is_registered_with_the_selector_itself(run_ours: Runner) -> None:
    async def main() -> None:
        selector = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
        one, other = socket.socketpair()
        with pytest.raises(RuntimeError, match="add_reader"):
            selector.register(one, selectors.EVENT_READ)
        with pytest.raises(RuntimeError, match="add_reader"):
            selector.unregister(one)
        one.close()
        other.close()

    run_ours(main())


class Named:
    """An object whose `fileno()` answers with `answer`, or raises it."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def fileno(self) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    def __repr__(self) -> str:
        return "<Named>"


class NoInt:
    def __int__(self) -> int:
        raise LookupError("no int")


class Own(BaseException):
    """Not even an Exception."""


def _watcher_calls(loop: asyncio.AbstractEventLoop, file: Any) -> list[Callable[[], Any]]:
    return [
        lambda: loop.add_reader(file, print),
        lambda: loop.remove_reader(file),
        lambda: loop.add_writer(file, print),
        lambda: loop.remove_writer(file),
    ]


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("mine"),
        OSError(9, "mine"),
        KeyError("mine"),
        NotImplementedError("mine"),
        OverflowError("mine"),
        StopIteration("mine"),
        KeyboardInterrupt(),
        Own(),
    ],
    ids=repr,
)
def test_an_error_of_fileno_reaches_the_caller(run: Runner, error: BaseException) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for call in _watcher_calls(loop, Named(error)):
            with pytest.raises(type(error)) as raised:
                call()
            assert raised.value is error

    run(main())


@pytest.mark.parametrize(
    "file",
    [
        None,
        "text",
        1.5,
        object(),
        Named(None),
        Named("text"),
        Named(AttributeError("mine")),
        Named(TypeError("mine")),
        Named(ValueError("mine")),
        Named(UnicodeError("mine")),
    ],
    ids=lambda file: type(file).__name__,
)
def test_an_invalid_file_object(run: Runner, file: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for call in _watcher_calls(loop, file):
            with pytest.raises(ValueError, match="Invalid file object: ") as raised:
                call()
            assert str(raised.value).endswith(repr(file))

    run(main())


def test_numbers_that_are_no_descriptors(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for number in (-1, -(1 << 100)):
            for file in (number, Named(number)):
                for call in _watcher_calls(loop, file):
                    with pytest.raises(ValueError, match=f"Invalid file descriptor: {number}"):
                        call()
        for number in (1 << 40, 1 << 100):
            for file in (number, Named(number)):
                with pytest.raises(OverflowError):
                    loop.add_reader(file, print)
                with pytest.raises(OverflowError):
                    loop.add_writer(file, print)
                assert loop.remove_reader(file) is False
                assert loop.remove_writer(file) is False
        with pytest.raises(LookupError, match="no int"):
            loop.add_reader(Named(NoInt()), print)

    run(main())


def test_the_result_of_fileno_is_converted_to_int(run: Runner) -> None:
    class Index:
        def __index__(self) -> int:
            return one.fileno()

    one, other = socket.socketpair()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        other.send(b"x")
        for answer in (float(one.fileno()), str(one.fileno()), Index()):
            readable = asyncio.Event()
            loop.add_reader(Named(answer), readable.set)
            await readable.wait()
            assert loop.remove_reader(Named(answer))
        # An object that is no int itself needs a fileno().
        with pytest.raises(ValueError, match="Invalid file object"):
            loop.add_reader(Index(), print)  # type: ignore[arg-type]

    with one, other:
        run(main())
