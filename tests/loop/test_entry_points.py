"""The ways to run a program on the loop: run, Runner, loop factory, policy, install, uvicorn."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import platform
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import uringcore
from tests.loop.harness import BACKENDS, Echo, Recorder, Runner, listen, python_version
from tests.support.free_ports import free_port

ROOT = Path(__file__).resolve().parents[2]


async def what() -> tuple[str, str]:
    loop: Any = asyncio.get_running_loop()
    await asyncio.sleep(0)
    return type(loop).__name__, loop.backend


@pytest.mark.parametrize("backend", BACKENDS)
def test_run(backend: str) -> None:
    assert uringcore.run(what(), backend=backend) == ("UringEventLoop", backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_run_takes_debug(backend: str) -> None:
    async def main() -> bool:
        return asyncio.get_running_loop().get_debug()

    assert uringcore.run(main(), debug=True, backend=backend)
    assert not uringcore.run(main(), debug=False, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_new_event_loop(backend: str) -> None:
    loop = uringcore.new_event_loop(backend=backend)
    try:
        assert isinstance(loop, asyncio.AbstractEventLoop)
        assert isinstance(loop, uringcore.UringEventLoop)
        assert loop.backend == backend
        assert loop.run_until_complete(what()) == ("UringEventLoop", backend)
    finally:
        loop.close()


def test_an_unknown_backend_is_named() -> None:
    with pytest.raises(ValueError, match="backend.*kqueue"):
        uringcore.new_event_loop(backend="kqueue")


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_environment_chooses(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("URINGCORE_BACKEND", backend)
    assert uringcore.run(what())[1] == backend
    monkeypatch.setenv("URINGCORE_BACKEND", "kqueue")
    with pytest.raises(ValueError, match="URINGCORE_BACKEND"):
        uringcore.new_event_loop()


@pytest.mark.skipif(python_version() < (3, 11), reason="asyncio.Runner came with Python 3.11")
def test_runner() -> None:
    with asyncio.Runner(loop_factory=uringcore.new_event_loop) as runner:
        assert runner.run(what())[0] == "UringEventLoop"
        assert runner.run(what())[0] == "UringEventLoop"


@pytest.mark.skipif(python_version() < (3, 12), reason="loop_factory came with Python 3.12")
def test_asyncio_run_with_a_loop_factory() -> None:
    assert asyncio.run(what(), loop_factory=uringcore.new_event_loop)[0] == "UringEventLoop"
    assert asyncio.run(what(), loop_factory=uringcore.UringEventLoop)[0] == "UringEventLoop"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_policy() -> None:
    asyncio.set_event_loop_policy(uringcore.EventLoopPolicy())
    try:
        assert asyncio.run(what())[0] == "UringEventLoop"
    finally:
        asyncio.set_event_loop_policy(None)
    loop = asyncio.new_event_loop()
    assert type(loop).__name__ != "UringEventLoop"
    loop.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_install() -> None:
    try:
        uringcore.install()
        assert asyncio.run(what())[0] == "UringEventLoop"
    finally:
        asyncio.set_event_loop_policy(None)


def test_without_policies_the_message_names_the_replacement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CPython 3.16 has no policies."""
    if hasattr(asyncio, "set_event_loop_policy"):
        monkeypatch.delattr(asyncio, "set_event_loop_policy")
    instead = "asyncio.run\\(main\\(\\), loop_factory=uringcore.new_event_loop\\)"
    with pytest.raises(RuntimeError, match=instead):
        uringcore.install()
    with pytest.raises(AttributeError, match=instead):
        uringcore.EventLoopPolicy  # noqa: B018
    assert not hasattr(uringcore, "EventLoopPolicy")
    assert uringcore.run(what())[0] == "UringEventLoop"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_failed_loop_raises_one_error_with_the_reason(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop's finaliser has nothing to close."""
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)

    def refuse(*args: Any) -> Any:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched, pytest.raises(OSError, match="Too many open files"):
        patched.setattr(socket, "socketpair", refuse)
        uringcore.new_event_loop(backend)
    gc.collect()
    assert unraisable == []


@pytest.mark.parametrize("has_policies", [True, False])
def test_each_public_name_has_a_value(has_policies: bool) -> None:
    if has_policies and not hasattr(asyncio, "set_event_loop_policy"):
        pytest.skip("this CPython has no policies")
    without = "" if has_policies else "vars(asyncio).pop('set_event_loop_policy', None);"
    code = (
        f"import asyncio; {without} from uringcore import *;"
        f"assert ('EventLoopPolicy' in globals()) is {has_policies};"
        "import uringcore.asyncio; assert uringcore.asyncio is not asyncio"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)


def test_the_class_may_take_the_place_of_asyncios(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio, "SelectorEventLoop", uringcore.UringEventLoop)
    loop = asyncio.SelectorEventLoop()
    try:
        assert loop.run_until_complete(what())[0] == "UringEventLoop"
    finally:
        loop.close()


def test_importing_neither_warns_nor_imports_quic() -> None:
    code = (
        "import sys, uringcore; "
        "assert not [m for m in sys.modules if m.startswith(('uringcore.quic', 'uringcore.h3'))]; "
        "assert not [m for m in sys.modules if m.startswith(('uvicorn', 'httpx', 'aioquic'))]"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_run_refuses_what_is_no_coroutine() -> None:
    with pytest.raises((TypeError, ValueError), match="coroutine"):
        uringcore.run(42)


def test_run_refuses_a_running_loop() -> None:
    async def main() -> None:
        coroutine = what()
        with pytest.raises(RuntimeError) as refused:
            uringcore.run(coroutine)
        expected = "uringcore.run() cannot be called from a running event loop"
        assert str(refused.value) == expected
        coroutine.close()

    uringcore.run(main())


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_loop_in_each_of_several_threads(backend: str) -> None:
    answers: list[int] = []

    async def main(number: int) -> None:
        server, address = await listen(Echo)
        transport, client = await asyncio.get_running_loop().create_connection(Recorder, *address)
        for _ in range(50):
            client.data.clear()
            transport.write(bytes([number]) * 1000)
            await client.until(lambda: len(client.data) == 1000)
        answers.append(client.data[0])
        transport.close()
        await client.until_call("lost")
        server.close()

    threads = [
        threading.Thread(target=lambda n=n: uringcore.run(main(n), backend=backend))
        for n in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert sorted(answers) == list(range(6))


# Forbids the system call `number` to the process: classic BPF, whose answer is EPERM.
_FORBID = """
import logging, sys
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(levelname)s %(message)s")
import uringcore
import ctypes, struct
libc = ctypes.CDLL(None, use_errno=True)
program = b"".join(struct.pack("HBBI", *one) for one in (
    (0x20, 0, 0, 0),
    (0x15, 0, 1, int(sys.argv[1])),
    (0x06, 0, 0, 0x00050000 | 1),
    (0x06, 0, 0, 0x7FFF0000),
))
buffer = ctypes.create_string_buffer(program)
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
filter = Program(4, ctypes.cast(buffer, ctypes.c_void_p))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(filter), 0, 0) == 0
"""


def _run_without(number: int, code: str) -> list[str]:
    """Returns the output of a program for which the system call `number` is blocked."""
    done = subprocess.run(
        [sys.executable, "-c", _FORBID + code, str(number)],
        capture_output=True,
        text=True,
        env={key: value for key, value in os.environ.items() if key != "URINGCORE_BACKEND"},
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


# Linux numbers these calls differently on some architectures; the tests run on this one.
on_x86_64 = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the system call numbers are x86-64's"
)


@on_x86_64
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("number", "name"), [(290, "eventfd2"), (28, "madvise")])
def test_a_call_that_each_loop_needs_is_named_where_a_filter_forbids_it(
    backend: str, number: int, name: str
) -> None:
    code = f"""
try:
    uringcore.new_event_loop(backend={backend!r})
except (RuntimeError, OSError) as error:
    print(type(error).__name__, error)
"""
    (line,) = _run_without(number, code)
    assert line.startswith("RuntimeError" if backend == "uring" else "PermissionError")
    assert f"blocks {name}, which an event loop needs with either backend" in line
    assert "allow io_uring" not in line


def test_an_ordinary_user_without_lockable_memory_gets_epoll() -> None:
    """The kernel counts a ring against RLIMIT_MEMLOCK, unless its user has CAP_IPC_LOCK as root has."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to become a user without other processes")
    code = """
import os, resource
resource.setrlimit(resource.RLIMIT_MEMLOCK, (16384, 16384))
os.setgroups([])
os.setuid(64321)
try:
    uringcore.new_event_loop(backend="uring").close()
except RuntimeError as error:
    print("refused:", error)
else:
    print("allowed")
loop = uringcore.new_event_loop()
print("backend:", loop.backend)
loop.close()
"""
    lines = _run_without(0xFFFF, code)
    if "allowed" in lines:
        pytest.skip("this kernel does not count rings")
    refused, reason, backend = lines
    for line in (refused, reason):
        assert "each loop takes some 90 KiB of RLIMIT_MEMLOCK" in line
    assert backend == "backend: epoll"


def test_the_uring_backend_is_strict_where_io_uring_is_forbidden() -> None:
    """Under a seccomp filter as in containers: the strict backend raises with the reason, the automatic
    choice falls back.
    """
    code = """
try:
    uringcore.new_event_loop(backend="uring")
except RuntimeError as error:
    print("refused:", error)
loop = uringcore.new_event_loop()
print("backend:", loop.backend)
loop.close()
"""
    # io_uring_setup
    lines = _run_without(425, code)
    refused = next(line for line in lines if line.startswith("refused:"))
    assert "seccomp" in refused or "container" in refused
    assert "backend: epoll" in lines
    assert sum("epoll" in line and line.startswith("INFO") for line in lines) == 1


APPLICATION = """
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    import asyncio
    body = type(asyncio.get_running_loop()).__name__.encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_uvicorn(tmp_path: Path, backend: str) -> None:
    pytest.importorskip("uvicorn")
    (tmp_path / "application.py").write_text(APPLICATION)
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "application:app", "--port", str(port)]
    process = subprocess.Popen(
        [*command, "--loop", "uringcore:new_event_loop"],
        cwd=tmp_path,
        env={**os.environ, "URINGCORE_BACKEND": backend},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 20
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5) as answer:
                    assert answer.read() == b"UringEventLoop"
                break
            except OSError:
                assert process.poll() is None, process.stderr and process.stderr.read()
                assert time.monotonic() < deadline
                time.sleep(0.05)
        process.terminate()
        _, err = process.communicate(timeout=15)
    finally:
        process.kill()
        process.wait()
    assert "Application shutdown complete" in err
    assert "Traceback" not in err


def test_the_loop_logs_nothing_at_warning_level(
    run: Runner, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        run(asyncio.sleep(0))
    assert caplog.records == []
