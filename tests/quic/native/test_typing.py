"""Results of type checkers for programs that use QUIC: two programs of these tests, and the examples."""

from __future__ import annotations

from pathlib import Path

import pytest

import uringcore.quic
from tests.quic.native import typed_program, typed_protocol
from tests.quic.native.test_examples import EXAMPLES, NAMES
from tests.support.type_checkers import errors, mypy, pyright
from tests.webtransport import typed_program as typed_sessions

pytestmark = pytest.mark.lint
PROGRAM, PROTOCOL = Path(typed_program.__file__), Path(typed_protocol.__file__)
SESSIONS = Path(typed_sessions.__file__)
ALL = [PROGRAM, PROTOCOL, SESSIONS, *(EXAMPLES / f"{name}.py" for name in NAMES)]


def _mypy(folder, *paths):
    return mypy(folder, *paths, flags=("--disallow-any-expr",))


@pytest.mark.parametrize("checker", [_mypy, pyright])
def test_programs_have_nothing_unknown_in_them_and_mistakes_are_found(tmp_path, checker):
    wrong, other = tmp_path / "wrong_program.py", tmp_path / "wrong_protocol.py"
    wrong.write_text(
        PROGRAM.read_text().replace("reply: bytes = await", "reply: str = await")
        + "\n\nasync def g(c: quic.Connection) -> None:\n    c.no_such()\n"
    )
    # `connect` yields the type that the program's factory returns.
    other.write_text(
        PROTOCOL.read_text()
        .replace("client.ask(", "client.no_such(")
        .replace("plain.ping", "plain.ask")
    )
    status, said = checker(tmp_path, *ALL, wrong, other)
    assert status == 1, said
    of_wrong, of_other = ("\n".join(errors(said, program)) for program in (wrong, other))
    assert "no_such" in of_wrong and '"str"' in of_wrong
    assert "no_such" in of_other and "Asking" in of_other
    assert '"ask"' in of_other and "QuicConnectionProtocol" in of_other
    assert not [line for program in ALL for line in errors(said, program)], said


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
