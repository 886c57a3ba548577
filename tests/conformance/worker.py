"""One process that runs one group on one loop and prints each test's start and outcome as JSON
lines.

The lines go to a pipe of their own (`--report FD`), since tests print to stdout. SIGABRT makes the
process dump every thread's stack to stderr and die; the runner sends it after a hang.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import time
import unittest
from fnmatch import fnmatchcase
from typing import Any

from tests.conformance.suites import load, loop_class, test_id

PASS, FAIL, SKIP = "pass", "fail", "skip"


class Outcome(unittest.TestResult):
    """The outcome of a single test with the first line that explains it."""

    def __init__(self) -> None:
        super().__init__()
        self.status = PASS
        self.detail = ""

    def _failed(self, err: Any, test: unittest.TestCase) -> None:
        self.status = FAIL
        self.detail = self._exc_info_to_string(err, test)  # type: ignore[attr-defined]

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        """An exception other than an assertion."""
        self._failed(err, test)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        """An assertion that does not hold."""
        self._failed(err, test)

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        """The end of a sub-test; its failure is the test's failure."""
        if err is not None:
            self._failed(err, subtest)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        """The test does not apply here."""
        self.status, self.detail = SKIP, reason

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:
        """A failure that CPython expects: counts as a pass."""

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        """CPython expects a failure that did not come."""
        self.status, self.detail = FAIL, "passed, where CPython expects a failure"


def main() -> None:
    """Run the tests of the group that are not among those already done."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--loop", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--report", type=int, required=True)
    parser.add_argument("--done", default="[]", help="JSON list of tests to leave out")
    parser.add_argument("--only", default="[]", help="JSON list of patterns; all tests if empty")
    options = parser.parse_args()
    # Children that the tests start must not keep the runner's pipe open.
    os.set_inheritable(options.report, False)
    report = os.fdopen(options.report, "w", buffering=1)
    faulthandler.enable()
    done, only = set(json.loads(options.done)), json.loads(options.only)
    tests = load(options.group, loop_class(options.loop))
    for test in tests:
        name = test_id(test)
        if name in done or (only and not any(fnmatchcase(name, one) for one in only)):
            continue
        print(json.dumps({"start": name}), file=report)
        outcome = Outcome()
        begin = time.monotonic()
        # A suite of one test includes the class's and the module's set-up and tear-down.
        unittest.TestSuite([test]).run(outcome)
        line = {
            "test": name,
            "status": outcome.status,
            "detail": outcome.detail,
            "seconds": round(time.monotonic() - begin, 3),
        }
        print(json.dumps(line), file=report)
    print(json.dumps({"end": len(tests)}), file=report)
    report.close()
    # Leftovers of a failed test (threads, loops) must not turn into a hang at exit.
    os._exit(0)


if __name__ == "__main__":
    main()
