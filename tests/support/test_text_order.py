"""Code that runs at import is contiguous in the extension module, if the linker reads its linker script."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from uringcore import _uringcore

MODULE = Path(str(_uringcore.__file__))
NEAR = 256 << 10


def _readelf(*options: str) -> list[list[str]]:
    command = ["readelf", "--wide", *options, str(MODULE)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    return [line.replace("[ ", "[").split() for line in done.stdout.splitlines()]


@pytest.mark.skipif(shutil.which("readelf") is None, reason="binutils are not installed")
@pytest.mark.skipif(b"Linker: LLD" not in MODULE.read_bytes(), reason="only LLD orders functions")
def test_functions_that_create_types_are_at_the_beginning_of_the_text() -> None:
    text = next(words for words in _readelf("--sections") if words[1:2] == [".text"])
    begin, size = int(text[3], 16), int(text[5], 16)
    symbols = [words for words in _readelf("--syms") if words[3:4] == ["FUNC"]]
    makers = {
        int(words[1], 16)
        for words in symbols
        if "18create_type_object" in words[-1] or words[-1] == "PyInit__uringcore"
    }
    assert len(makers) > 10 and size > 4 * NEAR
    assert begin <= min(makers) and max(makers) < begin + NEAR
