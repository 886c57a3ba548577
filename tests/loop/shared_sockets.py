"""Loops in threads that share one socket, for the tests of the sharing."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from tests.loop.harness import PATIENCE, factory

Serve = Callable[["Worker"], Coroutine[Any, Any, None]]


class Worker:
    """A loop in a thread of its own, which a test can block."""

    def __init__(self, name: str, tag: bytes, sock: socket.socket) -> None:
        self.tag = tag
        self.sock = sock.dup()
        self.sock.setblocking(False)
        self.loop = factory(name)()
        self.served: list[bytes] = []
        self._held = threading.Event()
        self._goes_on = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def start(self, serve: Serve) -> None:
        """Run the loop; `serve` is done when this returns."""
        self._thread.start()
        self.do(serve(self))

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Waits for `work`, which runs on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE)

    @contextmanager
    def computing(self, *, then: Callable[[], Any] | None = None) -> Iterator[None]:
        """Blocks the loop meanwhile in one callback, which calls `then` at its end."""
        self._held.clear()
        self._goes_on.clear()

        def compute() -> None:
            self._held.set()
            assert self._goes_on.wait(PATIENCE)
            if then is not None:
                then()

        self.loop.call_soon_threadsafe(compute)
        assert self._held.wait(PATIENCE)
        try:
            yield
        finally:
            self._goes_on.set()

    def stop(self) -> None:
        self._goes_on.set()
        self.loop.call_soon_threadsafe(self._stop)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        self.loop.close()
        self.sock.close()

    def _stop(self) -> None:
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        ended = asyncio.gather(*tasks, return_exceptions=True)
        ended.add_done_callback(lambda _: self.loop.stop())


@contextmanager
def workers(name: str, sock: socket.socket, serve: Serve, count: int = 2) -> Iterator[list[Worker]]:
    """Starts `count` workers on one socket, in order."""
    made = [Worker(name, b"%d" % number, sock) for number in range(count)]
    try:
        for worker in made:
            worker.start(serve)
        yield made
    finally:
        for worker in made:
            worker.stop()
