"""Install the browsers of tests/browser.

    python3 .ci/browsers.py

The browsers are Debian's packages, the ones that users have. certutil is installed too: it adds the tests'
authority to Firefox's certificates. Playwright drives the browsers and is in the extra `browsers`. The
script exits with status 1 and prints the lacking packages and the reason on a system other than Debian and
without root's rights.
"""

import os
import shutil
import subprocess
import sys

PACKAGES = {"chromium": "chromium", "firefox-esr": "firefox-esr", "certutil": "libnss3-tools"}
"""The package of each program."""


def main():
    lacking = {program: name for program, name in PACKAGES.items() if shutil.which(program) is None}
    if not lacking:
        return
    command = ["apt-get", "install", "--yes", "--no-install-recommends", *lacking.values()]
    by_hand = f"install {', '.join(lacking.values())} ({' '.join(command)})"
    if shutil.which("apt-get") is None:
        sys.exit(f"browsers.py: this is no Debian: {by_hand}")
    if os.geteuid() != 0:
        sys.exit(f"browsers.py: only root may: {by_hand}")
    print(f"browsers.py: installing {', '.join(lacking.values())}", file=sys.stderr, flush=True)
    for step in (["apt-get", "update"], command):
        done = run(step)
        if done.returncode != 0:
            sys.exit(f"browsers.py: {' '.join(step)} failed: {done.stdout.strip()[-500:]}")


def run(command):
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    quiet = [command[0], "-qq", *command[1:]]
    return subprocess.run(
        quiet,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1800,
    )


if __name__ == "__main__":
    main()
