"""`python -m tests.stress --seed N --seconds S --backend uring`: runs, then prints the actions and the
violations.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.stress.scenarios import SCENARIOS
from tests.stress.stress_round import stress


def main() -> int:
    """Returns status 1 if a rule was broken, 3 after a hang."""
    parser = argparse.ArgumentParser(prog="python -m tests.stress", description=__doc__)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--backend", choices=("uring", "epoll", "asyncio"), default="uring")
    parser.add_argument(
        "--scenarios", nargs="*", help="only these", choices=[one.__name__ for one in SCENARIOS]
    )
    options = parser.parse_args()
    chosen = [
        one for one in SCENARIOS if not options.scenarios or one.__name__ in options.scenarios
    ]
    report = stress(options.backend, options.seed, options.seconds, chosen)
    done = ", ".join(f"{name} {count}" for name, count in sorted(report.scenarios.items()))
    print(f"{options.backend}, seed {options.seed}: {report.rounds} rounds; {done}")
    print(f"resident MiB: first {report.memory[0] >> 20}, last {report.memory[-1] >> 20}")
    for violation in report.violations:
        print(violation)
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
