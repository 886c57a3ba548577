"""Calls all native code with odd arguments, in a process that may crash.

    python -m tests.extension.odd_calls made|settings|alive PART PARTS SEED

``made`` calls the extension's functions and classes, ``settings`` the callables with many
arguments, with one odd and the others valid, ``alive`` the methods of a running program's objects:
a server and its clients in one process. The process prints each name before the call, so the last
line names the call that crashed it.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import enum
import faulthandler
import fcntl
import gc
import inspect
import logging
import operator
import os
import pickle
import random
import resource
import sys
import threading
from collections.abc import Callable, Iterator
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    GetSetDescriptorType,
    MethodDescriptorType,
)
from typing import Any

import uringcore
from tests.extension.live_objects import living
from tests.extension.many_arguments import Settings, all_settings
from tests.extension.odd_values import odd_values
from uringcore import _uringcore

HANGS_AFTER_SECONDS = 200
"""Time limit for all calls of one callable, which take a second at most."""
ADDRESS_SPACE = 6 << 30
"""The limit of the address space, so that an absurdly large allocation fails on any machine."""
RANDOM_CALLS = 60

WAITS = {"_run_once", "_run_until_stopped", "_wait_until_ready", "finish", "recv"}
"""Methods that are meant to wait for the kernel or for a thread."""
ENDS = {"_core_close", "close", "abort", "detach", "stop", "_after_fork_in_child", "_before_fork"}
"""Methods that are called last, because a closed object reveals few faults."""
TAKES_A_DESCRIPTOR = {
    *("file_close", "file_truncate", "file_write", "file_sync"),
    # A draining endpoint closes its borrowed sockets.
    *("add_socket", "drain"),
}

MESSAGES: list[dict[str, Any]] = [
    {"type": "http.response.debug", "info": {}},
    {"type": "http.response.early_hint", "links": [b"a"]},
    {"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")], "trailers": True},
    {"type": "http.response.body", "body": b"a", "more_body": True},
    {
        "type": "http.response.zerocopysend",
        "file": None,
        "offset": 0,
        "count": 1,
        "more_body": True,
    },
    {"type": "http.response.pathsend", "path": "/nowhere"},
    {"type": "http.response.trailers", "headers": [(b"a", b"b")], "more_trailers": True},
]

OUTPUT = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 500)


def say(text: str) -> None:
    os.write(OUTPUT, text.encode("ascii", "backslashreplace") + b"\n")


class Caller:
    """Makes the calls and checks for panics."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.live: list[Any] = [None]
        self.calls = 0
        self._depth = 0
        self._last: Callable[[], Any] = lambda: None
        self._values = odd_values(self._again)
        self._makers = list(self._values.values())
        sys.unraisablehook = self._unraisable
        threading.excepthook = self._unraisable

    def _again(self) -> None:
        if self._depth < 2:
            self._depth += 1
            try:
                self._last()
            finally:
                self._depth -= 1

    def _unraisable(self, found: Any) -> None:
        self.look(found.exc_value)

    def look(self, error: BaseException | None) -> None:
        """Ends the process if a panic is among an error's causes."""
        while error is not None:
            if type(error).__name__ == "PanicException":
                say(f"panic: {error!s:.300}")
                os._exit(3)
            error = error.__cause__ or error.__context__

    def call(self, run: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Any exception is allowed."""
        self.calls += 1
        self._last = lambda: run(*args, **kwargs)
        try:
            self.step(run(*args, **kwargs))
        except BaseException as exc:
            self.look(exc)

    def step(self, result: Any) -> None:
        """An awaitable does no work before its first step."""
        if not hasattr(result, "send") or not hasattr(result, "close") or hasattr(result, "fileno"):
            return
        if is_ours(type(result)):
            with contextlib.suppress(StopIteration):
                result.send(None)
            result.close()

    def odd_values(self) -> Iterator[Any]:
        return (make() for make in self._makers)

    def one(self) -> Any:
        """Return an odd value, or sometimes a valid object of the program."""
        if self.random.random() < 0.25:
            return self.random.choice(self.live)
        return self.random.choice(self._makers)()

    def try_all(self, name: str, run: Callable[..., Any]) -> None:
        """Call with every odd value at every position, then with some at random."""
        say(name)
        faulthandler.dump_traceback_later(HANGS_AFTER_SECONDS, exit=True)
        positional, keywords = places(run)
        self.call(run)
        for place in range(positional):
            for make in self._makers:
                args = [self.one() for _ in range(positional)]
                args[place] = make()
                self._guarded(name, run, args, {key: self.one() for key in keywords})
        for key in keywords:
            for make in self._makers:
                kwargs = {key: self.one() for key in keywords} | {key: make()}
                args = [self.one() for _ in range(positional)]
                self._guarded(name, run, args, kwargs)
        for _ in range(RANDOM_CALLS):
            args = [self.one() for _ in range(self.random.randint(0, positional + 1))]
            self._guarded(name, run, args, {})
        faulthandler.cancel_dump_traceback_later()

    def try_each(self, settings: Settings) -> None:
        """Call with every odd value in place of each valid one, also inside lists."""
        for name, sound in settings.sound.items():
            say(f"{settings.name}: {name}")
            faulthandler.dump_traceback_later(HANGS_AFTER_SECONDS, exit=True)
            for make in self._makers:
                self.call(settings.make, **settings.sound | {name: make()})
                if isinstance(sound, list):
                    self.call(settings.make, **settings.sound | {name: [make()]})
        faulthandler.cancel_dump_traceback_later()

    def _guarded(
        self, name: str, run: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
    ) -> None:
        # Any owner may use a descriptor, even the loop itself.
        is_used = any(isinstance(arg, int) and is_open(arg) for arg in args)
        if not (name.rpartition(".")[2] in TAKES_A_DESCRIPTOR and is_used):
            self.call(run, *args, **kwargs)

    def try_operators(self, name: str, one: Any) -> None:
        """Apply the operators that the interpreter supports for any object."""
        say(f"{name}: operators")
        for ask in (repr, str, hash, bool, len, iter, next, copy.copy, pickle.dumps, int, bytes):
            self.call(ask, one)
        for ask in (operator.eq, operator.lt, operator.getitem, operator.contains, operator.add):
            for make in self._makers:
                self.call(ask, one, make())
        for make in self._makers:
            self.call(operator.setitem, one, make(), make())
        self.try_all(f"{name}()", one) if callable(one) else None

    def try_setting(self, name: str, one: Any, attribute: str) -> None:
        say(f"{name} =")
        self.call(getattr, one, attribute)
        for make in self._makers:
            self.call(setattr, one, attribute, make())
        self.call(delattr, one, attribute)


def is_open(descriptor: int) -> bool:
    """True if the process has this descriptor open."""
    try:
        os.fstat(descriptor)
    except (OSError, OverflowError):
        return False
    return True


def places(run: Callable[..., Any]) -> tuple[int, list[str]]:
    """Return the number of its positional arguments, and its keywords."""
    try:
        parameters = inspect.signature(run).parameters.values()
    except (TypeError, ValueError):
        return 3, []
    positional = sum(
        one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) for one in parameters
    )
    positional += sum(one.kind == one.VAR_POSITIONAL for one in parameters)
    return positional, [one.name for one in parameters if one.kind == one.KEYWORD_ONLY]


def native(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the members of a class that are not written in Python, its own first."""
    seen = set()
    for base in kind.__mro__:
        if not is_ours(base):
            continue
        for name, value in vars(base).items():
            if isinstance(value, staticmethod):
                value = value.__func__
            kinds = (
                MethodDescriptorType,
                GetSetDescriptorType,
                ClassMethodDescriptorType,
                BuiltinFunctionType,
            )
            is_native = isinstance(value, kinds) and name not in ("__dict__", "__weakref__")
            if is_native and name not in seen:
                seen.add(name)
                yield name, value


def functions_and_classes() -> list[tuple[str, Callable[..., Any]]]:
    """Return the extension's functions and classes, including those that it creates on access."""
    found = {name: getattr(_uringcore, name) for name in sorted(dir(_uringcore))}
    callables = [(name, one) for name, one in found.items() if callable(one)]
    skipped = ("__loader__", "__spec__", "__build_class__")
    return [(name, one) for name, one in callables if name not in skipped]


def static_methods() -> list[tuple[str, Callable[..., Any]]]:
    return [
        (f"{name}.{attribute}", getattr(kind, attribute))
        for name, kind in functions_and_classes()
        if isinstance(kind, type)
        for attribute, value in native(kind)
        if isinstance(value, (BuiltinFunctionType, ClassMethodDescriptorType))
    ]


async def try_made(caller: Caller, part: int, parts: int) -> None:
    caller.live = [asyncio.get_running_loop(), *vars(_uringcore).values()]
    for name, one in (functions_and_classes() + static_methods())[part::parts]:
        caller.try_all(name, one)
        await asyncio.sleep(0)


async def try_settings(caller: Caller, part: int, parts: int) -> None:
    for settings in list(all_settings())[part::parts]:
        say(f"{settings.name} with sound arguments")
        settings.make(**settings.sound)
        caller.try_each(settings)
        await asyncio.sleep(0)


async def try_alive(caller: Caller, part: int, parts: int) -> None:
    kept = await living()
    await asyncio.sleep(0)
    caller.live = ours() + kept
    by_kind: dict[type, list[Any]] = {}
    for one in caller.live:
        by_kind.setdefault(type(one), []).append(one)
    kinds = sorted(by_kind, key=lambda kind: f"{kind.__module__}.{kind.__qualname__}")
    # The methods of an enumeration belong to CPython.
    kinds = [kind for kind in kinds if not issubclass(kind, enum.Enum)]
    for kind in [kind for kind in kinds if list(native(kind))][part::parts]:
        for one in by_kind[kind][:2]:
            # The tests' own running loop must not be broken.
            if one is not asyncio.get_running_loop():
                await try_object(caller, one)
    if not part:
        send = next(one for one in kept if getattr(one, "__name__", None) == "send")
        await try_messages(caller, send)
    caller.live = [None]


async def try_messages(caller: Caller, send: Callable[..., Any]) -> None:
    """Send the messages of an application, with one odd field each."""
    for message in MESSAGES:
        for name in message:
            for value in caller.odd_values():
                caller.call(send, message | {name: value})
            say(f"{message['type']}: {name}")
            await asyncio.sleep(0)


async def try_object(caller: Caller, one: Any) -> None:
    kind = type(one)
    name = f"{kind.__module__}.{kind.__qualname__}"
    attributes = [(attribute, value) for attribute, value in native(kind) if attribute not in WAITS]
    for attribute, value in sorted(attributes, key=lambda item: item[0] in ENDS):
        if isinstance(value, GetSetDescriptorType):
            caller.try_setting(f"{name}.{attribute}", one, attribute)
        else:
            caller.try_all(f"{name}.{attribute}", getattr(one, attribute))
        # Callbacks scheduled by the call run now.
        await asyncio.sleep(0)
    caller.try_operators(name, one)
    await asyncio.sleep(0)


def ours() -> list[Any]:
    """Return the objects of native classes, and of their Python subclasses."""
    return [one for one in gc.get_objects() if is_ours(type(one))]


def is_ours(kind: type) -> bool:
    """A few C classes have a module that is no string."""
    return str(kind.__module__).startswith("uringcore")


def main(what: str, part: int, parts: int, seed: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.enable()
    logging.disable(logging.CRITICAL)
    caller = Caller(seed)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: caller.look(context.get("exception")))
        tries = {"made": try_made, "settings": try_settings, "alive": try_alive}
        await tries[what](caller, part, parts)
        gc.collect()
        await asyncio.sleep(0)
        say(f"{caller.calls} calls")
        say("done")
        # The program was broken on purpose: its tasks and threads need not end.
        os._exit(0)

    uringcore.run(run())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
