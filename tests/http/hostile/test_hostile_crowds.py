"""Clients that open connections and do nothing else: one address cannot use up all of them."""

import asyncio
import contextlib

import pytest

import uringcore
from tests.http.hostile.attacked_server import attacked_server
from tests.http.hostile.test_hostile_memory import wait_metric
from uringcore import quic
from uringcore.quic._errors import QuicConnectionRefusedError

REFUSED = "uringcore_quic_endpoint_incoming_turned_away_total"
CONFIG = quic.ClientConfig(alpn=["h3"], verify=False, keep_alive=5.0, close_timeout=0.0)


async def crowd(stack, server, host, most):
    """Opens as many connections as a server accepts from an address, at most ``most``."""
    for number in range(most):
        connecting = quic.connect("127.0.0.1", server.port, CONFIG, local_address=(host, 0))
        try:
            await stack.enter_async_context(connecting)
        except QuicConnectionRefusedError:
            return number
    return most


@pytest.mark.parametrize(
    ("options", "of_an_address"),
    [([], 10), (["--http3-max-connections-per-address", "30"], 30)],
)
def test_a_low_limit_of_all_connections_is_shared_by_addresses(besiege, options, of_an_address):
    server = besiege("--http3-max-connections", "40", "--metrics-path", "/metrics", *options)

    async def attack():
        async with (
            attacked_server(server, memory_mib=32) as attacked,
            contextlib.AsyncExitStack() as stack,
        ):
            assert await crowd(stack, server, "127.0.0.2", 40) == of_an_address
            await wait_metric(server, REFUSED, 1)
            await attacked.others_served()

    uringcore.run(asyncio.wait_for(attack(), 100))


def test_the_smallest_budget_serves_several_addresses(besiege):
    """32 connections of one address, 64 in total."""
    server = besiege("--http3-memory", str(4 << 20), "--metrics-path", "/metrics")

    async def attack():
        async with (
            attacked_server(server, memory_mib=32) as attacked,
            contextlib.AsyncExitStack() as stack,
        ):
            # Each connection leaves less for the next one of its address.
            assert 24 <= await crowd(stack, server, "127.0.0.2", 64) <= 32
            assert await crowd(stack, server, "127.0.0.3", 10) == 10
            await attacked.others_served()

    uringcore.run(asyncio.wait_for(attack(), 100))
