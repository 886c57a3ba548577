"""Coroutines in Rust have the methods, states and warnings of CPython's own, in this version.

Each test compares a coroutine of the extension with one of `async def`: equal calls have equal outcomes.
"""

from __future__ import annotations

import asyncio
import collections.abc
import contextlib
import functools
import gc
import inspect
import io
import types
import warnings

import pytest

from tests.quic.native.connection_pairs import stream_pair
from tests.server.application import lifespan
from tests.server.harness import until
from tests.support import certificates
from tests.support.free_ports import free_port
from uringcore.http3._unpooled_connection import connect as connect_origin
from uringcore.server import Config, Server

ATTRIBUTES = sorted(name for name in dir(types.CoroutineType) if name.startswith("cr_"))
"""Those of this version."""


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    return certificates.make(tmp_path_factory.mktemp("certificates"))


# Each yields `make`: `coroutine, finish = await make()`. The coroutine waits in its first step, until
# `await finish()`.


@contextlib.asynccontextmanager
async def of_python(pki):
    async def work(future):
        return await future

    async def make():
        future = asyncio.get_running_loop().create_future()

        async def finish():
            future.set_result(b"x")

        return work(future), finish

    yield make


@contextlib.asynccontextmanager
async def of_a_stream(pki):
    async with stream_pair(pki) as (here, there):

        async def make():
            return there.readexactly(1), functools.partial(here.send, b"x")

        yield make


@contextlib.asynccontextmanager
async def of_receive(pki):
    receives, pieces, over = asyncio.Queue(), asyncio.Queue(), asyncio.Event()

    async def app(scope, receive, send):
        receives.put_nowait(receive)
        await over.wait()

    async def content():
        while piece := await pieces.get():
            yield piece

    async with serving(pki, app) as client:
        request = asyncio.ensure_future(client.post("/", content=content()))
        receive = await receives.get()

        async def make():
            return receive(), functools.partial(pieces.put, b"x")

        yield make
        over.set()
        await pieces.put(b"")
        # The application has returned without a response.
        assert (await request).status == 500


@contextlib.asynccontextmanager
async def of_an_application(pki):
    loop = asyncio.get_running_loop()
    caught, gates = asyncio.Queue(), []

    async def app(scope, receive, send):
        await gates[-1]

    def factory(loop, coroutine, **options):
        if type(coroutine).__name__ == "ApplicationCoroutine":
            caught.put_nowait(coroutine)
            # The test runs the coroutine itself.
            coroutine = asyncio.sleep(0)
        return asyncio.Task(coroutine, loop=loop, **options)

    requests = []
    async with serving(pki, app) as client:

        async def make():
            gates.append(loop.create_future())
            requests.append(asyncio.ensure_future(client.get("/")))

            async def finish():
                gates[-1].set_result(None)

            return await caught.get(), finish

        loop.set_task_factory(factory)
        yield make
        loop.set_task_factory(None)
        while not caught.empty():
            caught.get_nowait().close()
        gc.collect()
        # A coroutine that was dropped has left its request open.
        for request in requests:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)


@contextlib.asynccontextmanager
async def serving(pki, app):
    async def app_with_lifespan(scope, receive, send):
        await (lifespan if scope["type"] == "lifespan" else app)(scope, receive, send)

    port = free_port()
    config = Config(
        app_with_lifespan,
        port=port,
        log_config=None,
        ssl_certfile=pki.server.certfile,
        ssl_keyfile=pki.server.keyfile,
        timeout_graceful_shutdown=0,
    )
    server = Server(config)
    running = asyncio.ensure_future(server.serve())
    await until(lambda: server.started or running.done())
    async with connect_origin(f"https://localhost:{port}", cafile=pki.authority.certfile) as client:
        yield client
    server.should_exit = True
    await running


@pytest.fixture(params=[of_a_stream, of_receive, of_an_application])
def compare(request, run, pki):
    """Runs `test(make)` for a coroutine of Python's and for one of the extension's; both have one result."""

    def runner(test):
        async def main():
            results = []
            for kind in (of_python, request.param):
                async with kind(pki) as make:
                    results.append(await asyncio.wait_for(test(make), 50))
            assert results[1] == results[0]

        run(main())

    return runner


def look(coroutine):
    """What programs read of a coroutine. Code is Python's alone."""
    shown = {name: getattr(coroutine, name) for name in ATTRIBUTES if name != "cr_code"}
    shown["cr_await"] = shown["cr_await"] is not None
    shown["cr_frame"] = type(shown["cr_frame"])
    names = (type(coroutine.__name__), type(coroutine.__qualname__))
    kinds = (
        inspect.iscoroutine(coroutine),
        inspect.isawaitable(coroutine),
        asyncio.iscoroutine(coroutine),
        isinstance(coroutine, collections.abc.Coroutine),
        isinstance(coroutine, types.CoroutineType),
    )
    return inspect.getcoroutinestate(coroutine), shown, names, kinds


def throw(coroutine, *args):
    with warnings.catch_warnings():
        # CPython 3.12 deprecates more than one argument.
        warnings.simplefilter("ignore", DeprecationWarning)
        coroutine.throw(*args)


def outcome(call, *args):
    """The exception of a call, or None."""
    try:
        call(*args)
    except BaseException as exc:
        return type(exc), str(exc)
    return None


def test_each_state_looks_like_pythons(compare):
    async def test(make):
        coroutine, finish = await make()
        seen = [look(coroutine)]
        future = coroutine.send(None)
        seen.append(look(coroutine))
        await finish()
        await asyncio.wait([future])
        with pytest.raises(StopIteration):
            coroutine.send(None)
        seen.append(look(coroutine))
        states = [state for state, *_ in seen]
        assert states == [inspect.CORO_CREATED, inspect.CORO_SUSPENDED, inspect.CORO_CLOSED]
        return seen

    compare(test)


def test_a_coroutine_ends_once(compare):
    async def test(make):
        created, _ = await make()
        suspended, _ = await make()
        suspended.send(None)
        seen = []
        for coroutine in (created, suspended):
            assert coroutine.close() is None
            seen.append(look(coroutine))
            seen.append(coroutine.close())
            seen.append(outcome(coroutine.send, None))
            seen.append(outcome(coroutine.throw, asyncio.CancelledError()))
            seen.append(outcome(coroutine.__await__().__next__))
        return seen

    # Python's `__await__` is an iterator of its own, with the same errors.
    compare(test)


def test_wrong_arguments_leave_a_coroutine_as_it_is(compare):
    async def test(make):
        coroutine, _ = await make()
        seen = [outcome(coroutine.send, 1), look(coroutine)]
        for args in ((1,), (int,), (asyncio.CancelledError(), 1)):
            seen.append(outcome(throw, coroutine, *args))
            seen.append(look(coroutine))
        coroutine.close()
        return seen

    compare(test)


@pytest.mark.parametrize("steps", [0, 1])
@pytest.mark.parametrize(
    "args",
    [
        (asyncio.CancelledError("why"),),
        (asyncio.CancelledError,),
        (asyncio.CancelledError, "why"),
        (asyncio.CancelledError, ("why", "not")),
        (asyncio.CancelledError, asyncio.CancelledError("why")),
    ],
)
def test_an_exception_is_raised_inside(compare, args, steps):
    async def test(make):
        coroutine, _ = await make()
        for _ in range(steps):
            coroutine.send(None)
        return outcome(throw, coroutine, *args), look(coroutine)

    compare(test)


def test_a_task_of_a_coroutine(compare):
    async def test(make):
        seen = []
        coroutine, finish = await make()
        task = asyncio.Task(coroutine)
        await asyncio.sleep(0)
        seen.append(look(coroutine))
        assert coroutine.__qualname__ in repr(task)
        assert len(task.get_stack()) == 1
        task.print_stack(file=io.StringIO())
        await finish()
        await task
        seen.append(look(coroutine))
        coroutine, _ = await make()
        task = asyncio.Task(coroutine)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        seen.append(task.cancelled())
        seen.append(look(coroutine))
        return seen

    compare(test)


def test_anyio_makes_a_task_of_a_coroutine(compare):
    # It checks that it has a coroutine.
    anyio = pytest.importorskip("anyio", reason="anyio comes with the extra that frameworks need")

    async def test(make):
        coroutine, finish = await make()
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: coroutine)
            await asyncio.sleep(0)
            await finish()
        return look(coroutine)

    compare(test)


@pytest.mark.parametrize("kind", [of_python, of_a_stream, of_receive, of_an_application])
def test_a_coroutine_that_was_never_awaited_is_warned_of(run, pki, kind):
    async def main():
        async with kind(pki) as make:
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always", RuntimeWarning)
                coroutine, _ = await make()
                name = coroutine.__qualname__
                del coroutine
                closed, _ = await make()
                closed.close()
                del closed
                thrown, _ = await make()
                outcome(thrown.throw, asyncio.CancelledError())
                del thrown
                gc.collect()
            texts = [str(one.message) for one in seen if "never awaited" in str(one.message)]
            # The server makes the application's, so no program has forgotten to await it.
            expected = (
                [] if kind is of_an_application else [f"coroutine '{name}' was never awaited"]
            )
            assert texts == expected

    run(main())


def test_a_coroutine_that_runs_says_so(run, pki):
    """Code inside a step, in the application and in a message that it sends, reads the state."""

    def seen_of(coroutine):
        again = {
            outcome(coroutine.send, None),
            outcome(coroutine.throw, asyncio.CancelledError()),
            outcome(coroutine.close),
        }
        return inspect.getcoroutinestate(coroutine), coroutine.cr_running, again

    refused = {(ValueError, "coroutine already executing")}
    expected = (inspect.CORO_RUNNING, True, refused)

    class Message(collections.abc.Mapping):
        """Reads the state of the coroutine that sends it."""

        def __getitem__(self, key):
            seen.append(seen_of(sending[0]))
            return {"type": "http.response.start", "status": 204}[key]

        def __iter__(self):
            return iter(())

        def __len__(self):
            return 0

    seen, sending = [], []

    async def app(scope, receive, send):
        seen.append(seen_of(asyncio.current_task().get_coro()))
        sending.append(send(Message()))
        await sending[0]
        await send({"type": "http.response.body"})

    async def main():
        async with serving(pki, app) as client:
            assert (await client.get("/")).status == 204

    run(main())
    assert len(seen) > 1
    assert all(one == expected for one in seen)
