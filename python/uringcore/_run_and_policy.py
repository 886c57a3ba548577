"""Ways to make asyncio use this loop: ``run``, ``new_event_loop``, ``install``, the policy."""

from __future__ import annotations

import asyncio
import sys
import warnings
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ._loop import UringEventLoop

if TYPE_CHECKING:

    class EventLoopPolicy(asyncio.DefaultEventLoopPolicy):
        """The policy class as type checkers see it; :func:`_policy_class` makes the real one."""


_T = TypeVar("_T")


def has_policies() -> bool:
    """True if this CPython has event loop policies; 3.15 is the last version that does."""
    return hasattr(asyncio, "set_event_loop_policy")


def new_event_loop(
    backend: Literal["uring", "epoll"] | None = None, *, busy_poll_us: int | None = None
) -> UringEventLoop:
    """Make an event loop: a factory for ``asyncio.run(..., loop_factory=...)`` and similar functions.

    Args:
        backend: ``"uring"``, ``"epoll"``, or ``None`` for the default choice.
        busy_poll_us: microseconds of polling before the loop sleeps, see
            :class:`UringEventLoop`.
    """
    return UringEventLoop(backend, busy_poll_us=busy_poll_us)


def run(
    main: Coroutine[Any, Any, _T],
    *,
    debug: bool | None = None,
    backend: Literal["uring", "epoll"] | None = None,
    busy_poll_us: int | None = None,
) -> _T:
    """Run a coroutine on a new loop and close it: ``asyncio.run`` on this package's loop.

    Args:
        main: the coroutine to run.
        debug: asyncio's debug mode; ``None`` uses the environment.
        backend: ``"uring"``, ``"epoll"``, or ``None`` for the default choice.
        busy_poll_us: microseconds of polling before the loop sleeps, see
            :class:`UringEventLoop`.

    Raises:
        RuntimeError: another loop is running in this thread; as with ``asyncio.run``, runs do not nest.
        ValueError: ``main`` is not a coroutine, ``backend`` is unknown, or ``busy_poll_us`` is out of
            range.
    """

    if asyncio._get_running_loop() is not None:
        raise RuntimeError("uringcore.run() cannot be called from a running event loop")

    def make_loop() -> UringEventLoop:
        return new_event_loop(backend, busy_poll_us=busy_poll_us)

    if sys.version_info >= (3, 11):
        with asyncio.Runner(debug=debug, loop_factory=make_loop) as runner:
            return runner.run(main)
    return _run_without_runner(main, debug, make_loop)


def _run_without_runner(
    main: Coroutine[Any, Any, _T], debug: bool | None, make_loop: Callable[[], UringEventLoop]
) -> _T:
    """Works as CPython 3.10's ``asyncio.run``, which has neither a Runner nor a loop factory."""
    if not asyncio.iscoroutine(main):
        raise ValueError(f"a coroutine was expected, got {main!r}")
    loop = make_loop()
    try:
        asyncio.set_event_loop(loop)
        if debug is not None:
            loop.set_debug(debug)
        return loop.run_until_complete(main)
    finally:
        try:
            _cancel_all_tasks(loop)
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            asyncio.set_event_loop(None)
            loop.close()


def _cancel_all_tasks(loop: UringEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    for task in tasks:
        if not task.cancelled() and task.exception() is not None:
            loop.call_exception_handler(
                {
                    "message": "unhandled exception during uringcore.run() shutdown",
                    "exception": task.exception(),
                    "task": task,
                }
            )


def install() -> None:
    """Make every new asyncio loop of this process one of ours, through the event loop policy.

    asyncio deprecates policies in 3.14 and removes them in 3.16: prefer :func:`run` or a
    ``loop_factory``.

    Raises:
        RuntimeError: this CPython has no policies. The message names the alternative.
    """
    if not has_policies():
        raise RuntimeError(_NO_POLICIES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        asyncio.set_event_loop_policy(_policy_class()())


_NO_POLICIES = (
    "CPython 3.16 and later have no event loop policies: "
    "write uringcore.run(main()) or asyncio.run(main(), loop_factory=uringcore.new_event_loop)"
)

_policy: type[Any] | None = None


def _policy_class() -> type[Any]:
    """Make the policy class on first use, because a reference to asyncio's base class warns on 3.14.

    Raises:
        AttributeError: this CPython has no policies.
    """
    global _policy
    if not has_policies():
        raise AttributeError(f"uringcore has no EventLoopPolicy: {_NO_POLICIES}")
    if _policy is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            base: Any = asyncio.DefaultEventLoopPolicy

        class EventLoopPolicy(base):  # type: ignore[misc]
            """asyncio's default policy, except that it makes :class:`UringEventLoop`."""

            _loop_factory = UringEventLoop
            # True if get_child_watcher() has made a default watcher. Our loops wait for children themselves,
            # and use a watcher only if the program has set it. CPython 3.14 removed child watchers.
            _watcher_is_default = False

            def _init_watcher(self) -> None:
                super()._init_watcher()
                self._watcher_is_default = True

            def set_child_watcher(self, watcher: Any) -> None:
                """Sets asyncio's child watcher (CPython 3.10 to 3.13)."""
                self._watcher_is_default = False
                super().set_child_watcher(watcher)

        if sys.version_info >= (3, 14):
            del EventLoopPolicy._init_watcher, EventLoopPolicy.set_child_watcher
        EventLoopPolicy.__module__ = "uringcore"
        EventLoopPolicy.__qualname__ = "EventLoopPolicy"
        _policy = EventLoopPolicy
    return _policy
