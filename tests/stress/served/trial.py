"""Phases of load with one fault each, and the rules that always hold.

- No response is wrong: status 200 and every byte correct, in every phase.
- No request hangs, and requests fail only in a phase in which a worker is killed or the server ends. No
  client
  notices an operator's SIGHUP, or a renewed certificate.
- After a fault each client gets responses again; a phase ends when each has got one to a later request.
- Responses in progress at SIGTERM or SIGHUP are completed, even if the client reads slowly.
  The exit status is 0.
- Afterwards the processes have as many descriptors as before, and their memory has not grown.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.loop.harness import factory
from tests.stress.byte_pattern import Violation
from tests.stress.served.hang_report import state
from tests.stress.served.operator import PATIENCE_SECONDS, Operator
from tests.stress.served.verifying_clients import (
    CALLERS,
    HTTP2,
    Caller,
    Httpx,
    HttpxNarrow,
    Ours,
    Target,
    check_pattern,
)

REQUEST_SECONDS = 60.0
"""A request that takes longer hangs: the longest takes half a second on an idle machine."""
SUSPICIOUS_SECONDS = 40.0
"""After this time a request's state is recorded, before a stopping server cancels it."""
CALM_SECONDS = 0.5
GROWTH_MAX = {"worker": 32 << 20, "supervisor": 8 << 20}
"""Resident bytes by which a process may exceed one of its kind after the first load."""
LATE_SECONDS, LATE_SIZE = 1.5, 200_000
LATE = (Ours, Ours, Httpx, Httpx, HTTP2)
"""Clients that wait for a slow application."""
# More than the kernel buffers for a client: net.ipv4.tcp_wmem allows 4 MiB.
SLOW_SECONDS, SLOW_SIZE = 3.0, 6 << 20
SLOW = (Ours, HttpxNarrow, HTTP2)
"""Clients that read a complete response slowly, while the kernel cannot buffer it."""

FAULTS = ("roll", "renew", "kill_clients", "kill_worker")
MAY_FAIL = {"kill_worker", "drain"}
"""Phases in which requests may fail with an error."""


@dataclass
class Report:
    """The phases and the findings of a trial."""

    phases: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)
    """The number of verified responses, by client."""
    failed: Counter[str] = field(default_factory=Counter)
    """The number of clients' errors in phases that permit them, by text."""
    footprints: dict[str, tuple[tuple[int, int], tuple[int, int]]] = field(default_factory=dict)
    """Descriptors and resident bytes of each kind of process, before and after."""
    violations: list[str] = field(default_factory=list)


class Trial:
    """One server and its clients. :func:`trial` creates it."""

    def __init__(self, operator: Operator, rng: random.Random, report: Report) -> None:
        self._operator = operator
        self._rng = rng
        self._report = report
        self._phases: list[str] = []
        self._callers: list[_Calling] = []
        self._is_over = False

    async def run(self, seconds: float) -> None:
        """Runs all phases, with the faults in a random order, repeatedly until the time is up."""
        await self._operator.started()
        async with self._load():
            await self._phase("calm")
        before = await self._footprints()
        end = time.monotonic() + seconds
        async with self._load():
            while True:
                for fault in self._rng.sample(FAULTS, len(FAULTS)):
                    await self._phase(fault)
                if time.monotonic() > end:
                    break
        async with self._load():
            await self._phase("calm")
        await self._compare(before)
        async with self._load():
            await self._drain()
        self._report.violations += [f"in the log: {line}" for line in self._operator.complaints()]

    @contextlib.asynccontextmanager
    async def _load(self) -> AsyncIterator[None]:
        """Lets every client make requests while the block runs; then closes their connections."""
        target = Target(self._operator.url, self._operator.cafile)
        self._callers = [_Calling(self, kind(target)) for kind in CALLERS]
        self._is_over = False
        tasks = [asyncio.ensure_future(one.run(self._rng.random())) for one in self._callers]
        try:
            yield
        finally:
            self._is_over = True
            if self._phases[-1] == "drain":
                # The server has ended, so the last requests stay unanswered.
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
            else:
                await asyncio.gather(*tasks)

    async def _phase(self, name: str) -> None:
        self._begin(name)
        if name == "calm":
            await asyncio.sleep(CALM_SECONDS)
        elif name == "roll":
            async with self._under_way(SLOW):
                await self._operator.roll()
        else:
            await getattr(self._operator, name)()
        await self._settled(name)

    def _begin(self, name: str) -> None:
        self._phases.append(name)
        self._report.phases[name] += 1

    async def _settled(self, name: str) -> None:
        marks = {caller: caller.begun for caller in self._callers}
        await self._operator.until(
            lambda: all(caller.answered > mark for caller, mark in marks.items()),
            f"an answer for each client after {name}",
        )

    async def _drain(self) -> None:
        """Sends SIGTERM while responses are in progress and other clients continue to make requests."""
        async with self._under_way(SLOW, LATE):
            self._begin("drain")
            self._operator.server.send_signal()
        status = await self._operator.ended()
        if status:
            self._violate(f"status {status} after SIGTERM")
        drain = self.phase_number()
        await self._operator.until(
            lambda: all(caller.since >= drain for caller in self._callers),
            "an answer or an error for what was asked before SIGTERM",
        )

    @contextlib.asynccontextmanager
    async def _under_way(
        self, slow: Sequence[type[Caller]], late: Sequence[type[Caller]] = ()
    ) -> AsyncIterator[None]:
        """Starts responses before the block and awaits them after it."""
        target = Target(self._operator.url, self._operator.cafile)
        callers = [kind(target) for kind in (*slow, *late)]
        ways = [self._slow] * len(slow) + [self._late] * len(late)
        begun = [asyncio.Event() for _ in callers]
        answers = [
            asyncio.ensure_future(way(caller, event))
            for way, caller, event in zip(ways, callers, begun, strict=True)
        ]
        await asyncio.wait_for(asyncio.gather(*(event.wait() for event in begun)), PATIENCE_SECONDS)
        yield
        during = self._phases[-1]
        for found in await asyncio.gather(*answers, return_exceptions=True):
            if found is not None:
                self._violate(f"an answer that was under way in the phase {during}: {found!r}")
        for caller in callers:
            await caller.aclose()

    async def _late(self, caller: Caller, begun: asyncio.Event) -> None:
        """Requests a response whose first tenth comes at once; sets `begun` when it has arrived."""
        await self._take(caller, begun, f"late/{LATE_SECONDS}", LATE_SIZE, 0)

    async def _slow(self, caller: Caller, begun: asyncio.Event) -> None:
        """Requests a response that the application sends at once and the client reads over several
        seconds.
        """
        await self._take(caller, begun, "take", SLOW_SIZE, SLOW_SECONDS)

    async def _take(
        self, caller: Caller, begun: asyncio.Event, way: str, size: int, seconds: float
    ) -> None:
        key, body = f"{self._rng.getrandbits(32):x}", bytearray()
        loop = asyncio.get_running_loop()
        beginning = loop.time()
        async with caller.stream(f"/{way}/{size}/{key}") as (status, parts):
            async for part in parts:
                begun.set()
                body += part
                ahead = beginning + seconds * len(body) / size - loop.time()
                if ahead > 0:
                    # Sleep only if ahead: hundreds of parts would otherwise cost a turn more each, on a loop
                    # that may be slow.
                    await asyncio.sleep(ahead)
        check_pattern(status, body, key, size)

    # Calls of the clients, for each request

    def phase_number(self) -> int:
        """The current phase, in which a request begins or ends."""
        return len(self._phases)

    def succeeded(self, caller: Caller) -> None:
        self._report.answered[type(caller).__name__] += 1

    def failed(self, caller: Caller, error: Exception, since: int) -> None:
        """Records an error of a client whose request began in the phase `since`."""
        said = f"{type(caller).__name__}: {type(error).__name__}: {error}"
        during = self._phases[max(since - 1, 0) :]
        if isinstance(error, Violation) or not MAY_FAIL.intersection(during):
            self._violate(f"{said} ({', '.join(during)})")
        else:
            self._report.failed[said] += 1

    async def state(self) -> str:
        """Returns the state of the clients and the server."""
        return "\n".join(["clients:", state(), "server:", await self._operator.state()])

    @property
    def is_over(self) -> bool:
        return self._is_over

    def _violate(self, text: str) -> None:
        self._report.violations.append(text)

    # Resources before and after

    async def _footprints(self) -> dict[str, tuple[int, int]]:
        """Returns the largest values of each kind of process, once all clients' connections are closed."""
        await self._operator.until(self._has_settled, "descriptors as they were before the load")
        found = [self._operator.footprint(pid) for pid in self._operator.workers()]
        return {
            "worker": (max(one[0] for one in found), max(one[1] for one in found)),
            "supervisor": self._operator.footprint(self._operator.pid),
        }

    def _has_settled(self) -> bool:
        """True if no worker has a connection, so that only its listening sockets are left."""
        return not self._operator.connections()

    async def _compare(self, before: dict[str, tuple[int, int]]) -> None:
        after = await self._footprints()
        for kind, (descriptors, memory) in after.items():
            self._report.footprints[kind] = before[kind], after[kind]
            if descriptors > before[kind][0]:
                self._violate(f"{kind}: {descriptors} descriptors, {before[kind][0]} before")
            if memory > before[kind][1] + GROWTH_MAX[kind]:
                self._violate(f"{kind}: {memory >> 20} MiB, {before[kind][1] >> 20} before")


class _Calling:
    """A client that makes one request after the other until the load is over."""

    def __init__(self, trial: Trial, caller: Caller) -> None:
        self._trial = trial
        self._caller = caller
        self.begun = 0
        """The number of requests so far."""
        self.answered = 0
        """The number of the last answered request."""
        self.since = 0
        """The phase in which the last request began."""

    async def run(self, seed: float) -> None:
        rng = random.Random(seed)
        try:
            while not self._trial.is_over:
                await self._once(rng)
        finally:
            await self._caller.aclose()

    async def _once(self, rng: random.Random) -> None:
        self.begun += 1
        since = self.since = self._trial.phase_number()
        try:
            await self._within_time(asyncio.ensure_future(self._caller.once(rng)))
        except Exception as error:
            self._trial.failed(self._caller, error, since)
            # A refused client retries, but not a thousand times a second.
            await asyncio.sleep(0.05)
        else:
            self.answered = self.begun
            self._trial.succeeded(self._caller)

    async def _within_time(self, asking: asyncio.Future[None]) -> None:
        try:
            await asyncio.wait([asking], timeout=SUSPICIOUS_SECONDS)
            if not asking.done():
                found = await self._trial.state()
                await asyncio.wait([asking], timeout=REQUEST_SECONDS - SUSPICIOUS_SECONDS)
            if not asking.done():
                raise Violation(f"a request hangs\n{found}")
            asking.result()
        finally:
            asking.cancel()
            await asyncio.wait([asking])


def trial(backend: str, seed: int, seconds: float, folder: Path) -> Report:
    """Runs a server and its clients on `backend` for `seconds`, and until the current round ends."""
    rng = random.Random(f"{seed}")
    report = Report()
    operator = Operator(backend, folder, rng)
    loop = factory(backend)()
    try:
        loop.run_until_complete(Trial(operator, rng, report).run(seconds))
    except AssertionError as broken:
        report.violations.append(str(broken))
    finally:
        loop.close()
        operator.server.kill()
    return report
