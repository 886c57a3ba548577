"""`python -m tests.stress.served --seconds 60 --seed N`: runs, then prints the actions and the violations."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.stress.served.trial import trial
from tests.support import inherited_signals


def main() -> int:
    """Returns status 1 if a rule was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.stress.served", description=__doc__)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--backend", choices=("uring", "epoll"), default="uring")
    options = parser.parse_args()
    inherited_signals.restore()
    with tempfile.TemporaryDirectory(prefix="served-") as folder:
        report = trial(options.backend, options.seed, options.seconds, Path(folder))
    print(f"{options.backend}, seed {options.seed}: {total(report.phases)}")
    print(f"answered: {total(report.answered)}")
    print(f"failed while workers died or ended: {total(report.failed) or 'nothing'}")
    for kind, (before, after) in report.footprints.items():
        print(
            f"{kind}: {before[0]} descriptors and {before[1] >> 20} MiB before, "
            f"{after[0]} and {after[1] >> 20} after"
        )
    for violation in report.violations:
        print(violation)
    return 1 if report.violations else 0


def total(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


if __name__ == "__main__":
    sys.exit(main())
