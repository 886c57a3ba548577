"""Clients hostile to a server that traces its connections: small frames make large events."""

import asyncio
import stat

import pytest

from tests.http.hostile.attacked_server import MIB, attacked_server, run
from tests.http.raw_client import connect_raw, needs_recent_aioquic
from tests.quic.qlog_sequences import events_of

pytestmark = [pytest.mark.either_backend, pytest.mark.peer_input, needs_recent_aioquic]

PING = b"\x01"


@pytest.fixture
def folder(tmp_path):
    """A folder for traces alone: the server's log is beside it."""
    made = tmp_path / "traces"
    made.mkdir()
    return made


def test_a_trace_of_packets_full_of_frames_takes_little(besiege, folder):
    """A frame of one byte is 22 in a trace."""
    bounds = ["--http3-qlog-trace-bytes", str(MIB), "--http3-qlog-total-bytes", str(4 * MIB)]
    server = besiege("--http3-qlog-dir", str(folder), *bounds)

    async def attack():
        async with attacked_server(server, memory_mib=10) as attacked:
            async with connect_raw(server) as raw:
                raw.control()
                # This lets more than one connection fill its trace.
                async with connect_raw(server) as other:
                    other.control()
                    for number in range(400):
                        for client in (raw, other):
                            client.say(PING * 1000)
                        if not number % 20:
                            await asyncio.sleep(0)
                    assert (await other.wait_answer(other.request())).status == 200
                assert (await raw.wait_answer(raw.request())).status == 200
            await attacked.others_served()

    run(attack())
    assert server.stop() == 0
    paths = list(folder.iterdir())
    sizes = [path.stat().st_size for path in paths]
    assert max(sizes) > MIB // 2, "nothing was traced"
    assert max(sizes) <= MIB and sum(sizes) <= 5 * MIB, sizes
    for path in paths:
        assert path.suffix == ".sqlog" and stat.S_IMODE(path.stat().st_mode) == 0o600
    largest = max(paths, key=lambda path: path.stat().st_size)
    last = events_of(largest)[-1]
    assert last["name"] == "loglevel:warning", last


def test_a_crowd_of_clients_has_few_files_open(besiege, folder):
    server = besiege("--http3-qlog-dir", str(folder), "--http3-qlog-open-traces", "8")

    async def attack():
        async with attacked_server(server, memory_mib=24) as attacked:
            clients = [connect_raw(server) for _ in range(40)]
            raws = [await client.__aenter__() for client in clients]
            for raw in raws:
                raw.control()
                assert (await raw.wait_answer(raw.request())).status == 200
            await attacked.others_served()
            for client in clients:
                await client.__aexit__(None, None, None)

    run(attack())
    assert server.stop() == 0
    assert 1 <= len(list(folder.iterdir())) <= 30
