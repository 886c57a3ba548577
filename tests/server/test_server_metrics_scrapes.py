"""Requests for metrics at about the same time share one collection."""

from __future__ import annotations

import asyncio
import json

import pytest

from uringcore.server import _metrics_middleware as module
from uringcore.server._metrics_middleware import MetricsMiddleware
from uringcore.server._shared_result import SECONDS_KEPT, SharedResult


class Source:
    """A collection that ends when the test sets `done`."""

    def __init__(self):
        self.begun = 0
        self.done = asyncio.Event()
        self.now = 100.0
        self.error = None

    async def collect(self):
        self.begun += 1
        number = self.begun
        await self.done.wait()
        if self.error is not None:
            raise self.error
        return number

    def shared(self):
        return SharedResult(self.collect, clock=lambda: self.now)


async def asked(shared, count):
    """Starts tasks that wait for the result."""
    tasks = [asyncio.ensure_future(shared.get()) for _ in range(count)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return tasks


def test_callers_share_a_collection_that_is_under_way():
    async def main():
        source = Source()
        shared = source.shared()
        tasks = await asked(shared, 20)
        # A later request joins it, however long it takes.
        source.now += 10 * SECONDS_KEPT
        tasks += await asked(shared, 20)
        source.done.set()
        assert await asyncio.gather(*tasks) == [1] * 40
        assert source.begun == 1

    asyncio.run(main())


def test_a_result_is_returned_again_for_a_second():
    async def main():
        source = Source()
        shared = source.shared()
        (first,) = await asked(shared, 1)
        source.now += 5
        source.done.set()
        assert await first == 1
        source.now += SECONDS_KEPT - 0.001
        assert await shared.get() == 1
        source.now += 0.001
        assert [await shared.get() for _ in range(3)] == [2, 2, 2]

    asyncio.run(main())


def test_a_cancelled_caller_does_not_cancel_the_collection():
    async def main():
        source = Source()
        shared = source.shared()
        tasks = await asked(shared, 3)
        tasks[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        source.done.set()
        assert await asyncio.gather(*tasks[1:]) == [1, 1]
        # If all callers are cancelled, the next caller still gets the result.
        source.now += SECONDS_KEPT
        source.done.clear()
        (task,) = await asked(shared, 1)
        task.cancel()
        await asyncio.sleep(0)
        source.done.set()
        assert await shared.get() == 2

    asyncio.run(main())


def test_a_failure_is_raised_in_the_callers_that_wait():
    async def main():
        source = Source()
        shared = source.shared()
        source.error = OSError("no")
        source.done.set()
        for found in await asyncio.gather(shared.get(), shared.get(), return_exceptions=True):
            assert found is source.error
        source.error = None
        assert await shared.get() == 2

    asyncio.run(main())


def test_a_report_is_of_the_moment_at_which_it_was_made():
    """The metrics and the status page of one collection agree, regardless of when each is read."""

    async def main():
        observer = MetricsMiddleware(
            metrics_path="/metrics", status_path="/status", on_port={"metrics", "status"}
        )
        observer.counts.request_ended("3", "GET", 200, 0.1)
        own = await observer._own.get()
        _, _, text = await observer.port_page("/metrics", "GET", b"")
        for _ in range(5):
            observer.counts.request_ended("3", "GET", 200, 0.1)
            observer.counts.add_lag(0.5)
        _, _, data = await observer.port_page("/status", "GET", b"data")
        assert b'method="GET",status="200"} 1\n' in text, text
        assert json.loads(data)["requests"] == {"3": 1}
        assert json.loads(data)["lag"] == 0.0
        # Other processes get these values too.
        assert own.counts.requests.total() == 1
        assert own.counts.durations["3"].counts.count(1) == 1

    asyncio.run(main())


def test_scrapes_and_the_status_page_share_reports(monkeypatch):
    made = 0
    make_report = module.make_report

    async def counting(*arguments):
        nonlocal made
        made += 1
        await asyncio.sleep(0)
        return await make_report(*arguments)

    monkeypatch.setattr(module, "make_report", counting)

    async def main():
        observer = MetricsMiddleware(
            metrics_path="/metrics", status_path="/status", on_port={"metrics", "status"}
        )
        asks = [observer.port_page("/metrics", "GET", b"") for _ in range(50)]
        asks += [observer.port_page("/status", "GET", b"data") for _ in range(50)]
        answers = await asyncio.gather(*asks)
        assert {answer[0] for answer in answers} == {200}
        assert len({answer[2] for answer in answers}) == 2
        # The page itself needs no report.
        assert (await observer.port_page("/status", "GET", b""))[0] == 200
        assert await observer.port_page("/", "GET", b"") is None
        assert made == 1

    asyncio.run(main())
