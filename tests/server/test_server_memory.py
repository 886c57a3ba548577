"""The budget for what clients make a server hold, as the command has it."""

import pytest

from uringcore.quic.memory import default_memory
from uringcore.server.config import ServerConfig
from uringcore.server.startup import StartupError

MIB = 1 << 20
# It leaves the test's own logging alone.
AS_IT_IS = {"version": 1, "incremental": True}


def budget(**options):
    return ServerConfig("a:b", http3=False, log_config=AS_IT_IS, **options).quic_limits.memory


def test_workers_divide_the_budget():
    assert budget(http3_memory=64 * MIB) == 64 * MIB
    assert budget(http3_memory=64 * MIB, workers=4) == 16 * MIB
    assert budget(workers=2) == default_memory() // 2


def test_a_budget_that_is_too_small_for_its_workers_is_a_mistake():
    with pytest.raises(StartupError, match="--http3-memory: leaves 524288 bytes"):
        budget(http3_memory=2 * MIB, workers=4)


def test_the_budget_is_an_option_and_a_metric(start):
    server = start("--http3-memory", str(48 * MIB), "--metrics-path", "/metrics")
    text = server.get("/metrics").content.decode()
    assert f'uringcore_quic_memory_budget_bytes{{worker="0"}} {48 * MIB}' in text
    assert 'uringcore_quic_endpoint_held_bytes{worker="0"} 0' in text


def test_many_connections_come_from_one_address_and_not_all():
    limits = ServerConfig("a:b", http3=False, log_config=AS_IT_IS).quic_limits
    assert limits.max_connections_per_address * 8 == limits.max_connections
