"""An ASGI application that relies on what ASGI promises: one path for each promise."""

import asyncio
import contextvars
import functools
import gc
import inspect
import warnings

import anyio

from tests.server.application import answer, lifespan

VALUE = contextvars.ContextVar("value", default="nobody's")
GATES = {}
SENT = {"to nobody": 0, "disconnect": False}


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await lifespan(scope, receive, send)
    else:
        await ROUTES[scope["path"]](scope, receive, send)


async def hello(scope, receive, send):
    await answer(send, b"hello")


async def tasks(scope, receive, send):
    """Calls `receive` and `send` in tasks of their own; a cancelled call loses no data."""
    body = b""
    more_body = True
    while more_body:
        impatient = asyncio.ensure_future(receive())
        await asyncio.sleep(0)
        if impatient.cancel():
            await asyncio.gather(impatient, return_exceptions=True)
            assert impatient.cancelled()
            message = await asyncio.wait_for(asyncio.create_task(receive()), 20)
        else:
            message = impatient.result()
        assert message["type"] == "http.request", message
        body += message["body"]
        more_body = message["more_body"]
    # After the body, `receive` returns only the disconnect.
    try:
        await asyncio.wait_for(receive(), 0.01)
    except (TimeoutError, asyncio.TimeoutError):
        pass
    else:
        raise AssertionError("a message after the body")
    start = {"type": "http.response.start", "status": 200, "headers": []}
    await asyncio.create_task(send(start))
    await asyncio.create_task(send({"type": "http.response.body", "body": body}))


async def looked_at(scope, receive, send):
    """Records the state of `receive`'s coroutine as `inspect`, anyio and asyncio's debug mode see it."""
    await receive()
    waiting = receive()
    assert asyncio.iscoroutine(waiting)
    assert inspect.iscoroutine(waiting)
    assert inspect.isawaitable(waiting)
    states = [inspect.getcoroutinestate(waiting)]
    task = asyncio.ensure_future(waiting)
    await asyncio.sleep(0)
    states.append(inspect.getcoroutinestate(waiting))
    assert "Request.receive()" in repr(task), task
    assert len(task.get_stack()) == 1
    assert isinstance(waiting.cr_await, type(iter(asyncio.get_running_loop().create_future())))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    states.append(inspect.getcoroutinestate(waiting))
    assert (waiting.cr_frame, waiting.cr_code, waiting.cr_origin) == (None, None, None)
    async with anyio.create_task_group() as group:
        group.start_soon(receive)
        await anyio.sleep(0)
        group.cancel_scope.cancel()
    await answer(send, states)


async def forgets(scope, receive, send):
    """Python warns about a coroutine that is never awaited."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        send({"type": "http.response.start", "status": 500, "headers": []})
        receive()
        receive().close()
        try:
            # An exception is on its way.
            raise KeyError(receive())
        except KeyError as exc:
            exc.args = ()
    await answer(send, [[warning.category.__name__, str(warning.message)] for warning in seen])


async def changes_its_scope(scope, receive, send):
    seen = dict(scope["asgi"])
    scope["asgi"]["changed"] = True
    await answer(send, seen)


async def current(scope, receive, send):
    """Checks the current task and its stack before and after an await."""
    seen = []
    for _ in range(2):
        task = asyncio.current_task()
        seen.append(task.get_name())
        seen.append([frame.f_code.co_name for frame in task.get_stack()][-1:])
        await asyncio.sleep(0)
    async with asyncio.Lock():
        await answer(send, seen)


async def task_class(scope, receive, send):
    await answer(send, type(asyncio.current_task()).__name__.encode())


async def fails_between(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-a", b"b")]})
    raise RuntimeError("between the head and the body")


async def fails_later(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-a", b"b")]})
    await asyncio.sleep(0.05)
    raise RuntimeError("when the head has left")


async def head_first(scope, receive, send):
    """Sends the body once the test has read the head."""
    gate = GATES["head-first"] = asyncio.Event()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-a", b"b")]})
    await gate.wait()
    await send({"type": "http.response.body", "body": b"body"})


async def open_gate(scope, receive, send):
    GATES["head-first"].set()
    await answer(send, b"open")


async def sends_on(scope, receive, send):
    """Continues to send after the client has left, and never checks."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while not SENT["disconnect"]:
        await send({"type": "http.response.body", "body": b"x" * 1024, "more_body": True})
        SENT["to nobody"] += 1


async def head_for_ever(scope, receive, send):
    """Sends endless content, which a HEAD response leaves out."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while True:
        await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})


async def asks_often(scope, receive, send):
    """Like Starlette's `request.is_disconnected()`: cancels a `receive` at once, many times."""
    await receive()
    for _ in range(2_000):
        waiting = asyncio.ensure_future(receive())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    gc.collect()
    futures = sum(type(one) is asyncio.Future for one in gc.get_objects())
    await answer(send, futures)


async def works_on(scope, receive, send):
    """A background task: the application continues after its response is complete."""
    await answer(send, b"answered")
    SENT["at work"] = SENT.get("at work", 0) + 1
    try:
        await GATES.setdefault("works-on", asyncio.Event()).wait()
    finally:
        SENT["at work"] -= 1


async def release_workers(scope, receive, send):
    GATES["works-on"].set()
    await answer(send, SENT)


async def cancels_itself(scope, receive, send):
    """The task was not cancelled from outside, so this is an ordinary failure."""
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


async def other_thread(scope, receive, send):
    """Sends from a loop of another thread, which must raise an error."""

    async def attempt():
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x"})

    await asyncio.to_thread(asyncio.run, attempt())


async def large_hint(scope, receive, send):
    await send({"type": "http.response.early_hint", "links": [b"</x>; rel=preload" + b"x" * 600]})
    await answer(send, b"final")


async def drops_frames(scope, receive, send):
    """Sends frames of a quarter megabyte to a client that reads none, and drops those that `send` does not
    accept in time.
    """
    await send({"type": "http.response.start", "status": 200, "headers": []})
    dropped = 0
    while dropped < 100:
        frame = {"type": "http.response.body", "body": bytes(1 << 18), "more_body": True}
        try:
            await asyncio.wait_for(send(frame), 0.001)
        except (TimeoutError, asyncio.TimeoutError):
            dropped += 1
    SENT["dropped"] = dropped
    await receive()


async def stop_sending(scope, receive, send):
    SENT["disconnect"] = True
    await answer(send, SENT)


async def context(scope, receive, send):
    before = VALUE.get()
    VALUE.set("mine")
    await asyncio.sleep(0)
    await answer(send, [before, VALUE.get()])


def a_future(scope, receive, send):
    """Returns an awaitable that is not a coroutine."""
    return asyncio.ensure_future(answer(send, b"future"))


class Awaitable:
    def __init__(self, send):
        self.send = send

    def __await__(self):
        return answer(self.send, b"awaitable").__await__()


def an_awaitable(scope, receive, send):
    return Awaitable(send)


def not_awaitable(scope, receive, send):
    return 7


def raises_at_once(scope, receive, send):
    raise RuntimeError("before there is anything to await")


async def exits(scope, receive, send):
    raise SystemExit(3)


async def strange_messages(scope, receive, send):
    """An invalid message raises an error in the application, which may catch it."""
    seen = []
    for message in (
        {"type": "http.response.body"},
        {"type": "http.response.start"},
        {"type": "http.response.start", "status": 42},
        {"type": "http.response.start", "status": 200, "headers": [(b"one",)]},
        {"type": "http.response.start", "status": 200, "headers": [(b"a", b"b", b"c")]},
        {"type": "http.response.start", "status": 200, "headers": [("text", b"b")]},
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"x")]},
        {"type": "http.response.start", "status": 200, "headers": 5},
        {},
        7,
    ):
        try:
            await send(message)
        except (KeyError, RuntimeError, TypeError, ValueError) as exc:
            seen.append(type(exc).__name__)
    lazy = ((name, value) for name, value in [(bytearray(b"X-Lazy"), memoryview(b"yes"))])
    await send({"type": "http.response.start", "status": 200, "headers": lazy})
    try:
        await send({"type": "http.response.body", "body": "text"})
    except TypeError as exc:
        seen.append(type(exc).__name__)
    await send({"type": "http.response.body", "body": bytearray(b" ".join(map(str.encode, seen)))})
    try:
        await send({"type": "http.response.body", "body": b""})
    except RuntimeError:
        SENT["after the end"] = True


ROUTES = {
    "/": hello,
    "/asks-often": asks_often,
    "/cancels-itself": cancels_itself,
    "/drops-frames": drops_frames,
    "/head-for-ever": head_for_ever,
    "/large-hint": large_hint,
    "/other-thread": other_thread,
    "/release-workers": release_workers,
    "/works-on": works_on,
    "/a-future": a_future,
    "/an-awaitable": an_awaitable,
    "/changes-its-scope": changes_its_scope,
    "/context": context,
    "/current": current,
    "/exits": exits,
    "/fails-between": fails_between,
    "/fails-later": fails_later,
    "/forgets": forgets,
    "/head-first": head_first,
    "/looked-at": looked_at,
    "/not-awaitable": not_awaitable,
    "/open-gate": open_gate,
    "/partial": functools.partial(hello),
    "/raises-at-once": raises_at_once,
    "/sends-on": sends_on,
    "/stop-sending": stop_sending,
    "/strange-messages": strange_messages,
    "/task-class": task_class,
    "/tasks": tasks,
}


async def with_factory(scope, receive, send):
    """Like `app`, on a loop with a task factory of the program."""
    if scope["type"] == "lifespan":
        asyncio.get_running_loop().set_task_factory(programs_task)
    await app(scope, receive, send)


class ProgramsTask(asyncio.Task):
    """The task class of that task factory."""


def programs_task(loop, coroutine, **options):
    return ProgramsTask(coroutine, loop=loop, **options)
