"""What the name `localhost` means to a suite.

Some suites expect it to have an IPv6 address, as it has on most machines; containers often lack the
line in /etc/hosts. The suite then gets a /etc/hosts of its own in a mount namespace of its own.
"""

from __future__ import annotations

import os
import socket
import subprocess

from tests.ecosystem.sources import HOME

_HOSTS = "127.0.0.1 localhost\n::1 localhost\n"


def with_ipv6_localhost() -> tuple[str, ...]:
    """What goes before a command so that `localhost` has both addresses; nothing where it has them,
    and nothing (with the consequence that tests fail on every loop) where that cannot be done."""
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
