"""The memory of this process, and the part of it that clients may fill by default."""

from __future__ import annotations

import functools
import os
from pathlib import Path

__all__ = ["CONNECTION_BYTES", "MEMORY_MAX", "MEMORY_MIN", "available_memory", "default_memory"]

CONNECTION_BYTES = 32 << 10
"""Bytes that a connection without data counts against the memory limit."""

MEMORY_MIN = 4 << 20
"""The smallest memory limit in bytes: 64 connections in all, 32 of one address, and four of their first
windows. With less, a few busy clients would exclude all others."""

MEMORY_MAX = (1 << 62) - 1

DEFAULT_SHARE = 4

LEAST = 16 << 20
"""The smallest default of the memory limit in bytes. With less, honest clients could not work."""

UNKNOWN = 1 << 30
"""The assumed memory in bytes of a machine whose ``MemTotal`` cannot be read."""


@functools.cache
def default_memory() -> int:
    """A quarter of the memory that this process may use, in bytes; determined once."""
    return max(available_memory() // DEFAULT_SHARE, LEAST)


def available_memory(root: str | os.PathLike[str] = "/") -> int:
    """Returns the memory of the machine in bytes, or the limit of this process's cgroups if it is lower."""
    folder = Path(root)
    found = [*cgroup_limits(folder), *machine_memory(folder)]
    return min(found, default=UNKNOWN)


def machine_memory(root: Path) -> list[int]:
    """Returns ``MemTotal`` of ``/proc/meminfo`` (proc_meminfo(5)), if it is readable."""
    for line in lines_of(root / "proc/meminfo"):
        name, _, rest = line.partition(":")
        if name == "MemTotal":
            return [int(rest.split()[0]) * 1024]
    return []


def cgroup_limits(root: Path) -> list[int]:
    """Returns the limits of the process's own cgroup and of its parents, version 2 and 1 (cgroups(7))."""
    found = []
    for line in lines_of(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mount, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            mount, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        own = mount / path.strip().lstrip("/")
        # In a container the path of the cgroup may be that on the host, while the mounted file system begins
        # at the container's own. So all parent folders are tried.
        for folder in [own, *own.parents]:
            if not folder.is_relative_to(mount):
                break
            found += [int(text) for text in lines_of(folder / name) if text.strip().isdecimal()]
    return found


def lines_of(path: Path) -> list[str]:
    """Returns the lines of a file; none if it is missing or unreadable."""
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
