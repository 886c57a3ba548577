"""A program's view of handles, with and without their reuse by the loop."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import inspect
import signal
import sys
import weakref
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import uringcore
from tests.loop.harness import Runner

ARGUMENTS = [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)]


@pytest.mark.parametrize("args", ARGUMENTS, ids=len)
def test_callbacks_get_what_was_given(run: Runner, args: tuple[int, ...]) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        got: list[tuple[str, tuple[int, ...]]] = []

        def note(name: str) -> Callable[..., None]:
            return lambda *given: got.append((name, given))

        # Twice: the second time handles may be reused ones of the first.
        for _ in range(2):
            got.clear()
            loop.call_soon(note("soon"), *args)
            loop.call_soon_threadsafe(note("safe"), *args)
            handle = loop.call_later(0, note("later"), *args)
            assert getattr(handle, "_args") == args  # noqa: B009 - mypy knows of no such attribute
            await asyncio.sleep(0.01)
            assert sorted(got) == [("later", args), ("safe", args), ("soon", args)]

    run(main())


def test_a_handle_that_is_kept_stays_what_it_was(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        kept: list[Any] = [loop.call_soon(int, text) for text in ("1", "2", "3")]
        for _ in range(20):
            loop.call_soon(str)
            await asyncio.sleep(0)
        assert [handle._args for handle in kept] == [("1",), ("2",), ("3",)]
        assert all(handle._callback is int for handle in kept)
        assert len({id(handle) for handle in kept}) == 3
        kept[0].cancel()
        ran: list[int] = []
        loop.call_soon(ran.append, 1)
        await asyncio.sleep(0)
        # The cancelled handle was a different one, reused or not.
        assert ran == [1]

    run(main())


def test_a_cancelled_handle_is_not_used_again_as_cancelled(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        ran: list[int] = []
        for number in range(100):
            loop.call_soon(ran.append, -1).cancel()
            await asyncio.sleep(0)
            handle = loop.call_soon(ran.append, number)
            assert not handle.cancelled()
            del handle
            await asyncio.sleep(0)
        assert ran == list(range(100))

    run(main())


def test_a_weak_reference_to_a_handle_dies_with_it(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        ran: list[int] = []
        reference = weakref.ref(loop.call_soon(ran.append, 1))
        assert reference() is not None
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert ran == [1]
        gc.collect()
        assert reference() is None

    run(main())


def test_a_callback_keeps_nothing_alive_once_it_has_run(run: Runner) -> None:
    class Thing:
        pass

    async def main() -> None:
        loop = asyncio.get_running_loop()
        references = []
        for _ in range(5):
            thing = Thing()
            context = contextvars.copy_context()
            references += [weakref.ref(thing), weakref.ref(context)]
            loop.call_soon(lambda *_: None, thing, context=context)
            del thing, context
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [reference() for reference in references] == [None] * 10

    run(main())


def test_the_failed_callback_is_named(run: Runner) -> None:
    def failing(*args: int) -> None:
        raise ValueError(sum(args))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        told: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: told.append(context))
        loop.call_soon(failing, 1, 2)
        loop.call_later(0, failing, 3, 4)
        await asyncio.sleep(0.001)  # later than the timer
        assert [str(context["exception"]) for context in told] == ["3", "7"]
        for context in told:
            assert "failing" in context["message"]
            assert "failing" in repr(context["handle"])
            context["handle"].cancel()

    run(main())


METHODS: list[tuple[str, tuple[Any, ...]]] = [
    ("call_soon", ()),
    ("call_soon_threadsafe", ()),
    ("call_later", (0,)),
    ("call_at", (0,)),
]


@pytest.mark.parametrize(("name", "leading"), METHODS, ids=[name for name, _ in METHODS])
def test_arguments_are_taken_as_asyncio_takes_them(
    run: Runner, name: str, leading: tuple[Any, ...]
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        method: Any = getattr(loop, name)
        ran: list[Any] = []
        method(*leading, ran.append, 1, context=None)
        method(*leading, ran.append, 2, context=contextvars.copy_context())
        named = dict(zip(("delay",) if name == "call_later" else ("when",), leading, strict=False))
        method(**named, callback=lambda: ran.append(3))
        await asyncio.sleep(0.001)  # later than the timers
        assert sorted(ran) == [1, 2, 3]
        for args, kwargs, text in [
            ((), {}, "missing"),
            ((*leading, ran.append), {"other": 1}, "unexpected keyword argument 'other'"),
            (
                (*leading, ran.append),
                {"callback": ran.append},
                "multiple values for argument 'callback'",
            ),
        ]:
            with pytest.raises(TypeError, match=text):
                method(*args, **kwargs)
        own = inspect.signature(getattr(type(loop), name))
        asyncios = inspect.signature(getattr(asyncio.BaseEventLoop, name))
        assert list(own.parameters) == list(asyncios.parameters)

    run(main())


def test_tasks_are_made_as_asyncio_makes_them(run: Runner) -> None:
    async def work() -> int:
        return 7

    async def main() -> None:
        loop = asyncio.get_running_loop()
        task = loop.create_task(work())
        assert type(task) is asyncio.Task
        assert task.get_name().startswith("Task-")
        named = loop.create_task(work(), name="one")
        assert named.get_name() == "one"
        assert await asyncio.gather(task, named) == [7, 7]
        if sys.version_info >= (3, 11):
            variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable")
            context = contextvars.copy_context()
            context.run(variable.set, 3)

            async def look() -> int:
                return variable.get()

            assert await loop.create_task(look(), context=context) == 3
        with pytest.raises(TypeError):
            await loop.create_task(work, unknown=1)  # type: ignore[call-arg, arg-type]
        with pytest.raises(TypeError):
            await loop.create_task()  # type: ignore[call-arg]
        future = loop.create_future()
        assert type(future) is asyncio.Future
        assert future.get_loop() is loop

    run(main())


def test_futures_and_tasks_are_of_the_classes_that_asyncio_has_by_now(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Future(asyncio.Future):  # type: ignore[type-arg]
        pass

    class Task(asyncio.Task):  # type: ignore[type-arg]
        pass

    async def main() -> None:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(asyncio.futures, "Future", Future)
        monkeypatch.setattr(asyncio.tasks, "Task", Task)
        future, task = loop.create_future(), loop.create_task(asyncio.sleep(0))
        monkeypatch.undo()
        assert type(future) is Future
        assert type(task) is Task
        await task

    run(main())


def test_a_closed_loop_makes_no_task(run: Runner) -> None:
    async def main() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    loop = run(main())
    work = main()
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        loop.create_task(work)
    work.close()


def test_a_loop_keeps_its_attributes_out_of_a_dictionary() -> None:
    """With an instance dictionary, the interpreter would search it at every method call."""

    async def main() -> None:
        async def numbers() -> AsyncIterator[int]:
            yield 1

        async for _ in numbers():
            await asyncio.sleep(0)
        await asyncio.get_running_loop().run_in_executor(None, int)
        server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        server.close()
        await server.wait_closed()
        process = await asyncio.create_subprocess_exec("true")
        await process.wait()

    loop = uringcore.new_event_loop()
    loop.add_signal_handler(signal.SIGUSR1, int)
    loop.set_exception_handler(lambda loop, context: None)
    loop.run_until_complete(main())
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.run_until_complete(loop.shutdown_default_executor())
    assert vars(loop) == {}
    loop.close()
    assert vars(loop) == {}


def test_a_class_of_the_programs_own_has_its_methods_called() -> None:
    calls = []

    class Loop(uringcore.UringEventLoop):
        def call_soon(self, callback: Any, *args: Any, **options: Any) -> Any:
            calls.append(callback)
            return super().call_soon(callback, *args, **options)

    loop = Loop()
    loop.note = "the program's own"
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.run_until_complete(asyncio.sleep(0))
    assert calls[0] == loop.stop and len(calls) > 2
    assert uringcore.UringEventLoop.call_soon(loop, int) is not None
    loop.close()


def test_a_handle_that_the_collector_showed_is_not_given_to_others() -> None:
    loop = uringcore.new_event_loop()
    loop.call_later(0, int)
    loop.call_soon(int)
    loop.run_until_complete(asyncio.sleep(0.001))
    kinds = (type(loop.call_soon(int)), type(loop.call_later(9, int)))
    shown = [one for one in gc.get_objects() if type(one) in kinds]
    assert shown, "the collector tracks handles that wait for reuse"
    for _ in range(len(shown) + 1):
        assert not any(one is loop.call_later(9, int) for one in shown)
        assert not any(one is loop.call_soon(int) for one in shown)
    loop.close()
