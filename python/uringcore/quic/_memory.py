"""How much memory this process may have, and how much of it clients may fill by default."""

from __future__ import annotations

import functools
import os
from pathlib import Path

__all__ = ["available_memory", "default_memory"]

DEFAULT_SHARE = 4

LEAST = 16 << 20
"""A default that is smaller would be of no use to an honest client."""

UNKNOWN = 1 << 30
"""What is assumed of a machine that does not say how much it has."""


@functools.cache
def default_memory() -> int:
    """A quarter of what this process may have, in bytes; looked up once."""
    return max(available_memory() // DEFAULT_SHARE, LEAST)


def available_memory(root: str | os.PathLike[str] = "/") -> int:
    """The memory of the machine, or of the cgroups that this process is in where that is less, in bytes."""
    folder = Path(root)
    found = [*cgroup_limits(folder), *machine_memory(folder)]
    return min(found, default=UNKNOWN)


def machine_memory(root: Path) -> list[int]:
    """``MemTotal`` of ``/proc/meminfo`` (proc_meminfo(5)), if it can be read."""
    for line in lines_of(root / "proc/meminfo"):
        name, _, rest = line.partition(":")
        if name == "MemTotal":
            return [int(rest.split()[0]) * 1024]
    return []


def cgroup_limits(root: Path) -> list[int]:
    """The limits of the process's own cgroup and of those above it, version 2 and 1 (cgroups(7))."""
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
        # In a container the path may be the host's, and the mount the container's own.
        for folder in [own, *own.parents]:
            if not folder.is_relative_to(mount):
                break
            found += [int(text) for text in lines_of(folder / name) if text.strip().isdecimal()]
    return found


def lines_of(path: Path) -> list[str]:
    """None of a file that is not there or not to be read."""
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
