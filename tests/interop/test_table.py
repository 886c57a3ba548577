"""The conversion of verdicts to the tables of docs/interoperability.md."""

from __future__ import annotations

import pytest

from tests.interop.results import LACKS, OURS_FAILS, PASS, Cell, Results
from tests.interop.table import BEGIN, END, PAGE, render, write


def results():
    found = Results(versions={"aioquic": "1.0"})
    found.put("handshake", "uringcore", "server", Cell(PASS))
    found.put("handshake", "aioquic", "server", Cell(PASS))
    found.put("handshake", "aioquic", "client", Cell(OURS_FAILS, "it stopped"))
    found.put("ecn", "aioquic", "server", Cell(LACKS, "no | marks"))
    found.put("ecn", "aioquic", "client", Cell(LACKS, "no | marks"))
    found.put("goodput", "aioquic", "server", Cell(PASS, figures={"kbit/s": 9100.0}))
    return found


def test_cells_are_distinguished_and_notes_occur_once():
    lines = render(results()).splitlines()
    assert lines[0] == "| case | uringcore | aioquic 1.0 |"
    assert lines[2].endswith("| ✓ | ✓ / ✗&nbsp;(1) |")
    assert lines[3].endswith("|  | –&nbsp;(2) / –&nbsp;(2) |")
    assert lines[4].endswith("|  | ✓ 9100 kbit/s / &nbsp; |")
    assert lines[-2:] == ["1. aioquic: it stopped", "2. aioquic: no \\| marks"]


def test_each_kind_of_case_has_a_table_of_its_own():
    found = results()
    found.put("web-get", "curl", "server", Cell(PASS))
    found.put("web-altsvc", "nginx", "client", Cell(PASS))
    quic, web = render(found).split("\n\n")[:2]
    assert quic.splitlines()[0] == "| case | uringcore | aioquic 1.0 |"
    assert web.splitlines()[0] == "| case | curl | nginx |"
    assert [line.partition(" | ")[2] for line in web.splitlines()[2:]] == [
        "✓ / &nbsp; |  |",
        " | &nbsp; / ✓ |",
    ]


def test_results_survive_their_file(tmp_path):
    path = tmp_path / "results.json"
    results().save(path)
    assert Results.load(path) == results()
    assert Results.load(tmp_path / "none.json") == Results()


def test_a_peer_that_is_absent_has_no_cell():
    found = results()
    assert found.drop("ecn", "aioquic")
    assert not found.drop("ecn", "aioquic")
    assert "no \\| marks" not in render(found)
    assert "✓ 9100 kbit/s" in render(found)


def test_the_table_goes_between_its_markers_and_nowhere_else(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write(path, "new")
    assert path.read_text() == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    path.write_text("no markers")
    with pytest.raises(SystemExit):
        write(path, "new")


def test_the_page_has_the_table_of_the_results():
    assert f"{BEGIN}\n\n{render(Results.load())}\n\n{END}" in PAGE.read_text()
