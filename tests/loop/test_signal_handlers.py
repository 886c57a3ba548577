"""Signal handlers and the wakeup descriptor: errors, bursts, its owner and its return."""

from __future__ import annotations

import pytest

from tests.loop.harness import BACKENDS, LOOPS
from tests.loop.test_signals import await_line, finish, start


def check(name: str, body: str) -> None:
    """Runs `body`; it has to succeed and print nothing on standard error."""
    status, out, err = finish(start(name, body))
    assert (status, err) == (0, ""), out


@pytest.mark.parametrize("name", LOOPS)
def test_invalid_signals_and_handlers_are_refused(name: str) -> None:
    check(
        name,
        """
        loop = new_loop()
        def refused(error, *args, add=True):
            try:
                (loop.add_signal_handler if add else loop.remove_signal_handler)(*args)
            except error:
                return
            raise AssertionError(args)
        async def coroutine(): pass
        refused(ValueError, 0, print)
        refused(ValueError, 10_000, print)
        refused(ValueError, -1, print)
        refused(TypeError, "TERM", print)
        refused(RuntimeError, signal.SIGKILL, print)
        refused(RuntimeError, signal.SIGSTOP, print)
        refused(TypeError, signal.SIGTERM, coroutine)
        made = coroutine()
        refused(TypeError, signal.SIGTERM, made)
        made.close()
        refused(ValueError, 10_000, add=False)
        assert loop.remove_signal_handler(signal.SIGTERM) is False
        assert signal.set_wakeup_fd(-1) == -1
        failures = []
        def elsewhere():
            try:
                loop.add_signal_handler(signal.SIGTERM, print)
            except RuntimeError as error:
                failures.append(error)
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert len(failures) == 1
        loop.close()
        refused(RuntimeError, signal.SIGTERM, print)
        """,
    )


@pytest.mark.parametrize("name", LOOPS)
def test_handlers_outlive_a_run_and_are_given_back(name: str) -> None:
    check(
        name,
        """
        loop = new_loop()
        seen = []
        async def until(count):
            while len(seen) < count:
                await asyncio.sleep(0)
        loop.add_signal_handler(signal.SIGUSR1, seen.append, 1)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert seen == []
        loop.run_until_complete(until(1))
        loop.run_until_complete(asyncio.sleep(0))
        os.kill(os.getpid(), signal.SIGUSR1)
        loop.run_until_complete(until(2))
        # Replaced, not added to.
        loop.add_signal_handler(signal.SIGUSR1, seen.append, 2)
        os.kill(os.getpid(), signal.SIGUSR1)
        loop.run_until_complete(until(3))
        assert seen == [1, 1, 2]
        assert loop.remove_signal_handler(signal.SIGUSR1) is True
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
        assert signal.set_wakeup_fd(-1) == -1
        loop.add_signal_handler(signal.SIGINT, seen.append, 3)
        loop.remove_signal_handler(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        loop.add_signal_handler(signal.SIGUSR2, seen.append, 4)
        loop.close()
        assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL
        assert signal.set_wakeup_fd(-1) == -1
        """,
    )


@pytest.mark.parametrize("name", BACKENDS)
def test_the_wakeup_descriptor_is_given_back_when_a_signal_interrupts_taking_it(name: str) -> None:
    """A signal's handler may raise right after the loop has taken the descriptor for its sleep."""
    check(
        name,
        """
        loop = new_loop()
        original = signal.set_wakeup_fd
        def interrupted(fd, **options):
            previous = original(fd, **options)
            if fd != -1 and not seen:
                seen.append(fd)
                raise KeyboardInterrupt
            return previous
        seen = []
        signal.set_wakeup_fd = interrupted
        try:
            loop.run_until_complete(asyncio.sleep(5))
        except KeyboardInterrupt:
            pass
        signal.set_wakeup_fd = original
        assert seen, "nobody took it"
        assert signal.set_wakeup_fd(-1) == -1
        loop.close()
        """,
    )


@pytest.mark.parametrize("name", BACKENDS)
def test_closing_gives_the_wakeup_descriptor_back_where_a_signal_interrupted_that(
    name: str,
) -> None:
    """Otherwise the signals of the process would be written to the next owner of the socket's
    number.
    """
    check(
        name,
        """
        loop = new_loop()
        original = signal.set_wakeup_fd
        def interrupted(fd, **options):
            if fd == -1:
                signal.set_wakeup_fd = original
                raise KeyboardInterrupt
            return original(fd, **options)
        signal.set_wakeup_fd = interrupted
        try:
            loop.run_until_complete(asyncio.sleep(0.01))
        except KeyboardInterrupt:
            pass
        assert signal.set_wakeup_fd is original, "nobody gave it back"
        loop.close()
        assert signal.set_wakeup_fd(-1) == -1
        """,
    )


@pytest.mark.parametrize("name", LOOPS)
def test_the_wakeup_descriptor_is_given_back(name: str) -> None:
    check(
        name,
        """
        loop = new_loop()
        def current():
            fd = signal.set_wakeup_fd(-1)
            signal.set_wakeup_fd(fd)
            return fd
        loop.run_until_complete(asyncio.sleep(0))
        assert current() == -1
        # The program's own stays its own.
        mine, theirs = socket.socketpair()
        mine.setblocking(False), theirs.setblocking(False)
        signal.set_wakeup_fd(mine.fileno())
        signal.signal(signal.SIGUSR1, lambda *_: None)
        async def main():
            loop.add_reader(theirs, arrived.set_result, None)
            os.kill(os.getpid(), signal.SIGUSR1)
            await arrived
            loop.remove_reader(theirs)
        arrived = loop.create_future()
        loop.run_until_complete(main())
        assert theirs.recv(10) == bytes([signal.SIGUSR1])
        assert current() == mine.fileno()
        # What a callback sets stays set.
        signal.set_wakeup_fd(-1)
        async def take():
            signal.set_wakeup_fd(mine.fileno())
        loop.run_until_complete(take())
        assert current() == mine.fileno()
        # One that was closed is nobody's.
        async def sleep():
            await asyncio.sleep(0)
        mine.close()
        loop.run_until_complete(sleep())
        loop.close()
        """,
    )


@pytest.mark.parametrize("name", BACKENDS)
def test_ctrl_c_wakes_after_the_last_handler_is_gone(name: str) -> None:
    """asyncio releases the wakeup descriptor then; a running loop of ours keeps it."""
    check(
        name,
        """
        loop = new_loop()
        async def main():
            loop.add_signal_handler(signal.SIGUSR1, print)
            loop.remove_signal_handler(signal.SIGUSR1)
            fd = signal.set_wakeup_fd(-1)
            assert fd == loop._csock.fileno()
            signal.set_wakeup_fd(fd, warn_on_full_buffer=False)
        loop.run_until_complete(main())
        assert signal.set_wakeup_fd(-1) == -1
        loop.close()
        """,
    )


@pytest.mark.parametrize("name", LOOPS)
def test_a_signal_that_another_thread_receives(name: str) -> None:
    check(
        name,
        """
        loop = new_loop()
        async def main():
            arrived = asyncio.Event()
            loop.add_signal_handler(signal.SIGUSR1, arrived.set)
            ready, done = threading.Event(), threading.Event()
            def elsewhere():
                ready.wait()
                time.sleep(0.05)  # the loop is asleep by now
                signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
                done.wait()
            thread = threading.Thread(target=elsewhere)
            thread.start()
            ready.set()
            await asyncio.wait_for(arrived.wait(), 10)
            done.set()
            thread.join()
        loop.run_until_complete(main())
        loop.close()
        """,
    )


@pytest.mark.parametrize("name", BACKENDS)
def test_a_storm_of_signals(name: str) -> None:
    """More signals than the wakeup pipe holds while a callback is busy: no warning, and later
    signals still arrive.
    """
    check(
        name,
        """
        loop = new_loop()
        async def main():
            seen = []
            loop.add_signal_handler(signal.SIGUSR1, seen.append, 1)
            for _ in range(5000):
                os.kill(os.getpid(), signal.SIGUSR1)
            while not seen:
                await asyncio.sleep(0.001)
            loop.remove_signal_handler(signal.SIGUSR1)
            later = asyncio.Event()
            loop.add_signal_handler(signal.SIGUSR2, later.set)
            os.kill(os.getpid(), signal.SIGUSR2)
            await asyncio.wait_for(later.wait(), 10)
        loop.run_until_complete(main())
        loop.close()
        """,
    )


@pytest.mark.parametrize("name", LOOPS)
def test_a_handler_that_raises(name: str) -> None:
    check(
        name,
        """
        loop = new_loop()
        told = []
        loop.set_exception_handler(lambda loop, context: told.append(context["exception"]))
        async def main():
            loop.add_signal_handler(signal.SIGUSR1, lambda: 1 / 0)
            os.kill(os.getpid(), signal.SIGUSR1)
            while not told:
                await asyncio.sleep(0)
        loop.run_until_complete(main())
        assert [type(error) for error in told] == [ZeroDivisionError]
        class Leave(SystemExit): pass
        def leave(): raise Leave
        loop.add_signal_handler(signal.SIGUSR1, leave)
        loop.call_soon(os.kill, os.getpid(), signal.SIGUSR1)
        try:
            loop.run_forever()
        except Leave:
            pass
        else:
            raise AssertionError("it did not leave")
        assert not loop.is_running()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        """,
    )


@pytest.mark.parametrize("name", LOOPS)
def test_a_python_handler_runs_while_the_loop_sleeps(name: str) -> None:
    """A handler set with signal.signal(), outside asyncio's control, may schedule."""
    process = start(
        name,
        """
        loop = new_loop()
        async def main():
            future = loop.create_future()
            def handler(number, frame):
                loop.call_soon_threadsafe(future.set_result, number)
            signal.signal(signal.SIGUSR1, handler)
            print("ready", flush=True)
            assert await asyncio.wait_for(future, 15) == signal.SIGUSR1
        loop.run_until_complete(main())
        loop.close()
        """,
    )
    await_line(process, "ready")
    process.send_signal(10)
    status, _, err = finish(process)
    assert (status, err) == (0, "")
