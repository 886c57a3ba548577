"""What type checkers see of programs that use QUIC: two of the tests', and the examples."""

from __future__ import annotations

from pathlib import Path

import pytest

import uringcore.quic
from tests.quic.native import typed_program, typed_protocol
from tests.quic.native.test_examples import EXAMPLES, NAMES
from tests.support.type_checkers import mypy, pyright
from tests.webtransport import typed_program as typed_sessions

PROGRAM, PROTOCOL = Path(typed_program.__file__), Path(typed_protocol.__file__)
SESSIONS = Path(typed_sessions.__file__)
ALL = [PROGRAM, PROTOCOL, SESSIONS, *(EXAMPLES / f"{name}.py" for name in NAMES)]


def _mypy(folder, *paths):
    return mypy(folder, *paths, flags=("--disallow-any-expr",))


def test_programs_have_no_any_in_them(tmp_path):
    status, said = _mypy(tmp_path, *ALL)
    assert status == 0, said


def test_another_checker_finds_nothing_unknown_in_them(tmp_path):
    status, said = pyright(tmp_path, *ALL)
    assert status == 0, said


@pytest.mark.parametrize("checker", [_mypy, pyright])
def test_the_check_would_find_one(tmp_path, checker):
    program = tmp_path / "program.py"
    wrong = PROGRAM.read_text().replace("reply: bytes = await", "reply: str = await")
    program.write_text(wrong + "\n\nasync def g(c: quic.Connection) -> None:\n    c.no_such()\n")
    status, said = checker(tmp_path, program)
    assert status == 1
    assert "no_such" in said and '"str"' in said


@pytest.mark.parametrize("checker", [_mypy, pyright])
def test_what_connect_yields_is_what_the_program_makes(tmp_path, checker):
    program = tmp_path / "program.py"
    wrong = (
        PROTOCOL.read_text()
        .replace("client.ask(", "client.no_such(")
        .replace("plain.ping", "plain.ask")
    )
    program.write_text(wrong)
    status, said = checker(tmp_path, program)
    assert status == 1
    assert "no_such" in said and "Asking" in said
    assert '"ask"' in said and "QuicConnectionProtocol" in said


@pytest.mark.parametrize("program", [typed_program, typed_protocol, typed_sessions])
def test_the_program_runs(run_anywhere, pki, program):
    files = (str(pki.server.certfile), str(pki.server.keyfile))
    reply = run_anywhere(program.main(files, str(pki.authority.certfile)))
    assert reply in (b"hello\nworld!", b"question", (b"how loud", {"/nowhere": 404}))


def test_every_public_name_is_there():
    for name in uringcore.quic.__all__:
        assert getattr(uringcore.quic, name) is not None
        assert name in dir(uringcore.quic)
    with pytest.raises(AttributeError):
        _ = uringcore.quic.no_such_name
