"""Clients hostile with files: slow readers that would use up all descriptors."""

import asyncio
import contextlib
import os
import resource
from pathlib import Path

import pytest

from tests.http.hostile.attacked_server import attacked_server, run
from tests.http.hostile.test_hostile_readers import greedy
from tests.http.raw_client import needs_recent_aioquic

pytestmark = needs_recent_aioquic

SIZE = 1 << 20
SPARE = 40
"""Descriptors that the limit leaves beyond those of the started server."""


@pytest.fixture
def sent(tmp_path):
    path = tmp_path / "sent.bin"
    path.write_bytes(os.urandom(SIZE))
    return path


def descriptors(server):
    """Returns the descriptors that a server has open."""
    return [int(name) for name in os.listdir(f"/proc/{server.process.pid}/fd")]


def limit_descriptors(server, count):
    """Limits a running server to this many more descriptors."""
    _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (count, hard))


def open_files(server, path):
    """Returns how often the server has a file open."""
    count = 0
    for link in Path(f"/proc/{server.process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            count += os.readlink(link) == str(path)
    return count


def fetch_over_tcp(server):
    with server.http1() as client:
        client.request("GET", "/")
        assert client.getresponse().read() == b"hello"


async def readers(stack, server, path, connections, each=16):
    """Opens `connections` connections, each with slow readers that have received a first part."""
    for _ in range(connections):
        raw, downloads = await stack.enter_async_context(
            greedy(server, path, each, max_stream_data=1000)
        )
        for stream_id in downloads:
            await raw.wait(lambda raw=raw, one=stream_id: raw.incoming(one).data)


def test_slow_readers_of_files_leave_descriptors_for_others(besiege, sent):
    server = besiege()
    most = max(descriptors(server)) + SPARE
    limit_descriptors(server, most)

    async def attack():
        async with (
            attacked_server(server, memory_mib=80) as attacked,
            contextlib.AsyncExitStack() as stack,
        ):
            # Twice as many as the available descriptors.
            await readers(stack, server, f"/file{sent}", 8)
            assert 0 < open_files(server, sent) <= most // 4
            # TCP clients, all at once, and another client's file.
            async with contextlib.AsyncExitStack() as clients:
                for _ in range(8):
                    client = clients.enter_context(server.http1())
                    await asyncio.to_thread(client.connect)
                await asyncio.to_thread(fetch_over_tcp, server)
            response = await asyncio.to_thread(server.get, f"/file{sent}")
            assert response.status == 200
            assert response.content == sent.read_bytes()
            await attacked.others_served()

    run(attack())


def test_slow_readers_get_their_files_in_the_end(besiege, sent):
    """Their files are closed and opened again meanwhile; no data of them is lost."""
    server = besiege("--http3-max-process-files", "2")

    async def attack():
        async with attacked_server(server, memory_mib=80) as attacked:
            async with greedy(
                server, f"/file{sent}", 16, max_stream_data=1 << 16, max_data=1 << 24
            ) as (raw, downloads):
                for stream_id in downloads:
                    await raw.wait(lambda one=stream_id: len(raw.incoming(one).data) >= 1 << 16)
                assert open_files(server, sent) <= 2
                raw.quic.grants = True
                raw.say()
                for stream_id in downloads:
                    assert (await raw.wait_answer(stream_id)).body == sent.read_bytes()
            await attacked.others_served()

    run(attack())


@pytest.mark.parametrize("kind", ["file", "zerocopy"])
def test_without_a_descriptor_a_file_is_sent_when_there_is_one(besiege, sent, kind):
    """No 500 and no traceback: the response waits."""
    server = besiege()

    async def attack():
        async with (
            attacked_server(server, memory_mib=40) as attacked,
            contextlib.AsyncExitStack() as stack,
        ):
            if kind == "zerocopy":
                # The application has opened its own files before.
                await readers(stack, server, f"/zerocopy{sent}", 1)
            limit_descriptors(server, 3)
            waiting = [
                asyncio.ensure_future(asyncio.to_thread(server.get, f"/file{sent}")) for _ in "ab"
            ]
            await attacked.wait_state("file", running=2)
            await attacked.others_served()
            assert not any(one.done() for one in waiting)
            limit_descriptors(server, 1024)
            for response in await asyncio.gather(*waiting):
                assert (response.status, response.content) == (200, sent.read_bytes())

    run(attack())
