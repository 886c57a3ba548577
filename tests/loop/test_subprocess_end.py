"""The end of child processes: statuses, closing, cancellation, many at once, child watchers."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import os
import shutil
import signal
import subprocess
import threading
import time
import warnings
from asyncio.subprocess import DEVNULL, PIPE
from typing import Any

import pytest

from tests.loop.child_process_checks import PYTHON, Events, assert_no_children, exists, output
from tests.loop.child_process_checks import no_watcher_left as no_watcher_left
from tests.loop.harness import Runner, collect, open_descriptors, python_version

# The end of a child -------------------------------------------------------------------------------


def test_statuses_and_signals(run: Runner) -> None:
    async def main() -> None:
        child = await asyncio.create_subprocess_shell("exit 7")
        assert await child.wait() == 7
        for send, expected in (
            (lambda child: child.terminate(), -signal.SIGTERM),
            (lambda child: child.kill(), -signal.SIGKILL),
            (lambda child: child.send_signal(signal.SIGUSR1), -signal.SIGUSR1),
        ):
            child = await asyncio.create_subprocess_exec("/bin/sleep", "60")
            assert child.returncode is None
            send(child)
            assert await child.wait() == expected == child.returncode
            for again in (child.terminate, child.kill):
                with pytest.raises(ProcessLookupError):
                    again()
            with pytest.raises(ProcessLookupError):
                child.send_signal(signal.SIGTERM)
            assert not exists(child.pid)

    run(main())


def test_several_tasks_wait_for_one_child(run: Runner) -> None:
    async def main() -> None:
        child = await asyncio.create_subprocess_exec("/bin/cat", stdin=PIPE)
        waits = [asyncio.ensure_future(child.wait()) for _ in range(10)]
        await asyncio.sleep(0)
        waits[3].cancel()
        assert child.stdin is not None
        child.stdin.close()
        results = await asyncio.gather(*waits, return_exceptions=True)
        assert isinstance(results.pop(3), asyncio.CancelledError)
        assert results == [0] * 9
        assert await child.wait() == 0

    run(main())


def test_the_order_of_events(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.subprocess_exec(
            Events, "/bin/sh", "-c", "echo out; echo err >&2"
        )
        assert protocol.calls[0] == "made"
        assert isinstance(transport, asyncio.SubprocessTransport)
        process = transport.get_extra_info("subprocess")
        assert type(process) is subprocess.Popen
        assert process.pid == transport.get_pid()
        assert process.args == ("/bin/sh", "-c", "echo out; echo err >&2")
        assert await protocol.lost is None
        assert protocol.data == {1: b"out\n", 2: b"err\n"}
        assert protocol.calls[-1] == "lost"
        assert sorted(map(str, protocol.calls[1:-1])) == sorted(
            map(str, ["exited", ("pipe lost", 0), ("pipe lost", 1), ("pipe lost", 2)])
        )
        assert transport.get_returncode() == 0 == process.returncode
        transport.close()

    run(main())


def test_output_that_a_grandchild_writes_after_the_exit(run: Runner) -> None:
    """The child is gone, its pipe is still held: connection_lost waits for the pipe."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        reader, writer = os.pipe()
        transport, protocol = await loop.subprocess_exec(
            Events,
            "/bin/sh",
            "-c",
            f"(read line </dev/fd/{reader}; echo late) & echo early",
            stdin=DEVNULL,
            stderr=None,
            pass_fds=(reader,),
        )
        await protocol.exited
        assert transport.get_returncode() == 0
        assert ("pipe lost", 1) not in protocol.calls
        os.write(writer, b"go\n")
        await protocol.lost
        assert protocol.data[1] == b"early\nlate\n"
        assert protocol.calls == ["made", "exited", ("pipe lost", 1), "lost"]
        transport.close()
        os.close(reader)
        os.close(writer)

    run(main())


def test_closing_a_transport_kills(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.subprocess_exec(Events, "/bin/sleep", "60")
        assert not transport.is_closing()
        transport.close()
        transport.close()
        assert transport.is_closing()
        await protocol.lost
        assert transport.get_returncode() == -signal.SIGKILL

    run(main())


def test_closing_after_the_exit_keeps_the_status(run_ours: Runner) -> None:
    """close() waits for the child through Popen.poll(); this keeps its status.

    On asyncio the status is lost: the watcher finds no child any more and reports 255.
    """

    async def main() -> None:
        loop = asyncio.get_running_loop()
        reader, writer = os.pipe()
        transport, protocol = await loop.subprocess_exec(
            Events, "/bin/sh", "-c", "read x; exit 9", stdin=reader, stdout=None, stderr=None
        )
        os.close(writer)
        # Ended, and the loop has had no chance to notice.
        os.waitid(os.P_PID, transport.get_pid(), os.WEXITED | os.WNOWAIT)
        transport.close()
        await protocol.lost
        assert transport.get_returncode() == 9
        os.close(reader)

    run_ours(main())


def test_a_child_that_other_code_waits_for(
    run_ours: Runner, caplog: pytest.LogCaptureFixture
) -> None:
    """asyncio with a pidfd returns 255 and warns. Its thread (3.10, 3.11) is faster than that."""

    async def main() -> None:
        reader, writer = os.pipe()
        child = await asyncio.create_subprocess_exec("/bin/cat", stdin=reader)
        os.close(writer)
        os.waitpid(child.pid, 0)
        assert await child.wait() == 255
        os.close(reader)

    run_ours(main())
    assert "255" in caplog.text


def test_a_dropped_transport_warns_and_kills(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.subprocess_exec(
            Events, "/bin/sleep", "60", stdin=DEVNULL, stdout=None, stderr=None
        )
        transport.__del__()
        await protocol.lost
        assert transport.get_returncode() == -signal.SIGKILL

    with pytest.warns(ResourceWarning, match="unclosed transport"):
        run(main())


def test_children_of_a_loop_in_another_thread(run: Runner) -> None:
    async def main() -> bytes:
        child = await asyncio.create_subprocess_shell("cat; exit 5", stdin=PIPE, stdout=PIPE)
        out, _ = await child.communicate(b"in a thread")
        assert child.returncode == 5
        return out

    answers: list[bytes] = []
    thread = threading.Thread(target=lambda: answers.append(run(main())))
    thread.start()
    thread.join(30)
    assert answers == [b"in a thread"]


def test_without_pidfds(run_ours: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a filter forbids them, a thread waits for the child."""

    def forbidden(pid: int, flags: int = 0) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "pidfd_open", forbidden)

    async def main() -> None:
        children = [
            # A preexec_fn takes CPython's way, which brings no pidfd either.
            await asyncio.create_subprocess_shell(f"exit {n}", preexec_fn=lambda: None)
            for n in range(5)
        ]
        assert [await child.wait() for child in children] == [0, 1, 2, 3, 4]
        killed = await asyncio.create_subprocess_exec("/bin/sleep", "60", preexec_fn=lambda: None)
        killed.kill()
        assert await killed.wait() == -signal.SIGKILL

    run_ours(main())


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv (util-linux) is not installed")
def test_children_that_die_with_their_parent_live_as_long_as_it(run: Runner) -> None:
    """For the kernel, the parent is the thread that made the child (PR_SET_PDEATHSIG)."""

    async def child() -> int:
        process = await asyncio.create_subprocess_exec(
            "setpriv", "--pdeathsig", "KILL", "/bin/sleep", "0.05"
        )
        return await process.wait()

    async def main() -> None:
        for _ in range(5):
            assert set(await asyncio.gather(*(child() for _ in range(8)))) == {0}

    run(main())


def test_children_inherit_the_niceness_of_the_moment(run: Runner) -> None:
    """Attributes that belong to threads on Linux come from the loop's thread, also after earlier children."""
    code = "import os; print(os.getpriority(os.PRIO_PROCESS, 0))"

    async def main() -> None:
        before = int(await output(PYTHON, "-SE", "-c", code))
        os.nice(1)
        assert int(await output(PYTHON, "-SE", "-c", code)) == min(before + 1, 19)

    # Runs in a thread of its own, because niceness cannot be lowered again.
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        executor.submit(run, main()).result(60)


def test_cancelling_the_start_of_a_child_that_the_kernel_reaped(run_ours: Runner) -> None:
    """With SIGCHLD ignored there is no child left to kill or to wait for."""

    async def main() -> None:
        collect()
        before = open_descriptors()
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec("/bin/true", stdin=PIPE, stdout=PIPE)
        )
        await asyncio.sleep(0)
        time.sleep(0.2)  # the child's whole life, before the loop gets the event
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(starting, 20)
        assert open_descriptors() <= before

    handler = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        run_ours(main())
    finally:
        signal.signal(signal.SIGCHLD, handler)


def test_a_replaced_popen_is_used(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools that put their own class there (tracers, mocks) see every child."""
    seen: list[Any] = []

    class Popen(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, args: Any, **options: Any) -> None:
            seen.append(args)
            super().__init__(args, **options)

    monkeypatch.setattr(subprocess, "Popen", Popen)

    async def main() -> None:
        assert await output("/bin/echo", "seen") == b"seen\n"

    run(main())
    assert seen == [("/bin/echo", "seen")]


FIRST_CHILD = """
import asyncio, subprocess
import uringcore

seen = []
stock = subprocess.Popen

class Popen(stock):
    def __init__(self, args, **options):
        seen.append(args)
        super().__init__(args, **options)

async def child():
    process = await asyncio.create_subprocess_exec("/bin/echo", "heard", stdout=subprocess.PIPE)
    assert (await process.communicate())[0] == b"heard\\n"

async def main():
    subprocess.Popen = Popen
    await child()
    assert len(seen) == 1, "the program's class was used"
    subprocess.Popen = stock
    await child()
    assert len(seen) == 1

uringcore.run(main())
"""


def test_a_program_may_replace_popen_for_its_first_child() -> None:
    """The program's class makes the child, and does not replace CPython's class afterwards."""
    subprocess.run([PYTHON, "-c", FIRST_CHILD], check=True, timeout=60)


def test_no_signal_handler_is_taken(run_ours: Runner) -> None:
    before = signal.getsignal(signal.SIGCHLD)

    async def main() -> None:
        assert await output("/bin/echo") == b"\n"
        assert signal.getsignal(signal.SIGCHLD) is before
        assert not any("waitpid" in thread.name for thread in threading.enumerate())

    run_ours(main())


# Cancellation and numbers -------------------------------------------------------------------------


def test_cancellation_at_every_step_leaves_neither_child_nor_descriptor(run: Runner) -> None:
    async def main() -> None:
        await output("/bin/true")
        before = open_descriptors()
        for steps in [*range(12), *range(12)]:
            starting = asyncio.ensure_future(
                asyncio.create_subprocess_exec(
                    "/bin/sleep", "60", stdin=PIPE, stdout=PIPE, stderr=PIPE
                )
            )
            for _ in range(steps):
                await asyncio.sleep(0.0005 if steps % 2 else 0)
            starting.cancel()
            try:
                child = await starting
            except asyncio.CancelledError:
                assert_no_children()
            else:
                child.kill()
                await child.communicate()
        gc.collect()
        for _ in range(100):
            if open_descriptors() <= before:
                break
            await asyncio.sleep(0.01)
        assert open_descriptors() <= before

    run(main())


def test_a_time_out_while_many_are_starting(run: Runner) -> None:
    async def main() -> None:
        await output("/bin/true")
        before = open_descriptors()

        async def one(seconds: float) -> None:
            try:
                child = await asyncio.wait_for(
                    asyncio.create_subprocess_exec("/bin/sleep", "60", stdin=PIPE, stdout=PIPE),
                    seconds,
                )
            except asyncio.TimeoutError:
                return
            child.kill()
            await child.communicate()

        await asyncio.gather(*(one(0.001 * number) for number in range(40)))
        gc.collect()
        # The transports of the pipes close a turn or two later; the test's time-out ends the wait.
        while open_descriptors() > before:
            await asyncio.sleep(0.01)

    run(main(), timeout=60)


def test_two_hundred_at_once(run: Runner) -> None:
    async def main() -> None:
        await output("/bin/true")
        before = open_descriptors()
        outs = await asyncio.gather(*(output("/bin/echo", str(n)) for n in range(200)))
        assert outs == [b"%d\n" % n for n in range(200)]
        # The transports of the pipes close a turn or two later; the test's time-out ends the wait.
        while open_descriptors() > before:
            await asyncio.sleep(0.01)

    run(main(), timeout=60)


def test_the_loop_runs_on_while_children_start(run_ours: Runner) -> None:
    """The first step of the coroutine returns before there is a child."""

    async def main() -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticker = asyncio.ensure_future(tick())
        started = asyncio.ensure_future(asyncio.create_subprocess_exec("/bin/true"))
        await asyncio.sleep(0)
        assert not started.done()
        seen = ticks
        child = await started
        assert ticks > seen
        assert await child.wait() == 0
        ticker.cancel()

    run_ours(main())


def test_interrupted_programs_leave_no_child(run_ours: Runner) -> None:
    """The loop is stopped and closed while a child is being made."""
    loop = run_ours.factory()
    asyncio.set_event_loop(loop)
    before = open_descriptors()

    async def main() -> None:
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec("/bin/sleep", "60", stdin=PIPE, stdout=PIPE)
        )
        await asyncio.sleep(0)
        starting.add_done_callback(lambda _: None)
        task.append(starting)

    task: list[Any] = []
    loop.run_until_complete(main())
    task[0]._log_destroy_pending = False
    task.clear()
    loop.close()
    asyncio.set_event_loop(None)
    del loop
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    assert_no_children()
    assert open_descriptors() < before


# Child watchers -----------------------------------------------------------------------------------


@pytest.mark.skipif(python_version() >= (3, 14), reason="3.14 has no child watchers")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "name",
    [
        "ThreadedChildWatcher",
        "SafeChildWatcher",
        "FastChildWatcher",
        "MultiLoopChildWatcher",
        "PidfdChildWatcher",
    ],
)
def test_a_watcher_that_the_program_sets_is_used(run: Runner, name: str) -> None:
    base: Any = getattr(asyncio, name)
    used: list[int] = []

    class Watcher(base):  # type: ignore[misc]
        def add_child_handler(self, pid: int, callback: Any, *args: Any) -> None:
            used.append(pid)
            super().add_child_handler(pid, callback, *args)

    async def main() -> None:
        watcher: Any = Watcher()
        watcher.attach_loop(asyncio.get_running_loop())
        asyncio.set_child_watcher(watcher)
        try:
            assert asyncio.get_child_watcher() is watcher
            child = await asyncio.create_subprocess_shell("cat; exit 6", stdin=PIPE, stdout=PIPE)
            assert (await child.communicate(b"watched"))[0] == b"watched"
            assert child.returncode == 6
            assert used == [child.pid]
        finally:
            asyncio.set_child_watcher(None)  # type: ignore[arg-type]

    run(main())


@pytest.mark.skipif(python_version() >= (3, 14), reason="3.14 has no child watchers")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_our_policy_has_a_working_watcher() -> None:
    import uringcore

    asyncio.set_event_loop_policy(uringcore.EventLoopPolicy())
    try:
        assert asyncio.run(output("/bin/echo", "a")) == b"a\n"
        watcher = asyncio.get_child_watcher()
        assert isinstance(watcher, asyncio.AbstractChildWatcher)
        assert asyncio.get_child_watcher() is watcher
        assert asyncio.run(output("/bin/echo", "b")) == b"b\n"
        own = asyncio.ThreadedChildWatcher()
        asyncio.set_child_watcher(own)
        assert asyncio.get_child_watcher() is own
        assert asyncio.run(output("/bin/echo", "c")) == b"c\n"
        asyncio.set_child_watcher(None)  # type: ignore[arg-type]
        assert asyncio.run(output("/bin/echo", "d")) == b"d\n"
    finally:
        asyncio.set_event_loop_policy(None)
