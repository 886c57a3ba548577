"""Gives the name `localhost` both address families in a suite.

Some suites expect it to have an IPv6 address, as on most machines; containers often lack the line
in /etc/hosts. The suite then gets its own /etc/hosts in a mount namespace of its own.
"""

from __future__ import annotations

import os
import socket
import subprocess

from tests.ecosystem.sources import HOME

_HOSTS = "127.0.0.1 localhost\n::1 localhost\n"


def with_ipv6_localhost() -> tuple[str, ...]:
    """Return a command prefix that gives `localhost` both addresses. It is empty if the name has
    them, or if that is impossible; then tests fail on every loop.
    """
    if _has_both():
        return ()
    hosts = HOME / "hosts"
    hosts.write_text(_HOSTS)
    user = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    prefix = (
        *("unshare", *user, "--mount", "sh", "-c"),
        *('mount --bind "$0" /etc/hosts && exec "$@"', str(hosts)),
    )
    try:
        done = subprocess.run([*prefix, "true"], capture_output=True)
    except FileNotFoundError:
        return ()
    return () if done.returncode else prefix


def _has_both() -> bool:
    families = set()
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.getaddrinfo("localhost", None, family)
        except socket.gaierror:
            continue
        families.add(family)
    return len(families) == 2
