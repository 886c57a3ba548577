"""A stream under the benchmarks' servers, which read and write it, independent of the library."""

from __future__ import annotations

import asyncio
import hashlib

import pytest

from benchmarks.servers.bulk import pattern
from benchmarks.servers.bulk_streams import bulk


def served(pieces, until=0):
    """Returns the data sent for these pieces; the client ends a download after a given number of
    bytes.
    """
    sent, ends = [], []
    enough = asyncio.Event()

    left = iter(pieces)

    async def read():
        for piece in left:
            return piece
        if until:
            await enough.wait()
        return b""

    async def send(data, end):
        sent.append(bytes(data))
        if until and sum(map(len, sent)) >= until:
            enough.set()
        ends.append(end)

    asyncio.run(bulk(read, send))
    assert ends == [False] * (len(ends) - 1) + [True]
    return sent


def test_an_echo():
    assert b"".join(served([b"Eab", memoryview(b"c")])) == b"abc"


@pytest.mark.parametrize(("mode", "digest"), [(b"U", b""), (b"V", hashlib.sha256(b"abc").digest())])
def test_an_upload_is_counted(mode, digest):
    assert served([mode + b"a", b"bc"]) == [(3).to_bytes(8, "big") + digest]


@pytest.mark.parametrize(("mode", "write"), [(b"D", 1 << 16), (b"d", 1 << 10)])
def test_a_download_lasts_until_the_client_has_ended(mode, write):
    *sent, last = served([mode], until=100_000)
    assert {len(piece) for piece in sent} == {write}
    assert last == b""
    assert b"".join(sent) == pattern() * (len(sent) * write // (1 << 16))
