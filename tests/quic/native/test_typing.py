"""What type checkers see of a program that uses ``uringcore.quic``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import uringcore.quic
from tests.quic.native import typed_program

ROOT = Path(__file__).parents[3]
PROGRAM = Path(typed_program.__file__)


def _mypy(path, cache):
    pytest.importorskip("mypy", reason="mypy is part of the development environment alone")
    flags = ["--strict", "--disallow-any-expr", "--follow-imports=silent", f"--cache-dir={cache}"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *flags, str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_program_has_no_any_in_it(tmp_path):
    status, said = _mypy(PROGRAM, tmp_path)
    assert status == 0, said


def test_the_check_would_find_one(tmp_path):
    program = tmp_path / "program.py"
    wrong = PROGRAM.read_text().replace("reply: bytes = await", "reply: str = await")
    program.write_text(wrong + "\n\nasync def g(c: quic.Connection) -> None:\n    c.no_such()\n")
    status, said = _mypy(program, tmp_path / "cache")
    assert status == 1
    assert "no_such" in said and "Incompatible types" in said


def test_the_program_runs(run_anywhere, pki):
    files = (str(pki.server.certfile), str(pki.server.keyfile))
    reply = run_anywhere(typed_program.main(files, str(pki.authority.certfile)))
    assert reply == b"hello\nworld!"


def test_every_public_name_is_there():
    for name in uringcore.quic.__all__:
        assert getattr(uringcore.quic, name) is not None
        assert name in dir(uringcore.quic)
    with pytest.raises(AttributeError):
        _ = uringcore.quic.no_such_name
