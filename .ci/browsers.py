"""Install the browsers of tests/browser, where that can be done.

    python3 .ci/browsers.py

They are Debian's packages, as users have them, and so is certutil, with which Firefox is told of the
tests' authority; Playwright, which drives them, is in the extra `browsers`. Says what is lacking and why,
with status 1, where they cannot be had: this is no Debian, or whoever asks has no rights.
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
