"""The memory limit of a process, as its cgroup and the machine report it, and a server's share of it."""

import pytest

from uringcore.quic._available_memory import UNKNOWN, available_memory, default_memory
from uringcore.quic._errors import QuicConfigurationError
from uringcore.quic.limits import ServerLimits

GIB = 1 << 30


def system(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return available_memory(root)


MACHINE = {"proc/meminfo": "MemTotal:        8388608 kB\nMemFree:          100 kB\n"}
VERSION_2 = {"proc/self/cgroup": "0::/system.slice/app.service\n", **MACHINE}
VERSION_1 = {"proc/self/cgroup": "5:cpu,cpuacct:/\n4:memory:/docker/abc\n0::/\n", **MACHINE}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (MACHINE, 8 * GIB),
        ({}, UNKNOWN),
        ({**VERSION_2, "sys/fs/cgroup/system.slice/app.service/memory.max": "max\n"}, 8 * GIB),
        ({**VERSION_2, "sys/fs/cgroup/system.slice/app.service/memory.max": f"{GIB}\n"}, GIB),
        # The limit belongs to a parent group.
        ({**VERSION_2, "sys/fs/cgroup/system.slice/memory.max": f"{2 * GIB}\n"}, 2 * GIB),
        # In a container, the mount's root is not the path in /proc/self/cgroup.
        ({**VERSION_1, "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{GIB}\n"}, GIB),
        # Version 1 writes this number for "no limit".
        (
            {**VERSION_1, "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"},
            8 * GIB,
        ),
    ],
)
def test_the_least_of_machine_and_cgroups_counts(tmp_path, files, expected):
    assert system(tmp_path, files) == expected


def test_the_default_is_a_quarter_of_what_there_is():
    assert ServerLimits()._options()["memory"] == default_memory()
    assert 0 < default_memory() <= max(available_memory() // 4, 16 << 20)


@pytest.mark.parametrize("memory", [0, -1, 1 << 62])
def test_a_budget_that_makes_no_sense_is_refused(memory):
    with pytest.raises(QuicConfigurationError, match="memory"):
        ServerLimits(memory=memory)
