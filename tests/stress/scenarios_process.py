"""Scenarios of timers, threads, signals, processes and further loops."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
from typing import Any

from tests.stress.byte_pattern import Pattern, Violation
from tests.stress.stress_round import StressRound


async def timers(stress_round: StressRound, rng: random.Random) -> None:
    """Timers fire once, in order and not early; cancelled timers never fire."""
    loop = asyncio.get_running_loop()
    fired: list[tuple[float, int]] = []
    done = asyncio.Event()

    def fire(when: float, number: int) -> None:
        # A loop may run a timer early by up to its clock's resolution.
        if loop.time() < when - 0.002:
            stress_round.violate(f"timer {number} fires {when - loop.time()} s early")
        fired.append((when, number))

    handles = {}
    for number in range(rng.choice((5, 50, 500))):
        when = loop.time() + rng.choice((0, 0.001, 0.01, 0.05)) * rng.random()
        handles[number] = when, loop.call_at(when, fire, when, number)
    cancelled = set()
    for number in rng.sample(sorted(handles), len(handles) // 3):
        handles[number][1].cancel()
        cancelled.add(number)
    last = max(when for when, _ in handles.values())
    loop.call_at(last + 0.01, done.set)
    await done.wait()
    numbers = [number for _, number in fired]
    if sorted(numbers) != sorted(set(handles) - cancelled):
        raise Violation("timers: not exactly those that were not cancelled")
    if [when for when, _ in fired] != sorted(when for when, _ in fired):
        raise Violation("timers fire out of order")


async def tasks(stress_round: StressRound, rng: random.Random) -> None:
    """Tasks, futures and callbacks: exact order within a turn, and cancellations that arrive."""
    loop = asyncio.get_running_loop()
    order: list[int] = []
    count = rng.choice((10, 200))
    for number in range(count):
        loop.call_soon(order.append, number)
    await asyncio.sleep(0)
    if order != list(range(count)):
        raise Violation("call_soon callbacks do not run in their order")
    sleepers = [asyncio.ensure_future(asyncio.sleep(3600)) for _ in range(count)]
    await asyncio.sleep(rng.choice((0, 0.001)))
    for sleeper in sleepers:
        sleeper.cancel()
    ends = await asyncio.gather(*sleepers, return_exceptions=True)
    if not all(isinstance(end, asyncio.CancelledError) for end in ends):
        raise Violation("a cancelled task did not end as cancelled")


async def threads(stress_round: StressRound, rng: random.Random) -> None:
    """Callbacks from other threads: none is lost, and each thread's are in order; executor results arrive."""
    loop = asyncio.get_running_loop()
    got: dict[int, list[int]] = {}
    count, workers = rng.choice((10, 500)), rng.randint(1, 4)

    def work(worker: int) -> int:
        for number in range(count):
            loop.call_soon_threadsafe(got.setdefault(worker, []).append, number)
        return worker

    results = await asyncio.gather(
        *(loop.run_in_executor(None, work, worker) for worker in range(workers))
    )
    await asyncio.sleep(0)
    if results != list(range(workers)):
        raise Violation(f"executor results {results}")
    for worker in range(workers):
        if got[worker] != list(range(count)):
            raise Violation("call_soon_threadsafe lost or reordered callbacks")


async def process(stress_round: StressRound, rng: random.Random) -> None:
    """A child that echoes, exits with a status or is killed."""
    key = f"{stress_round.key} process {rng.getrandbits(32):x}"
    how = rng.choice(("echo", "exit", "kill", "cancel"))
    pipe = asyncio.subprocess.PIPE
    if how == "echo":
        data = Pattern(key).take(rng.choice((0, 100, 200_000)))
        child = await asyncio.create_subprocess_exec("cat", stdin=pipe, stdout=pipe)
        echoed, _ = await child.communicate(data)
        if echoed != data or child.returncode != 0:
            raise Violation(f"{key}: {len(echoed)} of {len(data)} bytes, {child.returncode}")
    elif how == "exit":
        status = rng.randrange(256)
        child = await asyncio.create_subprocess_shell(f"exit {status}", stderr=subprocess.DEVNULL)
        if await child.wait() != status:
            raise Violation(f"{key}: {child.returncode} instead of {status}")
    elif how == "kill":
        child = await asyncio.create_subprocess_exec("sleep", "600", stdin=pipe, stdout=pipe)
        number = rng.choice((signal.SIGTERM, signal.SIGKILL))
        child.send_signal(number)
        if await child.wait() != -number:
            raise Violation(f"{key}: {child.returncode} instead of {-number}")
        await child.communicate()
    else:
        child = await asyncio.create_subprocess_exec("cat", stdin=pipe, stdout=pipe)
        talking = asyncio.ensure_future(child.communicate(Pattern(key).take(100_000)))
        await asyncio.sleep(rng.choice((0, 0.001, 0.01)))
        talking.cancel()
        await asyncio.gather(talking, return_exceptions=True)
        if child.returncode is None:
            child.kill()
        await child.wait()
        # The transport is closed with its process and pipes; nothing else closes it.
        transport: Any = child._transport  # type: ignore[attr-defined]
        transport.close()


async def signals(stress_round: StressRound, rng: random.Random) -> None:
    """Every awaited signal arrives; a removed handler is not called."""
    loop = asyncio.get_running_loop()
    heard = asyncio.Event()
    # A process has one handler for each signal.
    async with stress_round.one_at_a_time:
        loop.add_signal_handler(signal.SIGUSR1, heard.set)
        for _ in range(rng.randint(1, 10)):
            heard.clear()
            if rng.random() < 0.5:
                os.kill(os.getpid(), signal.SIGUSR1)
            else:
                threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGUSR1)).start()
            await heard.wait()
        if not loop.remove_signal_handler(signal.SIGUSR1):
            raise Violation("the signal's handler was gone")


async def thread_loop(stress_round: StressRound, rng: random.Random) -> None:
    """Another loop in another thread, from its creation to its close."""
    answer = rng.getrandbits(32)

    def other() -> int:
        loop = stress_round.new_loop()
        try:
            return loop.run_until_complete(_small_life(answer))
        finally:
            loop.close()

    got = await asyncio.get_running_loop().run_in_executor(None, other)
    if got != answer:
        raise Violation("the other thread's loop gave another answer")


async def _small_life(answer: int) -> int:
    """Connects to a server on the same loop; run by a loop in a thread or a child."""
    served = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(4))
        writer.close()
        await writer.wait_closed()
        served.set_result(None)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(answer.to_bytes(4, "big"))
    got = int.from_bytes(await reader.readexactly(4), "big")
    writer.close()
    await writer.wait_closed()
    await served
    server.close()
    await asyncio.sleep(0.001)
    return got


async def fork(stress_round: StressRound, rng: random.Random) -> None:
    """A child forked from the running loop creates its own loop; the parent continues."""
    answer = rng.getrandbits(32)
    async with stress_round.one_at_a_time:
        child = os.fork()
        if child == 0:
            _in_child(stress_round, answer)
        status = await asyncio.get_running_loop().run_in_executor(None, os.waitpid, child, 0)
        if status[1] != 0:
            raise Violation(f"the forked child ended with {status[1]:#x}")


def _in_child(stress_round: StressRound, answer: int) -> None:
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(30)
        # The parent's loop still counts as running in this thread.
        asyncio._set_running_loop(None)
        loop = stress_round.new_loop()
        if loop.run_until_complete(_small_life(answer)) == answer:
            status = 0
        loop.close()
    except BaseException as failure:
        print(f"in the forked child: {failure!r}", file=sys.stderr, flush=True)
    finally:
        os._exit(status)


SCENARIOS = [timers, tasks, threads, process, process, signals, thread_loop, fork]
