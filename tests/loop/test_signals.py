"""Signals: handlers on the loop and Ctrl-C, each in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.loop.harness import BACKENDS, LOOPS, python_version, until_blocked

ROOT = Path(__file__).resolve().parents[2]
PREAMBLE = """
import asyncio, os, signal, socket, sys, threading, time
from tests.loop.harness import factory
new_loop = factory({name!r})
"""


def start(name: str, body: str) -> subprocess.Popen[str]:
    """Run `body` in a new interpreter; `new_loop()` makes the loop under test."""
    code = PREAMBLE.format(name=name) + textwrap.dedent(body)
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait for the end; a hang is killed and fails the test."""
    try:
        out, err = process.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        pytest.fail(f"the process hangs; stdout {out!r}, stderr {err!r}")
    return process.returncode, out, err


def await_line(process: subprocess.Popen[str], line: str) -> None:
    """Wait until the process prints `line`."""
    assert process.stdout is not None
    said = process.stdout.readline().strip()
    if said != line:
        process.kill()
        pytest.fail(f"said {said!r}; {process.communicate()[1]}")


@pytest.mark.parametrize("name", LOOPS)
def test_handlers_run_on_the_loop(name: str) -> None:
    process = start(
        name,
        """
        async def main():
            loop = asyncio.get_running_loop()
            got = []
            done = asyncio.Event()
            def handle(number):
                assert asyncio.get_running_loop() is loop
                got.append(number)
                if len(got) == 2:
                    done.set()
            loop.add_signal_handler(signal.SIGUSR1, handle, 1)
            loop.add_signal_handler(signal.SIGUSR2, handle, 2)
            os.kill(os.getpid(), signal.SIGUSR1)
            await asyncio.sleep(0.01)
            os.kill(os.getpid(), signal.SIGUSR2)
            await done.wait()
            assert got == [1, 2], got
            assert loop.remove_signal_handler(signal.SIGUSR1)
            assert not loop.remove_signal_handler(signal.SIGUSR1)
            assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
            for wrong in (signal.SIGKILL, 12345):
                try:
                    loop.add_signal_handler(wrong, print)
                except (RuntimeError, ValueError):
                    continue
                raise AssertionError(wrong)
        loop = new_loop()
        loop.run_until_complete(main())
        loop.close()
        assert signal.getsignal(signal.SIGUSR2) == signal.SIG_DFL
        """,
    )
    status, _, err = finish(process)
    assert (status, err) == (0, "")


@pytest.mark.parametrize("name", LOOPS)
def test_a_signal_from_outside_wakes_a_sleeping_loop(name: str) -> None:
    process = start(
        name,
        """
        async def main():
            loop = asyncio.get_running_loop()
            stopped = asyncio.Event()
            loop.add_signal_handler(signal.SIGTERM, stopped.set)
            print("ready", flush=True)
            await stopped.wait()
            print("stopped")
        loop = new_loop()
        loop.run_until_complete(main())
        loop.close()
        """,
    )
    await_line(process, "ready")
    until_blocked(process.pid)
    process.send_signal(signal.SIGTERM)
    status, out, err = finish(process)
    assert (status, out, err) == (0, "stopped\n", "")


@pytest.mark.parametrize("name", LOOPS)
def test_ctrl_c_raises_out_of_a_sleeping_loop(name: str) -> None:
    process = start(
        name,
        """
        loop = new_loop()
        loop.call_soon(lambda: print("ready", flush=True))
        try:
            loop.run_forever()
        except KeyboardInterrupt:
            assert not loop.is_running()
            # The loop is whole: it runs and closes.
            loop.run_until_complete(asyncio.sleep(0.01))
            loop.close()
            print("interrupted")
        """,
    )
    await_line(process, "ready")
    until_blocked(process.pid)
    process.send_signal(signal.SIGINT)
    status, out, err = finish(process)
    assert (status, out, err) == (0, "interrupted\n", "")


@pytest.mark.parametrize("name", LOOPS)
def test_ctrl_c_ends_a_busy_callback(name: str) -> None:
    process = start(
        name,
        """
        def busy():
            print("ready", flush=True)
            while True:
                pass
        loop = new_loop()
        loop.call_soon(busy)
        try:
            loop.run_forever()
        except KeyboardInterrupt:
            loop.close()
            print("interrupted")
        """,
    )
    await_line(process, "ready")
    process.send_signal(signal.SIGINT)
    status, out, err = finish(process)
    assert (status, out, err) == (0, "interrupted\n", "")


@pytest.mark.skipif(python_version() < (3, 11), reason="asyncio.Runner came with Python 3.11")
@pytest.mark.parametrize("name", LOOPS)
def test_ctrl_c_cancels_the_main_task_of_a_runner(name: str) -> None:
    process = start(
        name,
        """
        async def main():
            print("ready", flush=True)
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                await asyncio.sleep(0)
                print("cleaned up")
                raise
        try:
            with asyncio.Runner(loop_factory=new_loop) as runner:
                runner.run(main())
        except KeyboardInterrupt:
            print("interrupted")
        """,
    )
    await_line(process, "ready")
    until_blocked(process.pid)
    process.send_signal(signal.SIGINT)
    status, out, err = finish(process)
    assert (status, out, err) == (0, "cleaned up\ninterrupted\n", "")


@pytest.mark.parametrize("name", LOOPS)
def test_signals_during_traffic_lose_nothing(name: str) -> None:
    """Interrupted system calls must neither lose a completion nor raise."""
    process = start(
        name,
        """
        from tests.loop.harness import Echo, Recorder, listen
        async def main():
            loop = asyncio.get_running_loop()
            ticks = []
            loop.add_signal_handler(signal.SIGALRM, ticks.append, 1)
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
            server, address = await listen(Echo)
            transport, client = await loop.create_connection(Recorder, *address)
            for number in range(300):
                message = number.to_bytes(4, "big") * 500
                client.data.clear()
                transport.write(message)
                await client.until(lambda: len(client.data) == 2000)
                assert client.data == message
                await asyncio.sleep(0.0005)
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert len(ticks) > 10, len(ticks)
            transport.close()
            await client.until_call("lost")
            server.close()
        loop = new_loop()
        loop.run_until_complete(main())
        loop.close()
        """,
    )
    status, _, err = finish(process)
    assert (status, err) == (0, "")


@pytest.mark.parametrize("name", LOOPS)
def test_subprocesses(name: str) -> None:
    process = start(
        name,
        """
        async def main():
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-c", "import sys; print(sys.stdin.read().upper()); sys.exit(3)",
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
            out, _ = await child.communicate(b"through pipes" * 10000)
            assert out.strip() == b"THROUGH PIPES" * 10000
            assert child.returncode == 3
            sleeper = await asyncio.create_subprocess_shell("exec sleep 60")
            sleeper.terminate()
            assert await sleeper.wait() == -signal.SIGTERM
        loop = new_loop()
        asyncio.set_event_loop(loop)
        loop.run_until_complete(main())
        loop.close()
        """,
    )
    status, _, err = finish(process)
    assert (status, err) == (0, "")


@pytest.mark.parametrize("name", LOOPS)
def test_a_forked_child_leaves_the_parents_loop_alone(name: str) -> None:
    process = start(
        name,
        """
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        from tests.loop.harness import Echo, Recorder, listen
        async def main():
            loop = asyncio.get_running_loop()
            server, address = await listen(Echo)
            transport, client = await loop.create_connection(Recorder, *address)
            transport.write(b"before")
            await client.until(lambda: client.data == b"before")
            child = os.fork()
            if child == 0:
                # Running out of scope in the child must not touch the parent's connection.
                del transport, client, server
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            transport.write(b" after")
            await client.until(lambda: client.data == b"before after")
            transport.close()
            await client.until_call("lost")
            server.close()
        loop = new_loop()
        loop.run_until_complete(main())
        child = os.fork()
        if child == 0:
            # A loop of its own works in the child.
            own = new_loop()
            own.run_until_complete(asyncio.sleep(0.01))
            own.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        loop.run_until_complete(asyncio.sleep(0.01))
        loop.close()
        """,
    )
    status, _, err = finish(process)
    assert (status, err) == (0, "")


@pytest.mark.parametrize("name", BACKENDS)
def test_a_fork_while_another_threads_loop_is_in_the_kernel(name: str) -> None:
    """The thread and what it holds are not in the child: the loop there can only be closed."""
    process = start(
        name,
        """
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        from tests.loop.harness import Echo, listen, until_asleep
        loop = new_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        _, address = asyncio.run_coroutine_threadsafe(listen(Echo), loop).result(20)
        until_asleep(loop)
        child = os.fork()
        if child == 0:
            signal.alarm(15)
            try:
                loop.run_until_complete(asyncio.sleep(0))
            except RuntimeError as error:
                assert "parent process" in str(error), error
            else:
                os._exit(2)
            loop.close()
            assert loop.is_closed()
            own = new_loop()
            own.run_until_complete(asyncio.sleep(0.01))
            own.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        with socket.create_connection(address) as client:
            client.sendall(b"still here")
            assert client.recv(100) == b"still here"
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
        loop.close()
        """,
    )
    status, _, err = finish(process)
    # Python reports the child's coroutine that could not run.
    err = "\n".join(line for line in err.splitlines() if "never awaited" not in line)
    assert status == 0, err


@pytest.mark.parametrize("name", LOOPS)
def test_signals_of_one_loop_are_not_lost_while_another_one_runs(name: str) -> None:
    process = start(
        name,
        """
        caught = []
        first, second = new_loop(), new_loop()
        first.add_signal_handler(signal.SIGUSR1, caught.append, "first")
        os.kill(os.getpid(), signal.SIGUSR1)
        second.run_until_complete(asyncio.sleep(0.01))
        first.run_until_complete(asyncio.sleep(0.01))
        assert caught == ["first"], caught
        second.call_later(0.01, os.kill, os.getpid(), signal.SIGUSR1)
        second.run_until_complete(asyncio.sleep(0.05))
        assert caught == ["first"], caught
        first.run_until_complete(asyncio.sleep(0.01))
        assert caught == ["first"] * 2, caught
        first.close()
        second.run_until_complete(asyncio.sleep(0.01))
        second.close()
        assert signal.set_wakeup_fd(-1) == -1
        """,
    )
    status, _, err = finish(process)
    assert (status, err) == (0, "")


@pytest.mark.parametrize("name", LOOPS)
def test_a_wakeup_descriptor_set_meanwhile_is_kept(name: str) -> None:
    process = start(
        name,
        """
        ours, theirs = socket.socketpair()
        for sock in (ours, theirs):
            sock.setblocking(False)
        async def main():
            signal.set_wakeup_fd(ours.fileno())
        loop = new_loop()
        loop.run_until_complete(main())
        assert signal.set_wakeup_fd(ours.fileno()) == ours.fileno()
        loop.run_until_complete(asyncio.sleep(0.01))
        assert signal.set_wakeup_fd(-1) == ours.fileno()
        loop.close()
        """,
    )
    status, _, err = finish(process)
    assert (status, err) == (0, "")


@pytest.mark.parametrize("name", BACKENDS)
def test_a_signal_while_the_loop_closes_is_written_to_no_closed_socket(name: str) -> None:
    """asyncio closes the sockets before it removes the handlers, and then prints a BrokenPipeError."""
    process = start(
        name,
        """
        class Ended(socket.socket):
            def close(self):
                super().close()
                signal.raise_signal(signal.SIGTERM)
        loop = new_loop()
        loop.add_signal_handler(signal.SIGTERM, print, "never")
        loop.run_until_complete(asyncio.sleep(0.01))
        loop._ssock = Ended(fileno=loop._ssock.detach())
        loop.close()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        assert signal.set_wakeup_fd(-1) == -1
        """,
    )
    assert finish(process) == (0, "", "")
