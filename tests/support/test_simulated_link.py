"""The simulated link: exact results, and statistics of fixed seeds for random ones."""

from __future__ import annotations

from itertools import groupby

import pytest

from tests.support.simulated_link import Conditions, Link

COUNT = 20_000


def fates(conditions, seed=1, count=COUNT, size=100):
    """Sends `count` datagrams at once. Returns the link and a list of their arrivals as booleans."""
    link = Link(conditions, seed)
    return link, [bool(link.send(0.0, bytes(size))) for _ in range(count)]


def runs(values, wanted):
    return [len(list(group)) for value, group in groupby(values) if value is wanted]


def test_a_perfect_link_changes_nothing():
    link = Link()
    assert link.send(3.5, b"abc") == [(3.5, b"abc")]
    assert (link.counts.taken, link.counts.arrived, link.counts.bytes_arrived) == (1, 1, 3)


def test_the_same_seed_gives_the_same_fate_and_another_seed_another():
    conditions = Conditions(loss=0.3, corrupt=0.2, reorder=0.1, duplicate=0.1)

    def result(seed):
        link = Link(conditions, seed)
        return [link.send(n / 100, bytes([n & 255] * 50)) for n in range(500)]

    assert result(7) == result(7)
    assert result(7) != result(8)


@pytest.mark.parametrize("loss", [0.02, 0.3, 0.9])
def test_independent_losses_have_their_share(loss):
    link, arrived = fates(Conditions(loss=loss))
    assert abs(arrived.count(False) / COUNT - loss) < 0.015
    assert link.counts.lost == arrived.count(False)
    assert link.counts.arrived == COUNT - link.counts.lost


@pytest.mark.parametrize("burst", [1, 3, 10])
def test_bursts_have_their_length_and_leave_the_share_alone(burst):
    _, arrived = fates(Conditions(loss=0.1, burst=burst))
    lengths = runs(arrived, False)
    assert abs(sum(lengths) / COUNT - 0.1) < 0.02
    assert abs(sum(lengths) / len(lengths) / burst - 1) < 0.15


def test_losses_in_a_row_have_a_limit():
    _, arrived = fates(Conditions(loss=0.6, burst_max=3))
    assert max(runs(arrived, False)) == 3
    _, arrived = fates(Conditions(loss=1.0, burst_max=3), count=8)
    assert arrived == [False, False, False, True] * 2


def test_named_datagrams_are_dropped():
    link, arrived = fates(Conditions(drop=frozenset(range(2, 8))), count=10)
    assert arrived == [True] + [False] * 6 + [True] * 3
    assert link.counts.dropped == 6


def test_corruption_changes_exactly_one_byte_and_has_its_share():
    link = Link(Conditions(corrupt=0.25), seed=2)
    sent = bytes(range(200))
    changes = []
    for _ in range(COUNT):
        ((_, data),) = link.send(0.0, sent)
        assert len(data) == len(sent)
        changes.append(sum(a != b for a, b in zip(sent, data, strict=True)))
    assert set(changes) == {0, 1}
    assert abs(sum(changes) / COUNT - 0.25) < 0.02
    assert link.counts.corrupted == sum(changes)


def test_corruptions_in_a_row_have_a_limit():
    link = Link(Conditions(corrupt=1.0, corrupt_max=2))
    whole = [link.send(0.0, b"abcdef")[0][1] == b"abcdef" for _ in range(6)]
    assert whole == [False, False, True] * 2


def test_reordering_holds_back_and_duplication_repeats():
    link = Link(Conditions(delay=1.0, reorder=0.5, reorder_delay=0.25, duplicate=0.5), seed=3)
    late = twice = 0
    for _ in range(COUNT):
        arrivals = link.send(10.0, b"x")
        assert len({when for when, _ in arrivals}) == 1
        assert arrivals[0][0] in (11.0, 11.25)
        late += arrivals[0][0] == 11.25
        twice += len(arrivals) == 2
    assert abs(late / COUNT - 0.5) < 0.02 and abs(twice / COUNT - 0.5) < 0.02
    assert (link.counts.reordered, link.counts.duplicated) == (late, twice)


def test_a_rate_spaces_datagrams_and_its_queue_has_an_end():
    # 972 bytes and 28 of headers at 8 Mbit/s: a millisecond each.
    link = Link(Conditions(delay=0.5, rate=8e6, queue=5))
    arrivals = [link.send(100.0, bytes(972)) for _ in range(10)]
    times = [round(found[0][0] - 100.5, 6) for found in arrivals if found]
    # One is being sent, and five wait.
    assert times == [0.001, 0.002, 0.003, 0.004, 0.005, 0.006]
    assert link.counts.overflowed == 4
    # Half of the queue has left by then.
    assert [bool(link.send(100.0031, bytes(972))) for _ in range(5)] == [True] * 3 + [False] * 2
    # An idle link keeps no credit and no debt.
    ((when, _),) = link.send(200.0, bytes(972))
    assert round(when - 200.5, 6) == 0.001


def test_a_black_hole_comes_again_and_again():
    link = Link(Conditions(black_hole=(5.0, 2.0)))
    up = [bool(link.send(1000 + second, b"x")) for second in range(16)]
    assert up == ([True] * 5 + [False] * 2) * 2 + [True] * 2
    assert link.counts.swallowed == 4


def test_turning_a_harm_on_leaves_the_others_as_they_were():
    _, alone = fates(Conditions(loss=0.2), seed=5, count=500)
    _, with_delay = fates(Conditions(loss=0.2, delay=0.1, rate=1e9), seed=5, count=500)
    assert alone == with_delay


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"loss": 1.5}, "loss"),
        ({"corrupt": -0.1}, "corrupt"),
        ({"burst": 0.5}, "burst"),
        ({"rate": 0.0}, "rate"),
        ({"queue": 5}, "queue"),
    ],
)
def test_invalid_conditions_are_refused_by_name(fields, name):
    with pytest.raises(ValueError, match=f"^{name}: "):
        Conditions(**fields)
