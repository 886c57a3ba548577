"""uvicorn's lifespan protocol, with logged errors after start-up and a bounded shutdown.

Without ``--lifespan on`` uvicorn takes any exception of the application as a sign that it does not support
the protocol. Here an exception after a completed start-up is logged as an error. _server.py decides when an
application starts and ends.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.lifespan.on import LifespanOn

__all__ = ["Lifespan"]


class Lifespan(LifespanOn):
    """The lifespan of one application."""

    error_occurred: bool
    shutdown_failed: bool

    _task: asyncio.Task[Any] | None = None
    _is_abandoned = False
    _is_shutting_down = False
    _shutdown_seconds_max: float | None = None
    _overdue: asyncio.TimerHandle | None = None

    @property
    def is_running(self) -> bool:
        """True if the application has started and was not asked to shut down."""
        has_started = self.startup_event.is_set() and not self.startup_failed
        return has_started and not self.shutdown_event.is_set() and not self.error_occurred

    def abandon(self) -> None:
        """Cancels the application's lifespan task. Its errors are neither awaited nor logged afterwards."""
        if self._is_abandoned or self._task is None or self._task.done():
            return
        self._is_abandoned = True
        # With this flag set, `shutdown()`, which waits for the application, reports a failure.
        self.shutdown_failed = True
        self.startup_event.set()
        self.shutdown_event.set()
        self._task.cancel()

    def bound_shutdown(self, seconds: float) -> None:
        """Limits the application's shutdown to ``seconds``, from now on if it is under way. Without a limit
        it may take any time. The first call sets the limit, and later ones do nothing."""
        if self._shutdown_seconds_max is not None:
            return
        self._shutdown_seconds_max = seconds
        if self._is_shutting_down:
            self._watch_time()

    async def shutdown(self) -> None:
        """Sends the shutdown event to the application, and waits for its completion or the time limit."""
        self._is_shutting_down = True
        if self._shutdown_seconds_max is not None:
            self._watch_time()
        try:
            await super().shutdown()
        finally:
            self._is_shutting_down = False
            if self._overdue is not None:
                self._overdue.cancel()

    def _watch_time(self) -> None:
        loop = asyncio.get_running_loop()
        self._overdue = loop.call_later(self._shutdown_seconds_max or 0, self._time_out)

    def _time_out(self) -> None:
        self.logger.error(
            "Application shutdown takes more than %g seconds and is cancelled",
            self._shutdown_seconds_max,
        )
        self.abandon()

    async def main(self) -> None:
        """Runs the application for the scope ``lifespan``."""
        self._task = task = asyncio.current_task()
        assert task is not None
        scope: Any = {
            "type": "lifespan",
            "asgi": {"version": self.config.asgi_version, "spec_version": "2.0"},
            "state": self.state,
        }
        app: Any = self.config.loaded_app
        try:
            await app(scope, self.receive, self.send)
        except KeyboardInterrupt:
            # The handler of a second SIGINT raises this in the running task, if the application blocks the
            # loop.
            self.error_occurred = True
            task.add_done_callback(asyncio.Task.exception)
            raise
        except BaseException as exc:  # noqa: BLE001 - as in uvicorn; the server continues
            self._failed(exc)
        finally:
            self.startup_event.set()
            self.shutdown_event.set()

    async def send(self, message: Any) -> None:
        """Handles a message of the application."""
        if not self._is_abandoned:
            await super().send(message)

    def _failed(self, error: BaseException) -> None:
        had_started = self.startup_event.is_set()
        has_said_so = self.startup_failed or self.shutdown_failed
        self.error_occurred = True
        # A forced stop cancels this task when it closes the loop.
        is_cancelled = isinstance(error, asyncio.CancelledError)
        if has_said_so or (is_cancelled and had_started):
            return
        if had_started or self.config.lifespan != "auto":
            self.shutdown_failed = had_started
            self.logger.error("Exception in 'lifespan' protocol\n", exc_info=error)
        else:
            self.logger.info("ASGI 'lifespan' protocol appears unsupported.")
