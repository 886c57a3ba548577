"""Autobahn's cases over HTTP/1.1, HTTP/2 (RFC 8441) and HTTP/3 (RFC 9220): the table of cases.py."""

from __future__ import annotations

import pytest

from tests.http.raw_client import needs_recent_aioquic
from tests.http.websocket.cases import CASES
from tests.http.websocket.connections import VERSIONS, connected, status_code

pytestmark = [pytest.mark.either_backend, pytest.mark.peer_input]


@pytest.mark.parametrize("number", CASES)
@pytest.mark.parametrize(
    "version",
    [pytest.param(it, marks=needs_recent_aioquic if it == "http3" else ()) for it in VERSIONS],
)
def test_a_case_of_autobahn(server, version, number):
    case = CASES[number]
    with connected(server, version) as socket:
        for piece in case.sent:
            socket.send(piece)
        replies = socket.wait_frames(len(case.replies))
        if case.fails is not None:
            replies += socket.wait_end()
            last = replies.pop()
            wanted = [*case.replies][: len(replies) if case.is_cut else None]
            assert (replies, status_code(last)) == (wanted, case.fails)
            return
        assert replies == [*case.replies]
        socket.send(case.ending)
        (last,) = socket.wait_end()
        assert status_code(last) == case.code


def test_no_case_is_missing():
    groups: dict[str, int] = {}
    for number in CASES:
        group = number.rpartition(".")[0]
        groups[group] = groups.get(group, 0) + 1
    utf8 = (5, 11, 4, 2, 4, 3, 5, 8, 5, 10, 1, 3, 5, 5, 5, 7, 8, 34, 7)
    before = {"1.1": 8, "1.2": 8, "2": 11, "3": 7, "4.1": 5, "4.2": 5, "5": 20}
    texts = {"6.1": 3, "6.2": 4, "6.3": 2, "6.4": 4}
    texts |= {f"6.{group}": count for group, count in enumerate(utf8, 5)}
    after = {"7.1": 6, "7.3": 6, "7.5": 1, "7.7": 13, "7.9": 9, "7.13": 2, "10.1": 1}
    assert groups == before | texts | after
