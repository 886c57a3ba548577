"""Callbacks: their order, timers, contexts, exceptions, threads and executors."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
import time
from typing import Any

import pytest

from tests.loop.harness import Runner, rounds


def test_soon_runs_in_order(run: Runner) -> None:
    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        seen: list[int] = []
        for number in range(1000):
            loop.call_soon(seen.append, number)
        await asyncio.sleep(0)
        return seen

    assert run(main()) == list(range(1000))


def test_callbacks_added_by_callbacks_wait_for_the_next_turn(run: Runner) -> None:
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        seen: list[str] = []

        def first() -> None:
            seen.append("first")
            loop.call_soon(seen.append, "child")

        loop.call_soon(first)
        loop.call_soon(seen.append, "second")
        await asyncio.sleep(0)
        before = list(seen)
        await asyncio.sleep(0)
        assert before == ["first", "second"]
        return seen

    assert run(main()) == ["first", "second", "child"]


def test_a_callback_that_reschedules_itself_does_not_starve_others(run: Runner) -> None:
    async def main() -> int:
        loop = asyncio.get_running_loop()
        turns = 0
        stop = False

        def again() -> None:
            nonlocal turns
            turns += 1
            if not stop:
                loop.call_soon(again)

        reader, writer = await _echo_pair()
        again()
        writer.write(b"through")
        assert await reader.readexactly(7) == b"through"
        stop = True
        writer.close()
        return turns

    assert run(main()) > 1


async def _echo_pair() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read(100))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    pair = await asyncio.open_connection(host, port)
    server.close()
    return pair


def test_timers_fire_in_order_of_time_then_of_creation(run: Runner) -> None:
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        seen: list[str] = []
        now = loop.time()
        loop.call_at(now + 0.03, seen.append, "c")
        loop.call_at(now + 0.01, seen.append, "a")
        loop.call_later(0.02, seen.append, "b")
        late = loop.call_at(now + 0.02, seen.append, "never")
        late.cancel()
        await asyncio.sleep(0.031)  # later than the last of them
        return seen

    assert run(main()) == ["a", "b", "c"]


def test_a_timer_is_never_early(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for delay in (0.0, 0.0001, 0.001, 0.0105):
            due = loop.time() + delay
            fired = loop.create_future()
            handle = loop.call_at(due, lambda done=fired: done.set_result(loop.time()))
            assert handle.when() == due
            # The clock's resolution is asyncio's own allowance.
            assert await fired >= due - time.get_clock_info("monotonic").resolution

    run(main())


def test_many_timers_are_cancelled_without_trace(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        before = loop.stats()["timers"] if run.ours else 0  # type: ignore[attr-defined]
        handles = [loop.call_later(3600 + number, print) for number in range(5000)]
        for handle in handles:
            handle.cancel()
            assert handle.cancelled()
        await rounds()
        if run.ours:
            assert loop.stats()["timers"] == before  # type: ignore[attr-defined]

    run(main())


def test_handles_compare_and_cancel(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        called: list[str] = []
        handle = loop.call_soon(called.append, "x")
        assert not handle.cancelled()
        handle.cancel()
        handle.cancel()
        assert handle.cancelled()
        first, second = loop.call_later(50, print), loop.call_later(100, print)
        assert first < second
        assert second > first
        first.cancel()
        second.cancel()
        await asyncio.sleep(0)
        assert called == []

    run(main())


VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


def test_each_callback_runs_in_its_context(run: Runner) -> None:
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        seen: list[str] = []

        def note() -> None:
            seen.append(VARIABLE.get())

        VARIABLE.set("current")
        loop.call_soon(note)
        other = contextvars.copy_context()
        other.run(VARIABLE.set, "other")
        loop.call_soon(note, context=other)
        loop.call_later(0.001, note, context=other)
        loop.call_soon_threadsafe(note, context=other)
        VARIABLE.set("changed later")
        loop.call_soon(note)
        await asyncio.sleep(0.002)  # later than the timer
        return seen

    assert run(main()) == ["current", "other", "other", "changed later", "other"]


def test_a_callback_may_change_its_own_context(run: Runner) -> None:
    async def main() -> tuple[str, str]:
        loop = asyncio.get_running_loop()
        context = contextvars.copy_context()
        seen: list[str] = []
        loop.call_soon(VARIABLE.set, "set by a callback", context=context)
        loop.call_soon(lambda: seen.append(VARIABLE.get()), context=context)
        await asyncio.sleep(0)
        return seen[0], VARIABLE.get()

    assert run(main()) == ("set by a callback", "unset")


def test_tasks_keep_their_own_context(run: Runner) -> None:
    async def child(name: str) -> str:
        VARIABLE.set(name)
        await asyncio.sleep(0.001)
        return VARIABLE.get()

    async def main() -> list[str]:
        return await asyncio.gather(*(child(str(number)) for number in range(20)))

    assert run(main()) == [str(number) for number in range(20)]


def test_exceptions_go_to_the_handler_and_the_loop_goes_on(run: Runner) -> None:
    async def main() -> bool:
        loop = asyncio.get_running_loop()

        def fail() -> None:
            raise ZeroDivisionError("on purpose")

        reached = loop.create_future()
        loop.call_soon(fail)
        loop.call_later(0, fail)
        loop.call_soon(reached.set_result, True)
        await asyncio.sleep(0.001)  # later than the timer
        return await reached

    assert run(main())
    context = run.complaints.contexts[0]
    assert "handle" in context
    assert "fail" in context["message"]
    run.expect(ZeroDivisionError, ZeroDivisionError)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_an_exit_leaves_run_forever(run: Runner, error: type[BaseException]) -> None:
    loop = run.factory()

    def leave() -> None:
        raise error

    try:
        loop.call_soon(leave)
        with pytest.raises(error):
            loop.run_forever()
        assert not loop.is_running()
        # The loop can be used again.
        assert loop.run_until_complete(asyncio.sleep(0, "again")) == "again"
    finally:
        loop.close()


def test_stop_runs_what_is_ready_and_keeps_the_rest(run: Runner) -> None:
    loop = run.factory()
    seen: list[str] = []
    try:

        def stopping() -> None:
            loop.stop()
            loop.call_soon(seen.append, "after")

        loop.call_soon(stopping)
        loop.call_soon(seen.append, "ready")
        loop.run_forever()
        assert seen == ["ready"]
        loop.call_soon(loop.stop)
        loop.run_forever()
        assert seen == ["ready", "after"]
    finally:
        loop.close()


def test_stop_before_run_forever_makes_one_turn(run: Runner) -> None:
    loop = run.factory()
    seen: list[str] = []
    try:
        loop.call_soon(seen.append, "once")
        loop.stop()
        loop.run_forever()
        assert seen == ["once"]
    finally:
        loop.close()


def test_misuse_is_refused(run: Runner) -> None:
    loop = run.factory()

    # CPython 3.13.0 cleans up after a run that it rejected and so forgets the outer one.
    nests = run.ours or sys.version_info[:3] != (3, 13, 0)

    async def nested() -> None:
        if nests:
            with pytest.raises(RuntimeError, match="already running"):
                loop.run_forever()
        with pytest.raises(RuntimeError, match="running"):
            loop.close()

    loop.run_until_complete(nested())
    loop.close()
    loop.close()
    assert loop.is_closed()
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_soon(print)
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_later(1, print)
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_soon_threadsafe(print)
    with pytest.raises(RuntimeError, match="closed"):
        loop.run_forever()


def test_threadsafe_calls_from_many_threads_all_arrive(run: Runner) -> None:
    threads, calls = 8, 500

    async def main() -> list[list[int]]:
        loop = asyncio.get_running_loop()
        seen: list[list[int]] = [[] for _ in range(threads)]
        done = asyncio.Event()
        owner = threading.get_ident()

        def arrive(thread: int, number: int) -> None:
            assert threading.get_ident() == owner
            seen[thread].append(number)
            if sum(map(len, seen)) == threads * calls:
                done.set()

        def work(thread: int) -> None:
            for number in range(calls):
                loop.call_soon_threadsafe(arrive, thread, number)
                if number % 97 == 0:
                    time.sleep(0.0005)

        workers = [threading.Thread(target=work, args=(index,)) for index in range(threads)]
        for worker in workers:
            worker.start()
        await done.wait()
        for worker in workers:
            worker.join()
        return seen

    assert run(main()) == [list(range(calls))] * threads


def test_a_sleeping_loop_wakes_for_a_thread(run: Runner) -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        woken = loop.create_future()

        def work() -> None:
            time.sleep(0.05)
            loop.call_soon_threadsafe(lambda: woken.set_result(time.monotonic()))

        thread = threading.Thread(target=work)
        thread.start()
        at = await woken
        thread.join()
        return time.monotonic() - at

    # Nothing else is due for as long as the runner's patience: a lost wake-up shows as a time-out.
    assert run(main()) < 5


def test_wake_ups_are_never_lost(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        turn: list[Any] = [loop.create_future()]
        asked = threading.Semaphore(0)
        rounds = 300

        def answer() -> None:
            for _ in range(rounds):
                asked.acquire()
                loop.call_soon_threadsafe(lambda: turn[0].set_result(None))

        thread = threading.Thread(target=answer)
        thread.start()
        for _ in range(rounds):
            turn[0] = loop.create_future()
            asked.release()
            await turn[0]
        thread.join()

    run(main())


def test_executor_results_exceptions_and_blocking(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        owner = threading.get_ident()
        assert await loop.run_in_executor(None, threading.get_ident) != owner
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, lambda: 1 // 0)
        answers = await asyncio.gather(
            *(loop.run_in_executor(None, lambda n=n: n * n) for n in range(50))
        )
        assert answers == [n * n for n in range(50)]
        assert await asyncio.to_thread(sum, [1, 2]) == 3

    run(main())


def test_names_are_resolved(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo("127.0.0.1", 80)
        assert any(one[4] == ("127.0.0.1", 80) for one in found)
        name, service = await loop.getnameinfo(("127.0.0.1", 80))
        assert isinstance(name, str)
        assert service in ("http", "80", "www")

    run(main())


def test_run_coroutine_threadsafe(run: Runner) -> None:
    async def answer() -> int:
        await asyncio.sleep(0.001)
        return 42

    async def main() -> int:
        loop = asyncio.get_running_loop()
        return await asyncio.to_thread(
            lambda: asyncio.run_coroutine_threadsafe(answer(), loop).result(10)
        )

    assert run(main()) == 42


def test_debug_mode_refuses_calls_from_another_thread(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_debug(True)

        def misuse() -> str:
            try:
                loop.call_soon(print)
            except RuntimeError as error:
                return str(error)
            return ""

        assert "Non-thread-safe" in await asyncio.to_thread(misuse)
        loop.set_debug(False)

    run(main())


def test_wait_for_and_cancellation(run: Runner) -> None:
    async def main() -> list[str]:
        seen: list[str] = []

        async def forever() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise

        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(forever(), 0.01)
        task = asyncio.ensure_future(forever())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return seen

    assert run(main()) == ["cancelled", "cancelled"]


def test_async_generators_are_closed_at_the_end(run: Runner) -> None:
    seen: list[str] = []

    async def generate() -> Any:
        try:
            while True:
                yield 1
        finally:
            await asyncio.sleep(0)
            seen.append("closed")

    kept: list[Any] = []

    async def main() -> None:
        generator = generate()
        kept.append(generator)
        assert await generator.__anext__() == 1

    run(main())
    assert seen == ["closed"]


def test_task_factory_is_used(run: Runner) -> None:
    made: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def make(loop: Any, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
            made.append(coroutine.__qualname__)
            return asyncio.Task(coroutine, loop=loop, **options)

        loop.set_task_factory(make)
        assert loop.get_task_factory() is make
        await asyncio.create_task(asyncio.sleep(0))
        loop.set_task_factory(None)

    run(main())
    assert made == ["sleep"]


def test_timers_cancelled_within_one_turn_do_not_pile_up(run_ours: Runner) -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        fired: list[int] = []
        before = loop.stats()["timers"]
        kept = [loop.call_later(0.001, fired.append, number) for number in range(20)]
        for _ in range(5_000):
            loop.call_later(60, print).cancel()
            assert loop.stats()["timers"] == before + len(kept)
        await asyncio.sleep(0.002)  # later than the timers
        assert fired == list(range(20))

    run_ours(main())
