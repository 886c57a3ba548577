"""Opening and closing: modes, errors with the built-in's messages, the descriptor's end."""

from __future__ import annotations

import asyncio
import errno
import gc
import io
import os
import random
import resource
import signal
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.aio.harness import open_descriptors_of
from tests.loop.harness import Runner
from uringcore import aio


def refusal(call: Any) -> tuple[type[BaseException], str]:
    try:
        call()
    except (OSError, ValueError, TypeError, LookupError) as error:
        return type(error), str(error)
    raise AssertionError("it was not refused")


@pytest.mark.parametrize(
    "arguments",
    [
        {"mode": ""},
        {"mode": "b"},
        {"mode": "rw"},
        {"mode": "rr"},
        {"mode": "rbt"},
        {"mode": "wq"},
        {"mode": "r+w"},
        {"mode": 3},
        {"mode": "rb", "encoding": "utf-8"},
        {"mode": "rb", "errors": "strict"},
        {"mode": "rb", "newline": "\n"},
        {"buffering": 0},
        {"newline": "x"},
        {"encoding": "nonsense"},
        {"encoding": "hex"},
        {"closefd": False},
    ],
    ids=repr,
)
def test_nonsense_is_refused_in_the_builtins_words(
    run: Runner, tmp_path: Path, arguments: dict[str, Any]
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"kept")

    async def main() -> None:
        expected = refusal(lambda: open(path, **arguments))  # noqa: SIM115
        with pytest.raises(expected[0]) as caught:
            await aio.open(path, **arguments)
        assert str(caught.value) == expected[1]
        assert path.read_bytes() == b"kept"

    run(main())


@pytest.mark.parametrize(
    ("file", "mode"),
    [
        ("missing", "r"),
        ("missing/below", "w"),
        (".", "r"),
        (".", "w"),
        ("file", "x"),
        ("file/below", "r"),
        ("n" * 300, "r"),
        ("nul\0byte", "r"),
        (-1, "r"),
        (1_000_000, "r"),
        (None, "r"),
        (1.5, "r"),
    ],
)
def test_invalid_opens_raise_as_the_builtin(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: Any, mode: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_bytes(b"")

    async def main() -> None:
        try:
            open(file, mode)  # noqa: SIM115
        except (OSError, ValueError, TypeError) as error:
            expected = error
        else:
            raise AssertionError("the built-in opens it")
        with pytest.raises(type(expected)) as caught:
            await aio.open(file, mode)
        got: Any = caught.value
        assert type(got) is type(expected)
        if isinstance(expected, OSError):
            wanted = (expected.errno, expected.strerror, expected.filename)
            assert (got.errno, got.strerror, got.filename) == wanted

    run(main())


@pytest.mark.parametrize("mode", ["r", "w", "a", "r+", "w+", "a+", "rb", "wb", "ab", "rb+", "wb+"])
@pytest.mark.parametrize("buffering", [-1, 0, 512])
def test_a_file_describes_itself_as_the_builtin(
    run: Runner, tmp_path: Path, mode: str, buffering: int
) -> None:
    if buffering == 0 and "b" not in mode:
        return  # text without a buffer is an error, which is tested above
    path = tmp_path / "file"
    path.write_bytes(b"one\ntwo\n")

    async def main() -> None:
        with open(path, mode, buffering) as builtin:
            async with aio.open(path, mode, buffering) as file:
                assert file.name == builtin.name
                assert file.mode == builtin.mode
                assert file.closed is False
                assert await file.seekable() is builtin.seekable()
                assert await file.writable() is builtin.writable()
                assert await file.isatty() is builtin.isatty()
                assert await file.tell() == builtin.tell()
                readable = file.readable()
                # A coroutine for text and a method for bytes, as in aiofiles.
                if "b" not in mode:
                    readable = await readable
                assert readable is builtin.readable()
                assert os.get_inheritable(file.fileno()) is False
                if "b" not in mode:
                    assert file.encoding == builtin.encoding
                    assert file.errors == builtin.errors
                    assert file.line_buffering == builtin.line_buffering
                kinds = {
                    io.TextIOWrapper: aio.AsyncTextIOWrapper,
                    io.BufferedReader: aio.AsyncBufferedReader,
                    io.BufferedRandom: aio.AsyncBufferedReader,
                    io.BufferedWriter: aio.AsyncBufferedIOBase,
                    io.FileIO: aio.AsyncFileIO,
                }
                assert type(file) is kinds[type(builtin)]
        assert file.closed is True

    run(main())


def test_everything_is_refused_on_a_closed_file(run: Runner, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one\ntwo\n")

    async def main() -> None:
        for mode, buffering, data in (("r+", -1, "x"), ("rb+", -1, b"x"), ("rb+", 0, b"x")):
            file = await aio.open(path, mode, buffering)
            assert await file.readline()
            await file.close()
            await file.close()
            for name, *arguments in (
                ("read",),
                ("read", 1),
                ("readline",),
                ("readlines",),
                ("write", data),
                ("writelines", [data]),
                ("seek", 0),
                ("tell",),
                ("truncate",),
                ("flush",),
                ("isatty",),
                ("seekable",),
                ("writable",),
                ("pread", 1, 0),
                ("pwrite", b"x", 0),
                ("fsync",),
                ("fdatasync",),
                ("stat",),
                ("__anext__",),
                ("__aenter__",),
            ):
                with pytest.raises(ValueError, match="I/O operation on closed file"):
                    await getattr(file, name)(*arguments)
            with pytest.raises(ValueError, match="I/O operation on closed file"):
                file.fileno()

    run(main())
    assert path.read_bytes() == b"one\ntwo\n"


def test_the_wrong_direction_is_unsupported(run: Runner, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one\n")

    async def main() -> None:
        for mode, buffering, calls in (
            ("rb", -1, [("write", b"x"), ("truncate", 0), ("pwrite", b"x", 0)]),
            ("rb", 0, [("write", b"x"), ("truncate", 0), ("pwrite", b"x", 0)]),
            ("r", -1, [("write", "x"), ("truncate", 0)]),
            ("ab", -1, [("read",), ("read1",), ("readline",), ("readinto", bytearray(1))]),
            ("ab", 0, [("read",), ("readall",), ("readline",), ("readinto", bytearray(1))]),
            ("a", -1, [("read",), ("readline",)]),
            ("ab", -1, [("pread", 1, 0)]),
        ):
            async with aio.open(path, mode, buffering) as file:
                for name, *arguments in calls:
                    with pytest.raises(io.UnsupportedOperation):
                        await getattr(file, name)(*arguments)
        assert path.read_bytes() == b"one\n"

    run(main())


def test_a_file_may_be_awaited_or_entered(run: Runner, tmp_path: Path) -> None:
    path = tmp_path / "file"

    async def main() -> None:
        file = await aio.open(path, "w")
        assert await file.write("one\n") == 4
        await file.close()
        async with aio.open(path) as file:
            assert await file.read() == "one\n"
        assert file.closed
        async with await aio.open(path) as file:
            assert [line async for line in file] == ["one\n"]
        assert file.closed
        assert open_descriptors_of(path) == 0

    run(main())


def test_closefd_false_leaves_the_descriptor_open(run: Runner, tmp_path: Path) -> None:
    path = tmp_path / "file"

    async def main() -> None:
        number = os.open(path, os.O_CREAT | os.O_RDWR)
        async with aio.open(number, "wb", closefd=False) as file:
            assert file.name == number
            await file.write(b"abc")
        assert os.lseek(number, 0, os.SEEK_CUR) == 3
        async with aio.open(number, "rb+") as file:
            await file.seek(0)
            assert await file.read() == b"abc"
        with pytest.raises(OSError):
            os.fstat(number)

    run(main())


def test_an_opener_opens(run: Runner, tmp_path: Path) -> None:
    path = tmp_path / "file"
    asked: list[tuple[Any, int]] = []

    def opener(name: Any, flags: int) -> int:
        asked.append((name, flags))
        return os.open(name, flags, 0o600)

    async def main() -> None:
        async with aio.open(path, "x", opener=opener) as file:
            await file.write("x")
            assert os.get_inheritable(file.fileno()) is False
        assert asked == [(str(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC)]
        with pytest.raises(ValueError, match="opener returned -1"):
            await aio.open(path, opener=lambda name, flags: -1)
        with pytest.raises(ZeroDivisionError):
            await aio.open(path, opener=lambda name, flags: 1 // 0)

    run(main())


def test_the_umask_counts(run: Runner, tmp_path: Path) -> None:
    async def main() -> None:
        old = os.umask(0o027)
        try:
            async with aio.open(tmp_path / "file", "w"):
                pass
        finally:
            os.umask(old)
        assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640

    run(main())


def test_an_unreferenced_file_warns_and_is_closed(run: Runner, tmp_path: Path) -> None:
    path = tmp_path / "file"

    async def main() -> None:
        for mode, data in (("w", "text"), ("wb", b"data"), ("rb", None)):
            file = await aio.open(path, mode)
            if data is not None:
                await file.write(data)
            with pytest.warns(ResourceWarning, match="unclosed file"):  # noqa: PT031
                del file
                gc.collect()
            assert open_descriptors_of(path) == 0
            # No accepted data is lost.
            assert path.read_bytes() == {"text": b"text"}.get(data, b"data")  # type: ignore[call-overload]

    run(main())


def test_an_unreferenced_file_whose_flush_fails_is_closed(run: Runner) -> None:
    full = Path("/dev/full")
    told: list[Any] = []

    async def main() -> None:
        file = await aio.open(full, "wb")
        await file.write(b"data")
        with pytest.warns(ResourceWarning, match="unclosed file"):  # noqa: PT031
            del file
            gc.collect()
        assert open_descriptors_of(full) == 0

    hook, sys.unraisablehook = sys.unraisablehook, lambda args: told.append(args.exc_value)
    try:
        run(main())
    finally:
        sys.unraisablehook = hook
    assert [error.errno for error in told] == [errno.ENOSPC]


def test_a_closed_file_does_not_complain(run: Runner, tmp_path: Path) -> None:
    async def main() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            file = await aio.open(tmp_path / "file", "w")
            await file.close()
            del file
            gc.collect()

    run(main())


def test_line_buffering_flushes_lines(run: Runner, tmp_path: Path) -> None:
    path = tmp_path / "file"

    async def main() -> None:
        async with aio.open(path, "w", buffering=1) as file:
            await file.write("half")
            assert path.read_bytes() == b""
            await file.write(" a line\nand more")
            assert path.read_bytes().startswith(b"half a line\n")
        with pytest.warns(RuntimeWarning, match="line buffering"):
            await (await aio.open(path, "wb", buffering=1)).close()

    run(main())


def test_a_text_file_gives_up_its_bytes(run: Runner, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one\ntwo\n")

    async def main() -> None:
        text = await aio.open(path, "r+")
        assert text.buffer.raw.fileno() == text.fileno()
        binary = text.detach()
        with pytest.raises(ValueError, match="underlying buffer has been detached"):
            await text.read()
        assert await binary.readline() == b"one\n"
        raw = binary.detach()
        assert binary.closed
        assert await raw.read() == b"two\n"
        await raw.close()
        assert open_descriptors_of(path) == 0

    run(main())


def test_closing_reports_what_could_not_be_written(run: Runner) -> None:
    async def main() -> None:
        file = await aio.open("/dev/full", "wb")
        await file.write(b"x")
        with pytest.raises(OSError, match="No space left"):
            await file.flush()
        with pytest.raises(OSError, match="No space left"):
            await file.close()
        assert file.closed

    run(main())


@pytest.mark.parametrize("buffering", [-1, 0])
def test_a_short_write_raises(run: Runner, tmp_path: Path, buffering: int) -> None:
    path = tmp_path / "file"
    limit = 200_000
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    async def main() -> None:
        data = random.Random(0).randbytes(300_000)
        async with aio.open(path, "wb", buffering) as file:
            await file.seek(limit - 1000)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, old[1]))
            try:
                if buffering == 0:
                    assert await file.write(data) == 1000
                    assert await file.tell() == limit
                with pytest.raises(OSError) as caught:
                    await file.write(data)
                assert caught.value.errno == errno.EFBIG
                assert await file.tell() == limit
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, old)
        assert path.read_bytes() == bytes(limit - 1000) + data[:1000]

    try:
        run(main())
    finally:
        signal.signal(signal.SIGXFSZ, ignored)


def test_another_loop_is_refused(run: Runner, tmp_path: Path) -> None:
    files: list[Any] = []

    async def opens() -> None:
        files.append(await aio.open(tmp_path / "file", "wb", buffering=0))

    async def uses() -> None:
        with pytest.raises(RuntimeError):
            await files[0].write(b"x")

    run(opens())
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(uses())
    finally:
        loop.close()
    with pytest.warns(ResourceWarning):  # noqa: PT031
        files.clear()
        gc.collect()
