"""No argument crashes the interpreter: all native code gets odd ones, in a process of its own."""

import os
import subprocess
import sys

import pytest

from tests.server.harness import ROOT
from tests.support.child_processes import bound

SEED = 23
PARTS = {"made": 2, "settings": 2, "alive": 4}


@pytest.mark.parametrize(
    ("what", "part"), [(what, part) for what, parts in PARTS.items() for part in range(parts)]
)
def test_odd_arguments_neither_end_the_process_nor_panic_nor_hang(what, part, tmp_path):
    arguments = (what, part, PARTS[what], SEED)
    with (tmp_path / "stderr").open("w+") as errors:
        child = subprocess.run(
            bound([sys.executable, "-m", "tests.extension.odd_calls", *map(str, arguments)]),
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            timeout=600,
        )
        errors.seek(0)
        said = errors.read()
    last = child.stdout.splitlines()[-3:]
    assert child.returncode == 0, (child.returncode, last, said[-3000:])
    assert "panicked at" not in said, (last, said[-3000:])
    assert last[-1] == "done", last
