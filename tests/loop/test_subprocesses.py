"""Child processes: redirections, options, failures."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from pathlib import Path
from typing import Any

import pytest

from tests.loop.child_process_checks import PYTHON, assert_no_children, output
from tests.loop.child_process_checks import no_watcher_left as no_watcher_left
from tests.loop.harness import Runner, open_descriptors, python_version

# Redirections -------------------------------------------------------------------------------------


def test_pipes_in_and_out(run: Runner) -> None:
    async def main() -> None:
        child = await asyncio.create_subprocess_exec(
            PYTHON,
            "-c",
            "import sys; d = sys.stdin.buffer.read(); sys.stdout.buffer.write(d[::-1]);"
            "sys.stderr.write('done'); sys.exit(3)",
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
        )
        payload = os.urandom(1 << 20)
        out, err = await child.communicate(payload)
        assert (out, err, child.returncode) == (payload[::-1], b"done", 3)

    run(main())


def test_every_redirection(run: Runner, tmp_path: Path) -> None:
    async def main() -> None:
        shell = asyncio.create_subprocess_shell
        both = await shell("echo out; echo err >&2", stdout=PIPE, stderr=STDOUT)
        assert (await both.communicate())[0] == b"out\nerr\n"
        nothing = await shell("cat; echo x; echo y >&2", stdin=DEVNULL, stdout=DEVNULL)
        assert await nothing.wait() == 0
        with (tmp_path / "in").open("wb+") as source, (tmp_path / "out").open("wb") as sink:
            source.write(b"from a file")
            source.seek(0)
            copied = await shell("cat", stdin=source, stdout=sink.fileno())
            assert await copied.wait() == 0
        assert (tmp_path / "out").read_bytes() == b"from a file"
        reader, writer = os.pipe()
        piped = await shell("echo through a pipe; echo and more >&2", stdout=writer, stderr=writer)
        os.close(writer)
        assert await piped.wait() == 0
        with open(reader, "rb") as rest:
            assert rest.read() == b"through a pipe\nand more\n"

    run(main())


def test_standard_streams_that_are_swapped_or_closed() -> None:
    """The child's ends may have the very numbers that the child's streams get."""
    code = """
import asyncio, os, sys
from tests.loop.harness import factory
async def main():
    # 0 and 2 are free, so pipes land there; stdout and stderr trade places.
    child = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", "cat; echo to stderr >&2; echo to stdout",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE)
    out, err = await child.communicate(b"fed ")
    assert (out, err) == (b"fed to stdout\\n", b"to stderr\\n"), (out, err)
    swap = os.dup(1)
    reader, writer = os.pipe()
    os.dup2(writer, 1)
    child = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", "echo a; echo b >&2", stdout=swap, stderr=1)
    assert await child.wait() == 0
    os.dup2(swap, 1)
    os.close(writer)
    assert os.read(reader, 100) == b"b\\n"
for name in ("uring", "epoll"):
    loop = factory(name)()
    asyncio.set_event_loop(loop)
    os.close(0), os.close(2)
    loop.run_until_complete(main())
    loop.close()
    os.open("/dev/null", os.O_RDWR)
    os.open("/dev/null", os.O_RDWR)
"""
    done = subprocess.run(
        [PYTHON, "-c", code],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).resolve().parents[2],
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, b"a\na\n")


def test_the_child_keeps_descriptors_that_the_caller_closes_meanwhile(run: Runner) -> None:
    """The child gets what was open when it was asked for, though it is made a moment later."""

    async def main() -> None:
        readers = []
        children = []
        for number in range(20):
            reader, writer = os.pipe()
            readers.append(reader)
            child = asyncio.ensure_future(
                asyncio.create_subprocess_exec("/bin/echo", str(number), stdout=writer)
            )
            await asyncio.sleep(0)
            os.close(writer)
            children.append(child)
        for child in await asyncio.gather(*children):
            assert await child.wait() == 0
        for number, reader in enumerate(readers):
            assert os.read(reader, 100) == b"%d\n" % number
            assert os.read(reader, 100) == b""
            os.close(reader)

    run(main())


# Options ------------------------------------------------------------------------------------------


def test_options(run: Runner, tmp_path: Path) -> None:
    async def main() -> None:
        assert await output("/bin/pwd", cwd=tmp_path) == os.fsencode(tmp_path.resolve()) + b"\n"
        assert await output("/usr/bin/env", env={"A": "b", b"C": b"d"}) == b"A=b\nC=d\n"
        os.environ["URINGCORE_TEST"] = "inherited"
        try:
            assert b"URINGCORE_TEST=inherited\n" in await output("/usr/bin/env")
        finally:
            del os.environ["URINGCORE_TEST"]
        assert await output("sh", "-c", "echo $0 $1", "x y") == b"x y\n"
        assert await output("name", "-c", "echo $0", executable="/bin/sh") == b"name\n"
        assert await output(b"/bin/echo", Path("p"), b"\xff") == b"p \xff\n"
        assert await output("sh", "-c", "umask", umask=0o27) == b"0027\n"
        shell = await asyncio.create_subprocess_shell(
            "echo $0", stdout=PIPE, executable="/bin/bash"
        )
        assert (await shell.communicate())[0] == b"/bin/bash\n"

    run(main())


def test_sessions_and_groups(run: Runner) -> None:
    stat = "print(*(__import__('os').getpgid(0), __import__('os').getsid(0)))"

    async def main() -> None:
        async def ids(**options: Any) -> tuple[int, int, int]:
            child = await asyncio.create_subprocess_exec(PYTHON, "-c", stat, stdout=PIPE, **options)
            out, _ = await child.communicate()
            group, session = map(int, out.split())
            return child.pid, group, session

        pid, group, session = await ids(start_new_session=True)
        assert pid == group == session
        pid, group, session = await ids()
        assert (group, session) == (os.getpgid(0), os.getsid(0))
        if python_version() >= (3, 11):
            pid, group, session = await ids(process_group=0)
            assert (group, session) == (pid, os.getsid(0))
            with pytest.raises(PermissionError):
                await ids(process_group=2**22 + 5)

    run(main())


def test_descriptors_are_passed_on_and_no_others(run: Runner) -> None:
    async def main() -> None:
        reader, writer = os.pipe()
        leak = os.dup(reader)
        os.set_inheritable(leak, True)
        listing = await output("/bin/sh", "-c", "echo /proc/self/fd/*", pass_fds=(writer,))
        numbers = {int(path.rsplit("/", 1)[1]) for path in listing.decode().split()}
        assert writer in numbers
        assert leak not in numbers
        assert reader not in numbers
        listing = await output("/bin/sh", "-c", "echo /proc/self/fd/*", close_fds=False)
        assert leak in {int(path.rsplit("/", 1)[1]) for path in listing.decode().split()}
        os.close(leak)
        writing = await output("/bin/sh", "-c", f"echo here >/dev/fd/{writer}", pass_fds=[writer])
        assert writing == b""
        assert os.read(reader, 10) == b"here\n"
        os.close(reader)
        os.close(writer)

    run(main())


def test_preexec_fn_runs_in_the_child(run: Runner) -> None:
    async def main() -> None:
        def before() -> None:
            os.chdir("/usr")
            os.environ["IGNORED"] = "the environment was taken before"

        assert await output("/bin/pwd", preexec_fn=before) == b"/usr\n"

        def fail() -> None:
            raise LookupError

        with pytest.raises(subprocess.SubprocessError, match="preexec_fn"):
            await output("/bin/true", preexec_fn=fail)

    run(main())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change its user")
def test_user_and_group(run: Runner) -> None:
    async def main() -> None:
        who = "id -u; id -g; id -G"
        said = await output("/bin/sh", "-c", who, user=65534, group=65533, extra_groups=[65532])
        assert said == b"65534\n65533\n65533 65532\n"

    run(main())


def test_signals_are_as_in_any_new_process(run: Runner) -> None:
    """Python ignores SIGPIPE and this process has handlers; a child has neither."""
    code = (
        "import signal as s; print(*(s.getsignal(n) is s.SIG_DFL for n in (s.SIGUSR1, s.SIGTERM)))"
    )

    async def main() -> None:
        previous = signal.signal(signal.SIGUSR1, lambda *_: None)
        try:
            assert await output(PYTHON, "-c", code) == b"True True\n"
        finally:
            signal.signal(signal.SIGUSR1, previous)
        status = await output("/bin/grep", "-E", "Sig(Blk|Ign)", "/proc/self/status")
        blocked, ignored = (int(line.split()[1], 16) for line in status.splitlines())
        assert blocked == 0
        assert not ignored & 1 << signal.SIGPIPE - 1
        kept = await output("/bin/grep", "SigIgn", "/proc/self/status", restore_signals=False)
        assert int(kept.split()[1], 16) & 1 << signal.SIGPIPE - 1

    run(main())


# Failures -----------------------------------------------------------------------------------------


def test_failures_name_what_is_missing(run: Runner, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("not a program")
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF is all that it has")
    broken.chmod(0o755)

    async def main() -> None:
        async def failure(*args: Any, **options: Any) -> OSError:
            with pytest.raises(OSError) as caught:
                await asyncio.create_subprocess_exec(
                    *args, stdin=PIPE, stdout=PIPE, stderr=PIPE, **options
                )
            return caught.value

        await output("/bin/true")
        gc.collect()  # what earlier tests left
        before = open_descriptors()
        for _ in range(3):
            missing = await failure("/nonexistent/program")
            assert (type(missing), missing.filename) == (FileNotFoundError, "/nonexistent/program")
            assert str(missing) == "[Errno 2] No such file or directory: '/nonexistent/program'"
            searched = await failure("no-such-program", env={"PATH": "/bin:/nonexistent"})
            assert (type(searched), searched.filename) == (FileNotFoundError, "no-such-program")
            folder = await failure("/bin/true", cwd="/nonexistent")
            assert (type(folder), folder.filename) == (FileNotFoundError, "/nonexistent")
            denied = await failure(plain)
            assert type(denied) is PermissionError
            assert os.fspath(denied.filename) == str(plain)
            format_error = await failure(str(broken))
            assert (format_error.errno, format_error.filename) == (8, str(broken))
            closed = await failure("/bin/true", pass_fds=[999])
            assert (closed.errno, closed.filename) == (9, None)
        gc.collect()
        assert open_descriptors() == before
        assert_no_children()

    run(main())


def test_wrong_arguments(run: Runner) -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        protocol = asyncio.SubprocessProtocol
        before = open_descriptors()
        for start, program in (
            (loop.subprocess_exec, "/bin/true"),
            (loop.subprocess_shell, "true"),
        ):
            for name, value in (
                ("universal_newlines", True),
                ("text", True),
                ("encoding", "utf-8"),
                ("errors", "strict"),
                ("bufsize", 4096),
            ):
                with pytest.raises(ValueError, match=f"{name} must be"):
                    await start(protocol, program, **{name: value})
            for wrong in ({"startupinfo": 1}, {"creationflags": 1}):
                with pytest.raises(ValueError, match="only supported on Windows"):
                    await start(protocol, program, **wrong)
            with pytest.raises(TypeError, match="unexpected keyword"):
                await start(protocol, program, no_such_option=1)
        with pytest.raises(ValueError, match="shell must be False"):
            await loop.subprocess_exec(protocol, "/bin/true", shell=True)
        with pytest.raises(ValueError, match="shell must be True"):
            await loop.subprocess_shell(protocol, "true", shell=False)
        with pytest.raises(ValueError, match="must be a string"):
            await loop.subprocess_shell(protocol, ["true"])
        with pytest.raises(ValueError, match="null byte"):
            await loop.subprocess_exec(protocol, "/bin/true", "a\0b")
        with pytest.raises(TypeError):
            await loop.subprocess_exec(protocol, "/bin/true", 42)
        with pytest.raises(ValueError, match="illegal environment variable name"):
            await loop.subprocess_exec(protocol, "/bin/true", env={"A=B": "c"})
        with pytest.raises(ValueError, match="fds_to_keep"):
            await loop.subprocess_exec(protocol, "/bin/true", pass_fds=[-1])
        gc.collect()
        assert open_descriptors() == before

    run(main())


def test_a_start_that_failed_has_left_nothing_open(run: Runner, tmp_path: Path) -> None:
    """Not even while another thread needs a moment to end."""

    async def main() -> None:
        with contextlib.suppress(FileNotFoundError):
            await asyncio.create_subprocess_exec(tmp_path / "missing")
        before = open_descriptors()
        for _ in range(500):
            with pytest.raises(FileNotFoundError):
                await asyncio.create_subprocess_exec(tmp_path / "missing")
            assert open_descriptors() == before

    run(main())
