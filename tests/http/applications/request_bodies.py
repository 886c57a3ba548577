"""Code shared by the applications: bodies, and their delays."""

import asyncio
import hashlib
import time

LARGE = bytes(range(256)) * 12_000
"""3 MB."""

NOTES = []
"""Records of background tasks."""

ENDLESS_PARTS = 600
"""The number of parts in a response that its client leaves, so that the response ends on any server."""

PART = b"part of it\n" * 100


def described(data):
    """Describes a body of any size."""
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


async def few_parts():
    for number in range(5):
        await asyncio.sleep(0)
        yield f"part {number}\n".encode()


async def failing_parts():
    yield PART
    await asyncio.sleep(0.2)
    raise RuntimeError("the application's own fault")


async def endless_parts():
    for _ in range(ENDLESS_PARTS):
        yield PART
        await asyncio.sleep(0.003)


def few_parts_in_thread():
    for number in range(5):
        yield f"part {number}\n".encode()


def endless_parts_in_thread():
    for _ in range(ENDLESS_PARTS):
        yield PART
        time.sleep(0.003)


async def note(text):
    await asyncio.sleep(0.05)
    NOTES.append(text)
