"""Clients that fill the server's memory: together they stay within one budget, and others are
served.
"""

import asyncio
from collections import Counter

import pytest

import uringcore
from tests.http import http3_bytes
from tests.http.hostile.attacked_server import MIB, attacked_server, own_bytes
from tests.http.hostile.attacks import ENDS, KEPT, ask, attackers, control
from tests.http.raw_client import WAIT_SECONDS
from uringcore import quic

BUDGET = 32 * MIB
CONNECTION = 32 << 10
CLOSED_CRITICAL_STREAM = 0x104
COUNT = 12
"""The number of clients. Each may hold several MiB: two to five times the budget if there were none."""


async def metrics(server):
    """Returns the values of all metrics by name; those with several labels are added up."""
    response = await asyncio.to_thread(server.get, "/metrics")
    found = Counter()
    for line in response.content.decode().splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            found[name.partition("{")[0]] += float(value)
    return found


def run(attack):
    """On our loop: the clients are fast."""
    uringcore.run(asyncio.wait_for(attack, 150))


KINDS = {
    "unread uploads": ("uringcore_quic_endpoint_credit_withheld_total",),
    "slow readers": ("uringcore_quic_endpoint_shed_total",),
    "WebSockets, large messages": ("uringcore_quic_endpoint_credit_withheld_total",),
    "WebTransport datagrams": (),
    "WebTransport streams": ("uringcore_quic_endpoint_credit_withheld_total",),
}


@pytest.mark.either_backend
@pytest.mark.parametrize("kind", list(KINDS))
def test_a_flood_stays_within_the_budget_and_leaves_nothing(besiege, kind):
    server = besiege("--http3-memory", str(BUDGET), "--metrics-path", "/metrics")

    ENDS.clear()

    async def attack():
        # Besides the counted bytes: data in flight, Python objects of the requests, heap
        # fragmentation.
        async with attacked_server(server, memory_mib=3.5 * BUDGET / MIB) as attacked:
            async with attackers(server, kind, COUNT):
                await wait_metric(server, "uringcore_quic_endpoint_held_bytes", BUDGET // 4)
                for name in KINDS[kind]:
                    await wait_metric(server, name, 1)
                for _ in range(8):
                    await attacked.others_served()
                    await asyncio.sleep(0.2)
                found = await metrics(server)
                assert found["uringcore_quic_memory_budget_bytes"] == BUDGET
                # One iteration's data may arrive before the server sheds.
                assert found["uringcore_quic_endpoint_held_bytes"] < 1.5 * BUDGET
            await attacked.others_served()
            # The server sheds streams that hold data, never those whose end would close the
            # connection.
            assert CLOSED_CRITICAL_STREAM not in ENDS, ENDS

    run(attack())


def test_memory_goes_back_to_the_system_after_a_flood(besiege):
    """The default budget is far away, so that the server holds everything; then the clients
    disconnect.
    """
    server = besiege("--metrics-path", "/metrics")

    async def attack():
        async with attacked_server(server, memory_mib=1024) as attacked:
            async with attackers(server, "unread uploads", COUNT):
                await wait_metric(server, "uringcore_quic_endpoint_held_bytes", 64 * MIB)
                held = own_bytes(server) - attacked.before
            await wait_below(attacked, held / 4)

    run(attack())


def test_content_counts_with_the_room_that_its_buffer_has_grown_by(besiege):
    """A growing buffer doubles from time to time, and is then nearly twice as large as its content."""
    server = besiege("--metrics-path", "/metrics")

    async def attack():
        config = quic.ClientConfig(alpn=["h3"], verify=False)
        async with quic.connect("127.0.0.1", server.port, config) as client:
            await control(client)
            stream = await ask(client, http3_bytes.request("/hang", method="POST"))
            try:
                assert await ratio_of_growth(server, stream) > 1.4
            finally:
                KEPT.pop(id(client), None)

    run(attack())


async def ratio_of_growth(server, stream):
    """Returns how much more than its content a request counts, at most, as the content arrives in
    small parts.
    """
    sent, ratio = 0, 0.0
    for size in (40_000, *[10_000] * 5):
        await stream.send(http3_bytes.frame(http3_bytes.DATA, bytes(size)))
        sent += size
        deadline = asyncio.get_running_loop().time() + WAIT_SECONDS
        # Changes of less than 4 KiB do not count.
        while (held := await held_beside_connections(server)) < sent - 4096:
            assert asyncio.get_running_loop().time() < deadline, (held, sent)
            await asyncio.sleep(0.1)
        ratio = max(ratio, held / sent)
    return ratio


async def held_beside_connections(server):
    found = await metrics(server)
    connections = found["uringcore_quic_endpoint_connections"]
    return found["uringcore_quic_endpoint_held_bytes"] - CONNECTION * connections


async def wait_metric(server, name, least):
    """Waits until a metric has this value."""
    deadline = asyncio.get_running_loop().time() + WAIT_SECONDS
    while (found := await metrics(server))[name] < least:
        assert asyncio.get_running_loop().time() < deadline, found
        await asyncio.sleep(0.1)


async def wait_below(attacked, size):
    """Waits until the server's memory has shrunk again."""
    deadline = asyncio.get_running_loop().time() + WAIT_SECONDS
    while attacked.grown_bytes > size:
        assert asyncio.get_running_loop().time() < deadline, attacked.grown_bytes / MIB
        await asyncio.sleep(0.2)
