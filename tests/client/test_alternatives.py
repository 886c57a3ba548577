"""`Alt-Svc` (RFC 7838): its parsing, and the lifetime of its entries."""

from __future__ import annotations

import pytest

from tests.support.fake_clock import Clock
from uringcore.http3 import AlternativeCache
from uringcore.http3._alt_svc import (
    BROKEN_SECONDS,
    BROKEN_SECONDS_MAX,
    Alternative,
    parse_alt_svc,
)
from uringcore.http3._url import parse_url

ORIGIN = parse_url("https://example.org/")[0]
DAY = 86400.0


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ('h3=":443"', [Alternative("", 443, DAY)]),
        ('h3=":443"; ma=60', [Alternative("", 443, 60.0)]),
        ('h3="alt.example:8443";ma=60 ; persist=1', [Alternative("alt.example", 8443, 60.0, True)]),
        ('h3=":443"; persist=2', [Alternative("", 443)]),
        ('h3="[::1]:443"', [Alternative("::1", 443)]),
        ('h3=":443"; ma="60"', [Alternative("", 443, 60.0)]),
        ('h3=":443"; new=param', [Alternative("", 443)]),
        ('h2=":443", h3="b:1", h3="a:2"', [Alternative("b", 1), Alternative("a", 2)]),
        ('w%3Dx%3Ay#z=":443", h3=":1"', [Alternative("", 1)]),
        ('h3=":443", ', [Alternative("", 443)]),
        ('h2=":443"', []),
        ('h3-29=":443"', []),
        ('h3=":0"', []),
        ('h3=":65536"', []),
        ('h3=":x"', []),
        # Names that are invalid in Alt-Used or in a name look-up.
        ('h3="\N{LATIN SMALL LETTER E WITH ACUTE}.example:443"', []),
        ('h3="a b:443"', []),
        ('h3="a\\\tb:443"', []),
        (f'h3=":{"4" * 5000}"', []),
        (f'h3=":443"; ma={"4" * 5000}', []),
        ('h3=":\N{FULLWIDTH DIGIT FOUR}43"', []),
        (
            ", ".join(f'h3=":{port}"' for port in range(1, 99)),
            [Alternative("", port) for port in range(1, 9)],
        ),
        ('h3=":443"; ma=x', []),
        ("h3=443", []),
        ('h3=":443" h3=":444"', []),
        ('h3=":443', []),
        ("", []),
        ("\0", []),
        (" clear ", None),
    ],
)
def test_alt_svc_fields_are_parsed(field, expected):
    assert parse_alt_svc(field) == expected


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def cache(clock):
    return AlternativeCache(3, clock=clock)


def test_an_alternative_is_good_for_its_age(cache, clock):
    cache.learn(ORIGIN, 'h3=":8443"; ma=60, h3="other:1"; ma=100', age=10)
    assert [one.host for one in cache.find(ORIGIN)] == ["example.org", "other"]
    clock.now += 50
    assert [one.authority for one in cache.find(ORIGIN)] == ["other:1"]
    clock.now += 40
    assert cache.find(ORIGIN) == []
    assert len(cache) == 0
    cache.learn(ORIGIN, 'h3=":8443"; ma=60', age=60)
    assert cache.find(ORIGIN) == []


def test_a_field_stands_in_the_place_of_the_one_before(cache):
    for field, expected in (
        ('h3=":1"', [1]), ('h3=":2"', [2]), ("clear", []), ('h3=":3"', [3]), ('h2=":3"', []),
    ):  # fmt: skip
        cache.learn(ORIGIN, field)
        assert [one.port for one in cache.find(ORIGIN)] == expected


def test_persistent_alternatives_survive_a_change_of_network(cache):
    cache.learn(ORIGIN, 'h3=":1", h3=":2"; persist=1')
    first, second = cache.find(ORIGIN)
    cache.broke(ORIGIN, second)
    cache.changed_network()
    assert cache.find(ORIGIN) == [second]
    assert not cache.is_broken(ORIGIN, second)
    cache.forget(ORIGIN, second)
    assert cache.find(ORIGIN) == []
    assert first.port == 1


def test_the_number_of_origins_is_bounded(cache):
    origins = [parse_url(f"https://{name}/")[0] for name in "abcd"]
    for origin in origins[:3]:
        cache.learn(origin, 'h3=":1"')
    assert cache.find(origins[0])
    cache.learn(origins[3], 'h3=":1"')
    assert [bool(cache.find(origin)) for origin in origins] == [True, False, True, True]


def test_a_broken_alternative_is_avoided_for_longer_each_time(cache, clock):
    cache.learn(ORIGIN, 'h3=":1"; ma=99999999')
    (one,) = cache.find(ORIGIN)
    seconds = BROKEN_SECONDS
    while seconds < BROKEN_SECONDS_MAX:
        cache.broke(ORIGIN, one)
        # Several requests that fail at once count as one failure.
        cache.broke(ORIGIN, one)
        clock.now += seconds - 1
        assert cache.is_broken(ORIGIN, one)
        clock.now += 1
        assert not cache.is_broken(ORIGIN, one)
        seconds *= 2
    cache.broke(ORIGIN, one)
    clock.now += BROKEN_SECONDS_MAX
    assert not cache.is_broken(ORIGIN, one)
    cache.record_success(ORIGIN, one)
    cache.broke(ORIGIN, one)
    clock.now += BROKEN_SECONDS
    assert not cache.is_broken(ORIGIN, one)
