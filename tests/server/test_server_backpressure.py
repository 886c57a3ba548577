"""Backpressure in both directions, and clients that leave: memory stays bounded."""

import asyncio
import json
import time

import uringcore

PART = b"x" * 65536
OFFERED = 256 * 1024 * 1024
BOUND = 24 * 1024 * 1024
"""Far above the sum of all windows and queues, far below the amount that is offered."""


async def settled(value, seconds=10.0):
    """Waits until `await value()` has not changed for half a second, and returns it."""
    deadline = time.monotonic() + seconds
    last, since = await value(), time.monotonic()
    while time.monotonic() - since < 0.5:
        assert time.monotonic() < deadline, f"still growing: {last}"
        await asyncio.sleep(0.05)
        now = await value()
        if now != last:
            last, since = now, time.monotonic()
    return last


def test_upload_waits_for_the_application(server):
    sent = 0

    async def content():
        nonlocal sent
        while sent < OFFERED:
            sent += len(PART)
            yield PART

    async def main():
        before = server.resident_bytes()
        async with server.connect() as client:
            request = asyncio.ensure_future(client.request("PUT", "/hold", content=content()))

            async def amount():
                assert not request.done(), request
                return sent

            held = await settled(amount)
            assert 0 < held < BOUND
            assert server.resident_bytes() - before < 2 * BOUND
            # Meanwhile other requests succeed on the same connection.
            assert (await client.get("/release")).content == b"released"
            response = await asyncio.wait_for(request, 100)
            assert json.loads(response.content) == {"bytes": OFFERED}
            assert server.resident_bytes() - before < 2 * BOUND

    uringcore.run(main())


def test_response_waits_for_the_client(server):
    async def main():
        before = server.resident_bytes()
        async with server.connect() as client:
            async with client.stream("GET", f"/flood/{OFFERED}") as response:

                async def flooded():
                    return json.loads((await client.get("/progress")).content)["flooded"]

                held = await settled(flooded)
                assert 0 < held < BOUND
                assert server.resident_bytes() - before < 2 * BOUND
                received = 0
                async for part in response.iter_bytes():
                    received += len(part)
                assert received == OFFERED

    uringcore.run(main())


def events(server):
    return json.loads(server.get("/progress").content)["events"]


def wait_events(server, count, seconds=10):
    deadline = time.monotonic() + seconds
    while events(server).count("disconnected") < count:
        assert time.monotonic() < deadline, server.log()
        time.sleep(0.05)


async def waiting(client, count):
    """Waits until the application has waited this many times for an end."""
    while json.loads((await client.get("/progress")).content)["events"].count("waiting") < count:
        await asyncio.sleep(0.01)


def test_cancelled_request_is_a_disconnect(server):
    before = events(server).count("disconnected")

    async def main():
        async with server.connect() as client:
            request = asyncio.ensure_future(client.get("/wait-disconnect"))
            await waiting(client, before + 1)
            request.cancel()
            await asyncio.gather(request, return_exceptions=True)
            # The connection itself stays open.
            assert (await client.get("/")).status == 200

    uringcore.run(main())
    wait_events(server, before + 1)


def test_closed_connection_is_a_disconnect(server):
    before = events(server).count("disconnected")

    async def main():
        async with server.connect() as client:
            request = asyncio.ensure_future(client.get("/wait-disconnect"))
            await waiting(client, before + 1)
            client.close()
            await asyncio.gather(request, return_exceptions=True)

    uringcore.run(main())
    wait_events(server, before + 1)


def test_download_abandoned_midway(server):
    async def main():
        async with server.connect() as client:
            async with client.stream("GET", f"/flood/{OFFERED}") as response:
                async for _ in response.iter_bytes():
                    break
            assert (await client.get("/")).status == 200

    for _ in range(3):
        uringcore.run(main())
    assert server.get("/").status == 200


def test_upload_abandoned_midway(server):
    async def content():
        yield PART
        raise RuntimeError("the program's own fault")

    async def main():
        async with server.connect() as client:
            try:
                await client.request("PUT", "/upload", content=content())
            except RuntimeError as exc:
                assert str(exc) == "the program's own fault"
            else:
                raise AssertionError("the fault was swallowed")
            assert (await client.get("/")).status == 200

    uringcore.run(main())
