"""The figures of tests/README.md are read from pytest's reports."""

from __future__ import annotations

from pathlib import Path

from tests.support.room_durations import Room, read, rooms, written

REPORT = """\
<testsuites><testsuite>
<testcase classname="tests.loop.test_udp" name="test_one[uring]" time="1.25"/>
<testcase classname="tests.loop.test_udp" name="test_two" time="0.5"><skipped/></testcase>
<testcase classname="tests.quic.native.test_streams.TestClass" name="test_three" time="2"/>
<testcase time="0.0" />
</testsuite></testsuites>
"""
PAGE = "| [`loop`](loop) | 1 | 2 | the loop | |\n| [`quic`](quic) | 3 | 4 | QUIC, `loop` | |\n"


def test_a_report_is_added_up_by_rooms(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    cases = read([report])
    assert cases[2].module == "tests.quic.native.test_streams"
    assert rooms(cases) == {"loop": Room(2, 1, 1.75), "quic": Room(1, 0, 2.0)}


def test_the_rows_of_other_rooms_stay() -> None:
    page = written(PAGE, {"loop": Room(2773, 64, 1340.6)})
    assert page == PAGE.replace("| 1 | 2 |", "| 2,773 | 1,341 |")
