"""``Server.serve()`` in a program's own loop, cancelled by asyncio and by anyio."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
import types

import anyio
import pytest
import uvicorn

from tests.loop.harness import rounds
from tests.server.harness import until
from tests.support.free_ports import free_port
from uringcore.http3._unpooled_connection import connect as connect_origin
from uringcore.server import Config, Server


class Application:
    """An application that records its lifespan events."""

    def __init__(self):
        self.seen = []
        self.asked = asyncio.Event()
        self.started = asyncio.Event()
        self.may_start = asyncio.Event()
        self.may_start.set()

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            try:
                await receive()
                self.started.set()
                await self.may_start.wait()
                await send({"type": "lifespan.startup.complete"})
                self.seen.append((await receive())["type"])
                await send({"type": "lifespan.shutdown.complete"})
            finally:
                self.seen.append("ended")
            return
        self.asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.seen.append("request ended")


def can_bind(port):
    with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tcp.bind(("127.0.0.1", port))
            tcp.listen()
            udp.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def server_of(application, certificate, port, **options):
    config = Config(
        application,
        port=port,
        log_config=None,
        ssl_certfile=certificate[0],
        ssl_keyfile=certificate[1],
        **options,
    )
    return Server(config)


def test_serve_that_is_cancelled_stops_serving(run, certificate):
    async def main():
        application, port = Application(), free_port()
        server = server_of(application, certificate, port)
        serving = asyncio.create_task(server.serve())
        await until(lambda: server.started)
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        assert not can_bind(port)
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        assert application.seen == ["lifespan.shutdown", "ended"]
        assert can_bind(port)
        writer.close()

    run(main())


def test_serve_that_is_cancelled_twice_stops_at_once(run, certificate):
    async def main():
        application, port = Application(), free_port()
        server = server_of(application, certificate, port)
        serving = asyncio.create_task(server.serve())
        await until(lambda: server.started)
        url = f"https://localhost:{port}"
        async with connect_origin(url, cafile=certificate[0]) as client:
            asking = asyncio.create_task(client.get("/"))
            await application.asked.wait()
            serving.cancel()
            await until(lambda: not server.server_state.tasks or server._listener.service.stopping)
            assert not serving.done()
            serving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await serving
            await asyncio.gather(asking, return_exceptions=True)
        await until(lambda: "ended" in application.seen)
        assert sorted(application.seen) == ["ended", "request ended"]
        assert can_bind(port)

    run(main())


def test_serve_in_a_cancelled_scope_of_anyio_leaves_nothing_behind(run, certificate):
    """anyio repeats the cancellation at each ``await``."""

    async def main():
        application, port = Application(), free_port()
        server = server_of(application, certificate, port, timeout_graceful_shutdown=1)
        url = f"https://localhost:{port}"
        async with contextlib.AsyncExitStack() as clients:
            async with anyio.create_task_group() as group:
                group.start_soon(server.serve)
                await until(lambda: server.started)
                connecting = connect_origin(url, cafile=certificate[0])
                client = await clients.enter_async_context(connecting)
                asking = asyncio.create_task(client.get("/"))
                await application.asked.wait()
                group.cancel_scope.cancel()
            assert can_bind(port)
            assert application.seen == ["request ended", "lifespan.shutdown", "ended"]
            await asyncio.gather(asking, return_exceptions=True)

    run(main())


class Unhurried(Application):
    """Takes many turns of the loop for a request and for its shutdown."""

    async def __call__(self, scope, receive, send):
        if scope["type"] != "lifespan":
            self.asked.set()
            await self.take_turns()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"the end"})
            self.seen.append("answered")
            return
        await receive()
        await send({"type": "lifespan.startup.complete"})
        self.seen.append((await receive())["type"])
        await self.take_turns()
        self.seen.append("shut down")
        await send({"type": "lifespan.shutdown.complete"})

    async def take_turns(self):
        for _ in range(50):
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("scope", ["of a task group", "of the task", "with a deadline"])
def test_serve_in_a_cancelled_scope_of_anyio_stops_gracefully(run, certificate, scope):
    """The scope repeats its cancellation in each turn; the server treats it as one."""

    async def main():
        application, port = Unhurried(), free_port()
        server = server_of(application, certificate, port)
        url = f"https://localhost:{port}"
        client = None

        async def serve(cancel_scope):
            with cancel_scope:
                await server.serve()

        async with contextlib.AsyncExitStack() as clients:
            async with anyio.create_task_group() as group:
                inner = group.cancel_scope
                if scope == "of a task group":
                    group.start_soon(server.serve)
                else:
                    inner = anyio.CancelScope()
                    group.start_soon(serve, inner)
                await until(lambda: server.started)
                connecting = connect_origin(url, cafile=certificate[0])
                client = await clients.enter_async_context(connecting)
                asking = asyncio.create_task(client.get("/"))
                await application.asked.wait()
                if scope == "with a deadline":
                    inner.deadline = anyio.current_time()
                else:
                    inner.cancel()
            assert (await asking).content == b"the end"
        assert application.seen == ["answered", "lifespan.shutdown", "shut down"]
        assert can_bind(port)

    run(main())


def test_a_scope_of_anyio_cancelled_in_the_middle_of_a_stop_lets_it_go_on(run, certificate):
    async def main():
        application, port = Unhurried(), free_port()
        server = server_of(application, certificate, port)
        async with anyio.create_task_group() as group:
            group.start_soon(server.serve)
            await until(lambda: server.started)
            server.should_exit = True
            await until(lambda: application.seen)
            group.cancel_scope.cancel()
        assert application.seen == ["lifespan.shutdown", "shut down"]
        assert can_bind(port)

    run(main())


def test_a_start_up_in_a_cancelled_scope_of_anyio_ends_the_application(run, certificate):
    """The cancellation comes after the application's start and before the server's."""

    async def main():
        application, port = Unhurried(), free_port()
        server = server_of(application, certificate, port, metrics_port=free_port())
        metrics_port = server.config.metrics_port

        async with anyio.create_task_group() as group:

            async def cancelled(*_):
                group.cancel_scope.cancel()
                await asyncio.sleep(0)

            # Cancel after everything else has started.
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("uringcore.server._server.MetricsPort.start", cancelled)
                group.start_soon(server.serve)
                await asyncio.Event().wait()
        assert application.seen == ["lifespan.shutdown", "shut down"]
        assert can_bind(port) and can_bind(metrics_port)

    run(main())


class Hangs(Application):
    """An application whose shutdown never ends."""

    async def __call__(self, scope, receive, send):
        await receive()
        await send({"type": "lifespan.startup.complete"})
        self.seen.append((await receive())["type"])
        try:
            await asyncio.Event().wait()
        finally:
            self.seen.append("cancelled")


@pytest.mark.parametrize("how", ["scope of anyio", "Task.cancel"])
def test_the_shutdown_of_a_cancelled_servers_application_is_bounded(
    run, certificate, monkeypatch, caplog, how
):
    """After the cancellation, no further signal may come that could end it."""
    monkeypatch.setattr("uringcore.server._server.LIFESPAN_SECONDS_MIN", 0.05)

    async def main():
        application, port = Hangs(), free_port()
        server = server_of(application, certificate, port, timeout_graceful_shutdown=0)
        if how == "Task.cancel":
            serving = asyncio.create_task(server.serve())
            await until(lambda: server.started)
            serving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await serving
        else:
            async with anyio.create_task_group() as group:
                group.start_soon(server.serve)
                await until(lambda: server.started)
                group.cancel_scope.cancel()
        assert can_bind(port)
        await until(lambda: application.seen == ["lifespan.shutdown", "cancelled"])

    with caplog.at_level(logging.ERROR, "uvicorn.error"):
        run(main())
    assert "Application shutdown takes more than 0.05 seconds and is cancelled" in caplog.text


MIDDLE_OF_A_STOP = ["cancelled task group", "deadline", "failing sibling"]


@pytest.mark.parametrize("how", MIDDLE_OF_A_STOP)
@pytest.mark.parametrize("application_class", [Hangs, Unhurried])
def test_a_scope_of_anyio_cancelled_in_the_middle_of_a_stop_bounds_the_applications_shutdown(
    run, certificate, monkeypatch, caplog, how, application_class
):
    hangs = application_class is Hangs
    monkeypatch.setattr("uringcore.server._server.LIFESPAN_SECONDS_MIN", 0.05 if hangs else 600)

    async def stop(server, application, group):
        await until(lambda: server.started)
        server.should_exit = True
        await until(lambda: application.seen)
        if how == "failing sibling":
            raise LookupError("a sibling's fault")
        if how == "deadline":
            group.cancel_scope.deadline = anyio.current_time()
        else:
            group.cancel_scope.cancel()

    async def main():
        application, port = application_class(), free_port()
        server = server_of(application, certificate, port, timeout_graceful_shutdown=0)
        faults = []
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(server.serve)
                group.start_soon(stop, server, application, group)
        except BaseException as exc:  # an exception group, which CPython 3.10 lacks
            faults = getattr(exc, "exceptions", [exc])
        assert [type(fault) for fault in faults] == [LookupError] * (how == "failing sibling")
        assert can_bind(port)
        end = "cancelled" if hangs else "shut down"
        await until(lambda: application.seen == ["lifespan.shutdown", end])

    with caplog.at_level(logging.ERROR, "uvicorn.error"):
        run(main())
    said = "Application shutdown takes more than 0.05 seconds and is cancelled"
    assert (said in caplog.text) == hangs


def test_task_cancel_in_the_middle_of_a_stop_stops_at_once(run, certificate, monkeypatch, caplog):
    """Cancels outside of every scope and in a cancelled scope."""
    monkeypatch.setattr("uringcore.server._server.LIFESPAN_SECONDS_MIN", 600)

    async def stop(cancels_scope):
        application, port = Hangs(), free_port()
        server = server_of(application, certificate, port)
        scope = anyio.CancelScope()

        async def serve():
            with scope:
                await server.serve()

        serving = asyncio.create_task(serve())
        await until(lambda: server.started)
        server.should_exit = True
        await until(lambda: application.seen)
        if cancels_scope:
            scope.cancel()
            await rounds(20)
            assert not serving.done()
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        assert can_bind(port)
        await until(lambda: application.seen == ["lifespan.shutdown", "cancelled"])

    async def main():
        await stop(False)
        await stop(True)

    with caplog.at_level(logging.ERROR, "uvicorn.error"):
        run(main())
    assert "Application shutdown takes more" not in caplog.text


def test_task_cancel_as_soon_as_a_stop_begins_closes_the_ports(run, certificate, monkeypatch):
    async def main():
        application, port = Application(), free_port()
        server = server_of(application, certificate, port)
        serving = asyncio.create_task(server.serve())
        await until(lambda: server.started)
        shutdown = server.shutdown

        def cancelled(sockets):
            # This callback runs before the tasks that shutdown() creates.
            asyncio.get_running_loop().call_soon(serving.cancel)
            return shutdown(sockets)

        monkeypatch.setattr(server, "shutdown", cancelled)
        server.should_exit = True
        with pytest.raises(asyncio.CancelledError):
            await serving
        assert can_bind(port)

    run(main())


def test_a_scope_of_anyio_does_not_keep_task_cancel_from_stopping_at_once(run, certificate):
    async def main():
        application, port = Application(), free_port()
        server = server_of(application, certificate, port)
        url = f"https://localhost:{port}"

        async def serve():
            with anyio.CancelScope():
                await server.serve()

        serving = asyncio.create_task(serve())
        await until(lambda: server.started)
        async with connect_origin(url, cafile=certificate[0]) as client:
            asking = asyncio.create_task(client.get("/"))
            await application.asked.wait()
            serving.cancel()
            await until(lambda: server._listener.service.stopping)
            assert not serving.done()
            serving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await serving
            await asyncio.gather(asking, return_exceptions=True)
        await until(lambda: len(application.seen) == 2)
        assert sorted(application.seen) == ["ended", "request ended"]

    run(main())


@pytest.mark.parametrize("how", ["http_app", "run_http_async"])
def test_fastmcp_in_a_cancelled_scope_of_anyio_shuts_down(run, certificate, monkeypatch, how):
    """FastMCP's lifespan completes, including an await in it."""
    fastmcp = pytest.importorskip("fastmcp")
    seen, port = [], free_port()

    @contextlib.asynccontextmanager
    async def lifespan(_):
        seen.append("started")
        try:
            yield {}
        finally:
            await asyncio.sleep(0.01)
            seen.append("shut down")

    tested = fastmcp.FastMCP("tested", lifespan=lifespan)
    servers = []

    def make_server(config):
        servers.append(Server(config))
        return servers[-1]

    def make_config(app, **options):
        options |= {"ssl_certfile": certificate[0], "ssl_keyfile": certificate[1]}
        options.pop("log_level", None)
        return Config(app, log_config=None, **options)

    if how == "run_http_async":
        # `run_http_async` gives no other way to choose the server.
        module = sys.modules[fastmcp.FastMCP.run_http_async.__module__]
        uvicorn_like = types.SimpleNamespace(Config=make_config, Server=make_server)
        monkeypatch.setattr(module, "uvicorn", uvicorn_like)

    async def main():
        async with anyio.create_task_group() as group:
            if how == "http_app":
                server = make_server(make_config(tested.http_app(), port=port))
                group.start_soon(server.serve)
            else:
                options = {"host": "127.0.0.1", "port": port, "show_banner": False}
                group.start_soon(lambda: tested.run_http_async(**options))
            await until(lambda: servers and servers[0].started)
            group.cancel_scope.cancel()
        assert seen == ["started", "shut down"]
        assert can_bind(port)

    run(main())


@pytest.mark.parametrize("how", ["replaced handle_exit", "should_exit"])
def test_endless_responses_end_when_serve_is_cancelled(run, certificate, monkeypatch, how):
    """sse-starlette 2 replaces ``handle_exit``; sse-starlette 3 polls ``should_exit``."""
    signals = []
    original = uvicorn.Server.handle_exit

    def replacement(self, sig, frame):
        signals.append(sig)
        original(self, sig, frame)

    monkeypatch.setattr(uvicorn.Server, "handle_exit", replacement)
    asked = asyncio.Event()
    ends = []

    async def application(scope, receive, send):
        if scope["type"] == "lifespan":
            raise LookupError("none here")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        asked.set()
        await until(lambda: signals if how == "replaced handle_exit" else server.should_exit)
        await send({"type": "http.response.body", "body": b"the end"})
        ends.append("sent")

    server = server_of(application, certificate, free_port())

    async def main():
        serving = asyncio.create_task(server.serve())
        await until(lambda: server.started)
        url = f"https://localhost:{server.config.port}"
        async with connect_origin(url, cafile=certificate[0]) as client:
            asking = asyncio.create_task(client.get("/"))
            await asked.wait()
            serving.cancel()
            assert (await asking).content == b"the end"
        with pytest.raises(asyncio.CancelledError):
            await serving
        assert ends == ["sent"] and signals == [signal.SIGTERM]

    run(main())


def test_a_replaced_handle_exit_is_called_when_the_terminal_is_gone(certificate, monkeypatch):
    signals = []
    monkeypatch.setattr(uvicorn.Server, "handle_exit", lambda self, sig, frame: signals.append(sig))
    monkeypatch.setattr("uringcore.server._server.has_terminal", lambda: True)
    server = server_of(Application(), certificate, 0)
    monkeypatch.setattr("uringcore.server._server.has_terminal", lambda: False)
    server._hang_up(signal.SIGHUP, None)
    assert signals == [signal.SIGTERM]


def test_a_server_serves_again_after_a_cancellation(run, certificate):
    async def main():
        application, port = Application(), free_port()
        server = server_of(application, certificate, port)
        for _ in range(2):
            application.started.clear()
            serving = asyncio.create_task(server.serve())
            await application.started.wait()
            url = f"https://localhost:{port}"
            await until(lambda: not can_bind(port))
            # Connect without a request: this application would not answer it.
            async with connect_origin(url, cafile=certificate[0]):
                pass
            serving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await serving
        serving = asyncio.create_task(server.serve())
        await until(lambda: not can_bind(port))
        server.should_exit = True
        await serving

    run(main())


def test_serve_that_is_cancelled_in_its_start_up_leaves_nothing_behind(run, certificate):
    async def main():
        application, port = Application(), free_port()
        application.may_start.clear()
        serving = asyncio.create_task(server_of(application, certificate, port).serve())
        await application.started.wait()
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        await until(lambda: application.seen == ["ended"])
        assert can_bind(port)

    run(main())


def test_an_error_in_the_servers_loop_stops_it(run, certificate):
    """The exception comes from `callback_notify`, which belongs to the program."""

    async def main():
        application, port = Application(), free_port()
        server = server_of(application, certificate, port)

        async def fails():
            raise LookupError("a program's fault")

        server.config.callback_notify = fails
        with pytest.raises(LookupError, match="a program's fault"):
            await server.serve()
        assert application.seen == ["lifespan.shutdown", "ended"]
        assert can_bind(port)

    run(main())
