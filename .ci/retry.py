"""Run the failed tests once more, alone, after the whole run has ended.

    python3 .ci/retry.py 3.11=1 3.13=1

An argument is a version and pytest's exit status. For each version the script reads pytest's record of the
last failures from `.pytest_cache/VERSION` (`make test-all` sets this folder) and runs those tests again in
one process in `.venv-VERSION`. The exit status is 0 only if all of them pass. A test that passes the second
time is printed as unsteady: the run does not fail because of it, and the test still has to be mended.

More than FAILURES_MAX failures on one version mean a broken build, and nothing runs again. Nothing runs
again either after a run that pytest did not complete: the record lacks the tests that did not run. pytest's
status does not show an early end by `-x` or `--maxfail`, so `make test-all` refuses RETRY together with them.
"""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FAILURES_MAX = 12
TESTS_FAILED = "1"
"""pytest's exit status of a completed run with failures, also of one that `-x` or `--maxfail` ended. Other
statuses are an interruption or an error of pytest."""


def main(runs):
    unsteady, broken = [], []
    for run in runs:
        version, _, status = run.partition("=")
        if status != TESTS_FAILED:
            print(f"CPython {version}: pytest ended with status {status}; nothing runs again")
            broken.append(version)
            continue
        names = failures(version)
        if not 0 < len(names) <= FAILURES_MAX:
            print(f"CPython {version}: {len(names)} recorded failures; nothing runs again")
            broken.append(version)
            continue
        print(f"== {len(names)} failed on CPython {version}; once more, alone", flush=True)
        python = ROOT / f".venv-{version}" / "bin" / "python"
        command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *names]
        if subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL).returncode:
            broken.append(version)
        else:
            unsteady += [f"CPython {version}: {name}" for name in names]
    for test in unsteady:
        print(f"UNSTEADY, to be mended before anything else: {test}", file=sys.stderr)
    if broken:
        sys.exit(f"failed on CPython {' '.join(broken)}")


def failures(version):
    """The names of the tests that failed last on this version; empty without a record."""
    record = ROOT / ".pytest_cache" / version / "v" / "cache" / "lastfailed"
    try:
        return sorted(json.loads(record.read_text()))
    except (OSError, ValueError):
        return []


if __name__ == "__main__":
    main(sys.argv[1:])
