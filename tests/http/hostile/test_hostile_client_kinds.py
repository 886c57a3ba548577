"""Hostile clients of each kind in memory.py's table do to a server what the kind's name states."""

import asyncio
from collections.abc import Callable

import pytest

import uringcore
from tests.http.hostile.attacked_server import MIB, attacked_server
from tests.http.hostile.attacks import (
    DONE,
    ENDS,
    KINDS,
    LARGE_FILE,
    QLOG_DIR,
    SMALL_WINDOW,
    attackers,
)
from tests.http.hostile.server_memory_table import arguments
from tests.http.hostile.test_hostile_files import open_files
from tests.http.hostile.test_hostile_memory import metrics, wait_metric
from tests.http.raw_client import WAIT_SECONDS
from uringcore.h3.connection import ErrorCode

pytestmark = [pytest.mark.either_backend, pytest.mark.peer_input]

MOVES_DROPPED = "uringcore_quic_endpoint_moves_dropped_total"
DATAGRAMS = "uringcore_quic_endpoint_datagrams_total"


async def until(condition: Callable[[], object], seconds: float = WAIT_SECONDS):
    """Waits until a condition holds."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, (DONE, ENDS)
        await asyncio.sleep(0.05)


async def running(attacked, path, count, *, started=None):
    """Waits until `count` calls of an application are running."""
    wanted = {"running": count} if started is None else {"running": count, "started": started}
    await attacked.wait_state(path, **wanted)


async def uploads_wait(attacked, folder):
    await running(attacked, "hang", 16)


async def responses_wait(attacked, folder):
    await running(attacked, "flood", 100)


async def files_are_open(attacked, folder):
    await running(attacked, "file", 100)
    await until(lambda: open_files(attacked.server, LARGE_FILE) > 1)


async def responses_go_on(attacked, folder):
    """Some responses make progress, and none has ended since the first."""
    await running(attacked, "flood", 100, started=100)
    await until(lambda: DONE["bytes taken"] >= 3 * SMALL_WINDOW)
    await running(attacked, "flood", 100, started=100)


async def connections_are_closed(attacked, folder):
    await until(lambda: ENDS[ErrorCode.H3_EXCESSIVE_LOAD] > 1)
    assert DONE["connections"] > 1 and min(DONE["resets"], DONE["stops"]) > 10, DONE
    found = await attacked.state("waits")
    assert found["disconnects"] > 10, found


async def addresses_change(attacked, folder):
    await wait_metric(attacked.server, MOVES_DROPPED, 1)
    # Half of the path probes are lost, so a download waits for probe time-outs, some of them for seconds.
    await until(lambda: DONE["bytes taken"] > 1_000_000, 3 * WAIT_SECONDS)


async def sockets_wait(attacked, folder):
    await running(attacked, "socket", 16)


async def three_sessions_wait(attacked, folder):
    await running(attacked, "session", 3)
    await wait_metric(attacked.server, DATAGRAMS, 1000)


async def a_session_waits(attacked, folder):
    await running(attacked, "session", 1)


async def heads_wait(attacked, folder):
    """Five incomplete sections use memory."""
    await wait_metric(attacked.server, "uringcore_quic_endpoint_held_bytes", 5 * 45_000)


async def nothing(attacked, folder):
    assert (await metrics(attacked.server))["uringcore_quic_endpoint_connections"] > 1


async def traces_grow(attacked, folder):
    """More than the sent bytes: a frame takes several times its size."""

    def traced():
        return sum(path.stat().st_size for path in folder.iterdir())

    await until(lambda: traced() > MIB)
    found = await metrics(attacked.server)
    assert traced() > 2 * found["uringcore_quic_endpoint_payload_bytes_total"], found


PROOFS = {
    "unread uploads": uploads_wait,
    "slow readers": responses_wait,
    "slow readers of files": files_are_open,
    "downloads at the least rate": responses_go_on,
    "early resets": connections_are_closed,
    "moves": addresses_change,
    "forged addresses": addresses_change,
    "WebSockets, large messages": sockets_wait,
    "WebTransport datagrams": three_sessions_wait,
    "WebTransport streams": a_session_waits,
    "header sections without end": heads_wait,
    "handshakes and silence": nothing,
    "small frames, traced": traces_grow,
}


@pytest.mark.parametrize("kind", list(KINDS))
def test_each_kind_of_hostile_client(besiege, tmp_path, kind):
    options = ["--metrics-path", "/metrics", "--http3-max-early-resets", "50"]
    folder = tmp_path / "traces"
    if KINDS[kind].traced:
        folder.mkdir()
        options += [QLOG_DIR, str(folder)]
    server = besiege(*options)
    DONE.clear()
    ENDS.clear()

    async def attack():
        async with attacked_server(server, memory_mib=256) as attacked:
            async with attackers(server, kind, 1):
                await until(lambda: DONE["connections"])
                await PROOFS[kind](attacked, folder)
            await attacked.others_served()

    uringcore.run(asyncio.wait_for(attack(), 150))
    if KINDS[kind].relay is not None:
        # More than a connection may have at once.
        assert DONE["addresses"] > 10, DONE


def test_a_kind_that_is_not_there_is_refused(capsys):
    with pytest.raises(SystemExit) as refused:
        arguments(["--kinds", "early resets", "early rests"])
    assert refused.value.code == 2
    assert "invalid choice: 'early rests'" in capsys.readouterr().err
    assert arguments(["--kinds", "early resets"]).kinds == ["early resets"]
