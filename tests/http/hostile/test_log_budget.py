"""The number of log lines that any number of clients may cause, by a simulated clock."""

import logging
import sys

import pytest

from tests.support.fake_clock import Clock
from uringcore import _log_rate_limits
from uringcore._log_rate_limits import (
    ALL_FACTOR,
    NETWORKS_KEPT,
    ClientLog,
    LogBudget,
    in_one_line,
    network,
)

LINES = 10


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def budget(clock):
    return LogBudget(LINES, clock=clock)


def said(budget, name, asked=50):
    """Returns how many of its lines a network may log."""
    return sum(budget.take(name, "client") > 0 for _ in range(asked))


def test_a_network_has_its_lines_and_then_one_a_minute(budget, clock):
    assert [budget.take("a", "client") for _ in range(12)] == [2] * 9 + [1, 0, 0]
    clock.now += 59
    assert said(budget, "a") == 0
    clock.now += 1
    assert said(budget, "a") == 1
    clock.now += 3600
    assert said(budget, "a") == LINES
    # Other networks keep their budgets.
    assert said(budget, "b") == LINES


def test_all_networks_together_have_a_bound(budget, clock):
    """1,500 of them, which are more than the budget remembers, and then as many as the total
    allows.
    """
    total = LINES * ALL_FACTOR
    assert sum(said(budget, f"network {number}") for number in range(1500)) == total
    for _ in range(3):
        clock.now += 60
        assert sum(said(budget, f"network {number}", 3) for number in range(1500)) == ALL_FACTOR
    assert budget.networks <= NETWORKS_KEPT


def test_networks_that_are_not_remembered_share_the_lines_of_one(clock):
    budget = LogBudget(NETWORKS_KEPT, clock=clock)
    # Each has logged a line lately: none can be forgotten without loss.
    for number in range(NETWORKS_KEPT):
        assert budget.take(f"known {number}", "client")
    assert budget.networks == NETWORKS_KEPT
    others = sum(budget.take(f"other {number}", "client") > 0 for number in range(100_000))
    assert others == NETWORKS_KEPT
    assert budget.networks == NETWORKS_KEPT
    # Remembered networks keep their budgets.
    assert budget.take("known 5", "client")
    # When all budgets have refilled, new networks replace old ones.
    clock.now += 61
    assert budget.take("one of the others", "client")
    assert budget.take("known 5", "client")
    assert budget.networks == NETWORKS_KEPT


def test_omitted_lines_are_counted_and_logged_once_a_minute(budget, clock):
    assert budget.summary(at_once=True) is None
    said(budget, "127.0.0.7", 12)
    budget.take("127.0.0.7", "departure")
    assert budget.summary() is None
    clock.now += 60
    line = budget.summary()
    assert line == (
        "3 lines about clients were left out: 2 invalid or unanswerable requests, "
        "1 exceptions in applications whose client had gone or takes too little; the last about 127.0.0.7"
    )
    assert budget.summary(at_once=True) is None
    said(budget, "127.0.0.7", 2)
    assert budget.summary() is None
    assert budget.summary(at_once=True).startswith("1 lines")


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        (("192.0.2.7", 4433), "192.0.2.7"),
        (("2001:db8:1:2:3:4:5:6", 4433), "2001:db8:1:2::/64"),
        (("::ffff:192.0.2.7", 4433), "192.0.2.7"),
        (["fe80::1%eth0", 4433], "fe80::/64"),
        # Values from a proxy or an application, or none at all.
        (("unknown", 0), _log_rate_limits.UNKNOWN),
        (("x\ny", 0), _log_rate_limits.UNKNOWN),
        ((), _log_rate_limits.UNKNOWN),
        (None, _log_rate_limits.UNKNOWN),
        ({}, _log_rate_limits.UNKNOWN),
        (7, _log_rate_limits.UNKNOWN),
    ],
)
def test_the_budget_of_a_client_is_its_networks(client, expected):
    assert network(client) == expected


class Hostile(Exception):
    def __repr__(self):
        raise RuntimeError


def raised(error):
    try:
        raise error
    except BaseException as caught:
        return caught


@pytest.mark.parametrize(
    ("error", "beginning"),
    [
        (ValueError("one\ntwo"), "ValueError('one\\ntwo') ("),
        (Hostile(), "Hostile ("),
        (UnicodeError("\x1b[31m" + "x" * 10_000), "UnicodeError('\\x1b[31mxxx"),
    ],
)
def test_an_exception_in_one_line(error, beginning):
    line = in_one_line(raised(error))
    assert line.startswith(beginning)
    assert len(line.splitlines()) == 1
    assert line.endswith(", in raised)") and __file__ in line
    assert len(line) < 600
    assert in_one_line(error.with_traceback(None)) == line[: line.rindex(" (")]


def test_reports_of_every_kind(caplog):
    caplog.set_level(logging.INFO)
    log = ClientLog(logging.getLogger("test"), LINES)
    client = ("192.0.2.7", 4433)
    error = raised(ValueError("x"))
    for _ in range(15):
        log.report("client", "Invalid.", client)
        log.report("departure", "Gone", (client, error))
        log.report("load", "Busy.", None)
        log.report("fault", "Ours\n", error)
        log.report("application", "Theirs\n", error)
        log.report("debug", "Shown", {"x": 1})
    log.close()
    lines = [record.getMessage() for record in caplog.records]
    # An application's own errors do not count: each is logged, with its traceback.
    assert lines.count("Theirs\n") == 15
    of_client = [line for line in lines if line.startswith(("Invalid.", "Gone: ValueError('x') ("))]
    assert len(of_client) == LINES
    assert of_client[-1].endswith(" (more of this is left out for a minute)")
    assert sum(line.startswith("Busy.") for line in lines) == LINES
    ours = [line for line in lines if line.startswith("Ours")]
    assert ours == ["Ours"] * (LINES - 1) + ["Ours (more of this is left out for a minute)"]
    assert lines[-1].startswith("30 lines about clients were left out: ")
    traced = [record for record in caplog.records if record.exc_info]
    assert len(traced) == 15 + LINES
    assert len(lines) == 15 + 3 * LINES + 1


def test_a_budget_takes_the_room_of_the_networks_that_it_remembers(budget):
    """Independent of the number of networks."""
    for number in range(100_000):
        budget.take(f"network {number}", "client")
    assert budget.networks <= NETWORKS_KEPT
    assert sys.getsizeof(budget._left_out) < 1024
