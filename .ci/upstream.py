"""Runs the reproductions of the reports for quinn-proto in docs/upstream: each still has to show its fault.

They are tests like quinn-proto's own, built into a copy of the release that Cargo.lock names. If a
reproduction passes, its fault is mended and its report can be removed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
REPORTS = ROOT / "docs" / "upstream"


def version() -> str:
    lock = (ROOT / "Cargo.lock").read_text()
    found = re.search(r'name = "quinn-proto"\nversion = "([^"]+)"', lock)
    assert found
    return found[1]


def source() -> Path:
    """The folder where cargo has unpacked that release; a build of this tree fetches it."""
    home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    folders = list(home.glob(f"registry/src/*/quinn-proto-{version()}"))
    if not folders:
        sys.exit(f"quinn-proto {version()} is not in {home}: cargo fetch")
    return folders[0]


def reproductions() -> dict[str, str]:
    """The Rust code of each report, by the name of its test."""
    found = {}
    for report in sorted(REPORTS.glob("quinn-proto-*.md")):
        (code,) = re.findall(r"^```rust\n(.*?)^```", report.read_text(), re.DOTALL | re.MULTILINE)
        (name,) = re.findall(r"#\[test\]\nfn (\w+)\(\)", code)
        found[name] = code
    return found


def main() -> int:
    tests = reproductions()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "quinn-proto"
        shutil.copytree(source(), copy)
        own = copy / "src" / "tests" / "mod.rs"
        own.chmod(0o644)
        own.write_text(own.read_text() + "\nmod reports;\n")
        code = "use super::*;\n\n" + "\n".join(tests.values())
        (copy / "src" / "tests" / "reports.rs").write_text(code)
        target = os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target"))
        done = subprocess.run(
            ["cargo", "test", "--lib", "tests::reports::"],
            cwd=copy,
            env=os.environ
            | {"CARGO_TARGET_DIR": f"{target}/upstream", "CARGO_TERM_COLOR": "never"},
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    results = dict(
        re.findall(r"^test tests::reports::(\w+) \.\.\. (ok|FAILED)$", done.stdout, re.MULTILINE)
    )
    if results.keys() != tests.keys():
        print(done.stdout[-5000:], done.stderr[-5000:], file=sys.stderr)
        return 2
    for name, result in results.items():
        print(
            f"{name}: {'shows its fault' if result == 'FAILED' else 'MENDED, or no reproduction'}"
        )
    return int("ok" in results.values())


if __name__ == "__main__":
    sys.exit(main())
