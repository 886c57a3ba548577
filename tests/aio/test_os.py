"""`aio.os`, `aio.ospath` and `aio.tempfile` have the results and errors of the standard library."""

from __future__ import annotations

import ast
import asyncio
import functools
import gc
import inspect
import io
import os
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.aio.harness import open_descriptors_of
from tests.loop.harness import Runner
from uringcore import aio


def tree(root: Path) -> dict[str, Any]:
    """Returns the tree below `root` in comparable form."""
    found: dict[str, Any] = {}
    for folder, _, files in os.walk(root):
        found[os.path.relpath(folder, root)] = None
        for name in files:
            path = Path(folder) / name
            where = os.path.relpath(path, root)
            if path.is_symlink():
                found[where] = os.readlink(path)
            else:
                found[where] = (path.read_bytes(), path.stat().st_nlink, path.stat().st_mode)
    return found


async def outcome(call: Any) -> Any:
    try:
        result = call()
        if hasattr(result, "__await__"):
            result = await result
    except OSError as error:
        return (type(error), error.errno, error.strerror, error.filename, error.filename2)
    except (ValueError, TypeError) as error:
        return type(error)
    return sorted(result) if isinstance(result, list) else result


NAMES = ("a", "b", "c", "a/x", "a/y", "b/x", "d/e/f", "a/x/z", "missing/x", "", "a\0b", "a/")


def random_call(rng: random.Random) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    # At most one of two paths is empty: the ring checks both before it resolves either.
    one, other = rng.choice(NAMES), rng.choice([name for name in NAMES if name])
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("mkdir", (one,), {}),
        ("mkdir", (one, 0o700), {}),
        ("makedirs", (one,), {"exist_ok": rng.random() < 0.5}),
        ("rmdir", (one,), {}),
        ("removedirs", (one,), {}),
        ("unlink", (one,), {}),
        ("remove", (one,), {}),
        ("rename", (one, other), {}),
        ("renames", (one, other), {}),
        ("replace", (one, other), {}),
        ("symlink", (one, other), {}),
        ("link", (one, other), {}),
        ("readlink", (one,), {}),
        ("listdir", (one or ".",), {}),
        ("access", (one, os.R_OK), {}),
    ]
    return rng.choice(calls)


@pytest.mark.parametrize("seed", range(8))
def test_random_changes_of_a_tree(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    async def main() -> None:
        rng = random.Random(seed)
        roots = (tmp_path / "model", tmp_path / "ours")
        for root in roots:
            (root / "a").mkdir(parents=True)
            (root / "b").write_bytes(b"file")
        for _ in range(150):
            name, arguments, options = random_call(rng)
            if rng.random() < 0.2:
                fresh = rng.choice(("a/x", "c", "b/x"))
                for root in roots:
                    if (root / fresh).parent.is_dir() and not os.path.lexists(root / fresh):
                        (root / fresh).write_bytes(b"fresh")
            monkeypatch.chdir(roots[0])
            expected = await outcome(functools.partial(getattr(os, name), *arguments, **options))
            monkeypatch.chdir(roots[1])
            got = await outcome(functools.partial(getattr(aio.os, name), *arguments, **options))
            assert got == expected, (name, arguments)
            assert tree(roots[0]) == tree(roots[1])

    run(main())


def test_paths_of_every_kind_and_directories_by_descriptor(run: Runner, tmp_path: Path) -> None:
    async def main() -> None:
        number = os.open(tmp_path, os.O_RDONLY)
        try:
            await aio.os.mkdir("one", dir_fd=number)
            await aio.os.symlink("one", b"two", dir_fd=number)
            await aio.os.rename("two", "three", src_dir_fd=number, dst_dir_fd=number)
            assert os.readlink(tmp_path / "three") == "one"
            with pytest.raises(FileNotFoundError) as caught:
                await aio.os.unlink("two", dir_fd=number)
            assert caught.value.filename == "two"
            await aio.os.unlink("three", dir_fd=number)
            assert (await aio.os.stat("one", dir_fd=number)).st_ino == os.stat(
                tmp_path / "one"
            ).st_ino
            await aio.os.rmdir(os.fsencode(tmp_path / "one"))
            (tmp_path / "file").write_bytes(b"x")
            await aio.os.symlink(tmp_path / "file", tmp_path / "soft")
            await aio.os.link("soft", "hard", src_dir_fd=number, dst_dir_fd=number)
            os.link("soft", "model", src_dir_fd=number, dst_dir_fd=number)
            assert (tmp_path / "hard").is_symlink() == (tmp_path / "model").is_symlink()
            for follow in (True, False):
                options = {"follow_symlinks": follow}
                await aio.os.link(tmp_path / "soft", tmp_path / f"hard-{follow}", **options)
                os.link(tmp_path / "soft", tmp_path / f"model-{follow}", **options)
                models = (tmp_path / f"model-{follow}").is_symlink()
                assert (tmp_path / f"hard-{follow}").is_symlink() == models
        finally:
            os.close(number)

    run(main())


def test_attributes_are_those_of_os_stat(run: Runner, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    link = tmp_path / "link"
    link.symlink_to(path)

    async def main() -> None:
        for target in (path, str(link), os.fsencode(tmp_path), "/dev/null", "/"):
            expected = os.stat(target)
            got = await aio.os.stat(target)
            assert got == expected
            names = [name for name in dir(expected) if name.startswith("st_")]
            assert {name: getattr(got, name) for name in names} == {
                name: getattr(expected, name) for name in names
            }
        assert await aio.os.lstat(link) == os.lstat(link)
        assert await aio.os.stat(link, follow_symlinks=False) == os.lstat(link)
        async with aio.open(path, "rb") as file:
            assert await aio.os.stat(file.fileno()) == os.stat(path)
            assert await file.stat() == os.stat(path)
            assert await aio.ospath.sameopenfile(file.fileno(), file.fileno())
        with pytest.raises(FileNotFoundError) as caught:
            await aio.os.stat("missing")
        assert caught.value.filename == "missing"
        for target in (path, link, tmp_path, tmp_path / "missing", "nul\0", "/", 0):
            for name in ("exists", "isfile", "isdir", "islink", "ismount", "lexists"):
                if isinstance(target, int) and name != "exists":
                    continue
                expected = getattr(os.path, name)(target)
                assert await getattr(aio.ospath, name)(target) is expected, (name, target)
        for name in ("getsize", "getmtime", "getatime", "getctime"):
            assert await getattr(aio.os.path, name)(path) == getattr(os.path, name)(path)
        assert await aio.ospath.samefile(path, link)
        assert not await aio.ospath.samefile(path, tmp_path)
        assert await aio.os.getcwd() == os.getcwd()
        assert await aio.ospath.abspath("x") == os.path.abspath("x")
        assert (await aio.os.statvfs(tmp_path)).f_bsize == os.statvfs(tmp_path).f_bsize
        assert {entry.name for entry in await aio.os.scandir(tmp_path)} == {"file", "link"}
        assert await aio.os.wrap(pow)(2, 5) == 32

    run(main())


def test_names_are_those_of_aiofiles() -> None:
    for module in (aio, aio.os, aio.ospath, aio.tempfile):
        for name in module.__all__:
            assert hasattr(module, name)
    parameters = inspect.signature(aio.open).parameters
    assert list(parameters) == [
        *("file", "mode", "buffering", "encoding", "errors", "newline", "closefd", "opener"),
        *("loop", "executor"),
    ]
    for name in ("rename", "unlink", "mkdir", "rmdir", "stat", "link", "symlink", "makedirs"):
        got = inspect.signature(getattr(aio.os, name)).parameters
        wanted = parameters_of(getattr(os, name))
        if name == "makedirs" and sys.version_info < (3, 15):
            wanted.append("parent_mode")
        assert list(got) == [*wanted, "loop", "executor"]


def test_makedirs_has_a_mode_for_the_folders_above(run: Runner, tmp_path: Path) -> None:
    async def main() -> None:
        await aio.os.makedirs(tmp_path / "a" / "b" / "c", 0o700, parent_mode=0o750)
        await aio.os.makedirs(tmp_path / "d" / "e", 0o700)
        (tmp_path / "usual").mkdir()
        usual = (tmp_path / "usual").stat().st_mode
        modes = {
            name: (tmp_path / name).stat().st_mode for name in ("a", "a/b", "a/b/c", "d", "d/e")
        }
        owned = {name: oct(mode & 0o777) for name, mode in modes.items() if name != "d"}
        assert owned == {"a": "0o750", "a/b": "0o750", "a/b/c": "0o700", "d/e": "0o700"}
        assert modes["d"] == usual

    run(main())


@pytest.mark.parametrize("parent_mode", [None, 0o750])
def test_trees_are_named_in_bytes_as_well(
    run: Runner, tmp_path: Path, parent_mode: int | None
) -> None:
    top = os.fsencode(tmp_path)

    async def main() -> None:
        await aio.os.makedirs(top + b"/a/b/c/", parent_mode=parent_mode)
        await aio.os.renames(top + b"/a/b/c", top + b"/d/e")
        assert os.listdir(top) == [b"d"]
        (tmp_path / "kept").touch()
        await aio.os.removedirs(top + b"/d/e")
        assert os.listdir(top) == [b"kept"]

    run(main())


def parameters_of(function: Any) -> list[str]:
    """Returns the names of its parameters. `inspect` cannot read the defaults of every built-in
    (3.14).
    """
    text = getattr(function, "__text_signature__", None)
    if text is None:
        return list(inspect.signature(function).parameters)
    made = ast.parse(f"def function{text.replace('$module', 'module', 1)}: pass").body[0]
    assert isinstance(made, ast.FunctionDef)
    arguments = made.args
    return [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)][1:]


def test_a_cancelled_call_ends(run: Runner, tmp_path: Path) -> None:
    async def main() -> None:
        for count in range(100):
            task = asyncio.ensure_future(aio.os.mkdir(tmp_path / str(count)))
            for _ in range(count % 4):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    run(main())


@pytest.mark.parametrize("mode", ["w+b", "w+", "wb", "r+b"])
def test_a_temporary_file(run: Runner, tmp_path: Path, mode: str) -> None:
    data: Any = b"one\ntwo\n" if "b" in mode else "one\ntwo\n"

    async def main() -> None:
        async with aio.tempfile.TemporaryFile(mode, dir=str(tmp_path)) as file:
            assert os.listdir(tmp_path) == []
            assert await file.write(data) == len(data)
            if "+" in mode:
                await file.seek(0)
                assert await file.read() == data
        assert file.closed
        async with aio.tempfile.NamedTemporaryFile(
            mode, dir=str(tmp_path), prefix="pre", suffix=".suf"
        ) as file:
            name = Path(file.name)
            assert name.parent == tmp_path
            assert name.name.startswith("pre")
            assert name.name.endswith(".suf")
            assert name.stat().st_mode & 0o777 == 0o600
            await file.write(data)
            await file.flush()
            assert name.read_bytes() == b"one\ntwo\n"
        assert os.listdir(tmp_path) == []

    run(main())


def test_when_a_named_temporary_file_goes(run: Runner, tmp_path: Path) -> None:
    make = functools.partial(aio.tempfile.NamedTemporaryFile, dir=str(tmp_path))

    async def main() -> None:
        async with make(delete=False) as file:
            pass
        assert Path(file.name).exists()
        os.unlink(file.name)
        async with make(delete_on_close=False) as file:
            await file.close()
            assert Path(file.name).exists()
        assert not Path(file.name).exists()
        async with make() as file:
            os.unlink(file.name)
        file = await make()
        await file.close()
        assert not Path(file.name).exists()
        file = await make("w")
        with pytest.warns(ResourceWarning):  # noqa: PT031
            name = file.name
            del file
            gc.collect()
        assert not Path(name).exists()
        with pytest.raises(ValueError):
            await make("q")
        with pytest.raises(LookupError):
            await make("w", encoding="nonsense")
        assert os.listdir(tmp_path) == []

    run(main())


@pytest.mark.parametrize("mode", ["w+b", "w+"])
@pytest.mark.parametrize("max_size", [0, 10, 100_000])
def test_a_spooled_file_answers_as_the_standard_library(
    run: Runner, tmp_path: Path, mode: str, max_size: int
) -> None:
    def data(text: str) -> Any:
        return text.encode() if "b" in mode else text

    async def main() -> None:
        with tempfile.SpooledTemporaryFile(max_size, mode, dir=tmp_path) as model:
            async with aio.tempfile.SpooledTemporaryFile(max_size, mode, dir=str(tmp_path)) as file:
                for name, *arguments in (
                    ("write", data("one\n")),
                    ("tell",),
                    ("write", data("two\nthree\n")),
                    ("tell",),
                    ("seek", 2),
                    ("readline",),
                    ("readlines",),
                    ("read",),
                    ("seek", 0),
                    ("read", 5),
                    ("seek", 0, 2),
                    ("writelines", [data("four\n"), data("five")]),
                    ("flush",),
                    ("seek", 0),
                    ("truncate", 7),
                    ("read",),
                    ("isatty",),
                ):
                    expected = getattr(model, name)(*arguments)
                    if name == "truncate" and sys.version_info < (3, 11):
                        expected = 7  # the standard library has no tell() here
                    assert await getattr(file, name)(*arguments) == expected, name
                if max_size:
                    assert (file.name is None) == (model.name is None)
                assert os.fstat(await file.fileno()).st_size == 7
            assert file.closed

    run(main())


def test_a_temporary_directory(run: Runner, tmp_path: Path) -> None:
    async def main() -> None:
        async with aio.tempfile.TemporaryDirectory(dir=str(tmp_path), prefix="p") as name:
            assert Path(name).parent == tmp_path
            (Path(name) / "file").write_bytes(b"x")
        assert os.listdir(tmp_path) == []
        directory = await aio.tempfile.TemporaryDirectory(dir=str(tmp_path))
        assert os.listdir(tmp_path) == [Path(directory.name).name]
        await directory.cleanup()
        assert os.listdir(tmp_path) == []

    run(main())


def test_standard_streams_are_those_of_the_moment(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\nthree")))
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO()))
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BytesIO()))

    async def main() -> None:
        assert await aio.stdin.readline() == "one\n"
        assert [line async for line in aio.stdin] == ["two\n", "three"]
        assert await aio.stdout.write("text") == 4
        await aio.stdout.flush()
        assert await aio.stdout_bytes.write(b"bytes") == 5
        assert sys.stdout.buffer.getvalue() == b"textbytes"  # type: ignore[attr-defined]
        assert await aio.stderr.isatty() is False
        assert aio.stdin.encoding == sys.stdin.encoding
        assert await aio.stdin_bytes.read() == b""

    run(main())


def test_no_descriptor_is_left(run: Runner, tmp_path: Path) -> None:
    async def main() -> None:
        async with aio.tempfile.TemporaryFile(dir=str(tmp_path)) as file:
            target = Path(os.readlink(f"/proc/self/fd/{file.fileno()}"))
            assert open_descriptors_of(target) == 1
        assert open_descriptors_of(target) == 0

    run(main())
