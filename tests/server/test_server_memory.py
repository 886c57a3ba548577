"""The memory budget for clients, as the command divides and reports it."""

import re
from dataclasses import replace

import pytest

from uringcore.devcert import DevelopmentCertificate
from uringcore.quic._available_memory import MEMORY_MIN, default_memory
from uringcore.quic.limits import ServerLimits
from uringcore.server import Config
from uringcore.server import _config as module
from uringcore.server._startup_errors import StartupError

MIB = 1 << 20
CONNECTION = 32 << 10
"""The share of an idle connection in the budget."""
# This logging configuration changes nothing in the test's own process.
AS_IT_IS = {"version": 1, "incremental": True}


def budget(**options):
    return Config("a:b", http3=False, log_config=AS_IT_IS, **options).quic_limits.memory


def test_workers_divide_the_budget():
    assert budget(http3_memory=64 * MIB) == 64 * MIB
    assert budget(http3_memory=64 * MIB, workers=4) == 16 * MIB
    assert budget(workers=2) == default_memory() // 2


def test_a_budget_that_is_too_small_for_its_workers_is_a_mistake(tmp_path):
    given = {"app": "a:b", "log_config": AS_IT_IS, "http3_memory": 8 * MIB, "workers": 4}
    certificate, key = DevelopmentCertificate.make().write(tmp_path)
    with pytest.raises(StartupError, match="--http3-memory: leaves 2097152 bytes"):
        Config(**given, ssl_certfile=certificate, ssl_keyfile=key)
    with pytest.raises(StartupError, match="--http3-memory: leaves 2097152 bytes"):
        Config(**given, http3=False)
    # With uvicorn's classes and without HTTP/3 the budget is unused.
    assert Config(**given, http3=False, http="h11").quic_limits.memory == MEMORY_MIN


def test_the_default_budget_is_enough_for_any_number_of_workers(tmp_path, monkeypatch):
    """Without the option, a small container with many workers still starts."""
    monkeypatch.setattr(module, "default_memory", lambda: 16 * MIB)
    certificate, key = DevelopmentCertificate.make().write(tmp_path)
    given = {"app": "a:b", "log_config": AS_IT_IS, "ssl_certfile": certificate, "ssl_keyfile": key}
    for workers, expected in ((1, 16), (4, 4), (5, 4), (64, 4)):
        assert Config(**given, workers=workers).quic_limits.memory == expected * MIB


def test_the_budget_is_an_option_and_a_metric(start):
    server = start("--http3-memory", str(48 * MIB), "--metrics-path", "/metrics")
    text = server.get("/metrics").content.decode()
    assert f'uringcore_quic_memory_budget_bytes{{worker="0"}} {48 * MIB}' in text
    held = re.search(
        r'^uringcore_quic_endpoint_held_bytes\{worker="0"\} (\d+)$', text, re.MULTILINE
    )
    # The scrape's own connection, and perhaps the previous one.
    assert int(held[1]) in (CONNECTION, 2 * CONNECTION)


@pytest.mark.parametrize(
    ("given", "of_an_address"),
    [
        ({}, 8192),
        ({"http3_max_connections": 40}, 10),
        ({"http3_max_connections": 41}, 11),
        ({"http3_max_connections": 1}, 1),
        ({"http3_max_connections": 1_000_000}, 8192),
        ({"http3_max_connections": 40, "http3_max_connections_per_address": 30}, 30),
        ({"http3_max_connections": 40, "http3_max_connections_per_address": None}, None),
    ],
)
def test_the_limit_of_one_address_is_below_all_connections_by_default(given, of_an_address):
    limits = Config("a:b", http3=False, log_config=AS_IT_IS, **given).quic_limits
    assert limits._options()["max_connections_per_address"] == of_an_address


def test_limits_of_connections_that_the_memory_never_reaches():
    enough = ServerLimits(memory=8 * MIB, max_connections=128, max_connections_per_address=64)
    assert enough._too_large_for_memory() == {}
    assert replace(enough, memory=8 * MIB - 1)._too_large_for_memory() == {
        "max_connections": 127,
        "max_connections_per_address": 63,
    }
    assert replace(enough, max_connections_per_address=None)._too_large_for_memory() == {}
