"""The loop of a round, the rules that always hold, and the comparison of resources at its end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import ssl
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tests.loop.harness import factory, open_descriptors, resident_bytes
from tests.stress.byte_pattern import Violation

SCENARIO_SECONDS = 60.0
"""A scenario that takes longer hangs: on an idle machine the longest takes about two seconds."""
SETTLE_SECONDS = 15.0
MEMORY_GROWTH_MAX = 96 << 20
"""Resident bytes that a run may add after its first rounds: arenas and caches, not a leak per scenario."""
GAUGES = (
    *("ops_in_flight", "buffers_out", "streams", "listeners", "datagrams"),
    *("readers", "writers", "quic_endpoints"),
)

HANDSHAKE_FAILED = "Error on transport creation for incoming connection"

Scenario = Callable[["StressRound", random.Random], Coroutine[Any, Any, None]]


class Planned(Exception):
    """An intentional exception of a protocol. The loop's exception handler must receive it, and no other."""


class StressRound:
    """One round: a loop, its scenarios and their rules."""

    def __init__(self, backend: str, key: str, folder: Path) -> None:
        self.backend = backend
        self.key = key
        self.folder = folder
        self.violations: list[str] = []
        self.done: dict[str, int] = {}
        self.planned = 0
        """Intentional exceptions of scenarios that have not reached the handler yet."""
        self.one_at_a_time = asyncio.Lock()
        """A lock for scenarios that change the process: signals, forks."""

    @property
    def ours(self) -> bool:
        """True if the loop under test is uringcore's: stock asyncio promises less in a few places."""
        return self.backend != "asyncio"

    def violate(self, text: str) -> None:
        """Records a broken rule."""
        self.violations.append(text)

    @contextlib.contextmanager
    def watching(self, what: str) -> Any:
        """For callbacks: records a `Violation` in the block and suppresses it."""
        try:
            yield
        except Violation as broken:
            self.violate(f"{what}: {broken}")

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """Creates a loop of the kind under test."""
        return factory("stock" if self.backend == "asyncio" else self.backend)()

    def complaint(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """The loop's exception handler: every exception but a planned one is a violation."""
        exception = context.get("exception")
        if isinstance(exception, Planned):
            self.planned -= 1
        elif context["message"] == HANDSHAKE_FAILED and isinstance(exception, OSError):
            return  # a client that was cancelled in its handshake; asyncio reports each
        else:
            self.violate(f"exception handler: {context}")

    def path(self, rng: random.Random) -> str:
        """Returns an unused path for a Unix socket."""
        return str(self.folder / f"{rng.getrandbits(64):x}")

    def run(self, scenarios: list[tuple[Scenario, random.Random]], at_once: int) -> None:
        """Runs every scenario, `at_once` of them concurrently, then the comparison of resources."""
        loop = self.new_loop()
        loop.set_exception_handler(self.complaint)
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(self._round(loop, scenarios, at_once))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            asyncio.set_event_loop(None)
            loop.close()
        if self.planned:
            self.violate(f"{self.planned} exceptions of protocols never reached the handler")

    async def _round(
        self,
        loop: asyncio.AbstractEventLoop,
        scenarios: list[tuple[Scenario, random.Random]],
        at_once: int,
    ) -> None:
        # Python 3.10 binds a lock to the loop that first uses it.
        self.one_at_a_time = asyncio.Lock()
        base = self._gauges(loop)
        slots = asyncio.Semaphore(at_once)

        async def one(scenario: Scenario, rng: random.Random) -> None:
            async with slots:
                name = scenario.__name__
                try:
                    await asyncio.wait_for(scenario(self, rng), SCENARIO_SECONDS)
                except asyncio.TimeoutError:
                    self.violate(f"{name} hangs")
                except Violation as broken:
                    self.violate(f"{name}: {broken}")
                except Exception:
                    self.violate(f"{name}: {traceback.format_exc()}")
                self.done[name] = self.done.get(name, 0) + 1

        await asyncio.gather(*(one(scenario, rng) for scenario, rng in scenarios))
        await self._settle(loop, base)

    async def _settle(self, loop: asyncio.AbstractEventLoop, base: dict[str, int]) -> None:
        """Waits until the gauges return to their values before the scenarios, because everything was
        closed.
        """
        deadline = time.monotonic() + SETTLE_SECONDS
        while True:
            gc.collect()
            await asyncio.sleep(0.01)
            left = {name: now - base[name] for name, now in self._gauges(loop).items()}
            over = {name: more for name, more in left.items() if more > 0}
            strangers = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            if not over and not strangers:
                return
            if time.monotonic() > deadline:
                self.violate(f"left over in the loop: {over}, tasks {strangers}")
                return

    def _gauges(self, loop: Any) -> dict[str, int]:
        if not self.ours:
            return {"watched": len(loop._selector.get_map())}
        stats = loop.stats()
        return {name: stats[name] for name in GAUGES}


class Watchdog:
    """Ends the process if a round takes too long, and prints every thread's stack."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._what = ""
        self._deadline = time.monotonic() + seconds
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._thread.start()

    def feed(self, what: str) -> None:
        """Starts the time limit anew, at the start of a round."""
        self._what = what
        self._deadline = time.monotonic() + self._seconds

    def stop(self) -> None:
        """Ends the watchdog."""
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        import faulthandler

        while not self._end.wait(0.5):
            if time.monotonic() > self._deadline:
                print(f"HANG in {self._what}", file=sys.stderr, flush=True)
                faulthandler.dump_traceback(all_threads=True)
                os._exit(3)


class Report:
    """The actions and the violations of a run."""

    def __init__(self) -> None:
        self.rounds = 0
        self.scenarios: dict[str, int] = {}
        self.violations: list[str] = []
        self.memory: list[int] = []


def stress(
    backend: str,
    seed: int,
    seconds: float,
    all_scenarios: list[Scenario],
    *,
    rounds_max: int | None = None,
) -> Report:
    """Runs rounds from `seed` until `seconds` have passed, or a rule is broken."""
    report = Report()
    end = time.monotonic() + seconds
    watchdog = Watchdog(4 * SCENARIO_SECONDS)
    with tempfile.TemporaryDirectory(prefix="stress-") as folder:
        try:
            while time.monotonic() < end and not report.violations and report.rounds != rounds_max:
                key = f"{seed}/{report.rounds}"
                watchdog.feed(f"round {key} on {backend}")
                _round(report, backend, key, Path(folder), all_scenarios)
        finally:
            watchdog.stop()
    # The first rounds fill caches, pools and Python's own arenas.
    if len(report.memory) > 8:
        growth = report.memory[-1] - max(report.memory[3:6])
        if growth > MEMORY_GROWTH_MAX:
            report.violations.append(f"memory grew by {growth >> 20} MiB: {report.memory}")
    return report


def _round(
    report: Report, backend: str, key: str, folder: Path, all_scenarios: list[Scenario]
) -> None:
    rng = random.Random(key)
    gc.collect()
    descriptors = open_descriptors()
    stress_round = StressRound(backend, key, folder)
    scenarios = [
        (rng.choice(all_scenarios), random.Random(f"{key}/{index}"))
        for index in range(rng.randint(10, 60))
    ]
    try:
        stress_round.run(scenarios, at_once=rng.choice((1, 4, 16, 32)))
    except Exception:
        stress_round.violate(f"the loop itself: {traceback.format_exc()}")
    deadline = time.monotonic() + SETTLE_SECONDS
    while open_descriptors() > descriptors and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    if open_descriptors() > descriptors:
        names = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")[:-1]]
        stress_round.violate(
            f"{open_descriptors() - descriptors} descriptors are left over: {names}"
        )
    report.rounds += 1
    for name, count in stress_round.done.items():
        report.scenarios[name] = report.scenarios.get(name, 0) + count
    report.violations += [f"round {key}: {text}" for text in stress_round.violations]
    report.memory.append(resident_bytes())


def tls_contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Returns a server's TLS context with a fresh certificate and a client's context that trusts it."""
    from uringcore.devcert import DevelopmentCertificate

    made = DevelopmentCertificate.make()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "both.pem")
        path.write_bytes(made.certificate_pem + made.key_pem)
        server.load_cert_chain(path)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(cadata=made.certificate_pem.decode())
    return server, client
