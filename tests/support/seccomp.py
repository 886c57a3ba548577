"""`python -m tests.support.seccomp PROFILE COMMAND...`: runs a command under a container's seccomp profile.

The profile is JSON in the format of container engines (OCI's `linux.seccomp`); libseccomp compiles it, as
for them.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import sys
from typing import Any

ACTIONS = {"SCMP_ACT_ALLOW": 0x7FFF0000, "SCMP_ACT_ERRNO": 0x00050000}
COMPARISONS = {"SCMP_CMP_NE": 1, "SCMP_CMP_EQ": 4, "SCMP_CMP_MASKED_EQ": 7}
UNKNOWN = -1
"libseccomp's result for an unknown name."


class Comparison(ctypes.Structure):
    """`struct scmp_arg_cmp`."""

    _fields_ = (
        ("arg", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("a", ctypes.c_uint64),
        ("b", ctypes.c_uint64),
    )


def load(profile: dict[str, Any]) -> None:
    """Applies `profile` to this process and its children."""
    library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_init.argtypes = [ctypes.c_uint32]
    library.seccomp_rule_add_array.argtypes = [
        *(ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint),
        ctypes.POINTER(Comparison),
    ]
    library.seccomp_arch_add.argtypes = [ctypes.c_void_p, ctypes.c_uint32]
    library.seccomp_arch_resolve_name.restype = ctypes.c_uint32
    library.seccomp_load.argtypes = [ctypes.c_void_p]
    context = library.seccomp_init(
        _action(profile["defaultAction"], profile.get("defaultErrnoRet"))
    )
    for name in profile.get("architectures", ()):
        token = library.seccomp_arch_resolve_name(name.removeprefix("SCMP_ARCH_").lower().encode())
        _check(library.seccomp_arch_add(context, token), name, but=errno.EEXIST)
    for rule in profile["syscalls"]:
        compared = [
            Comparison(one["index"], COMPARISONS[one["op"]], one["value"], one.get("valueTwo", 0))
            for one in rule.get("args", ())
        ]
        array = (Comparison * len(compared))(*compared)
        for name in rule["names"]:
            number = library.seccomp_syscall_resolve_name(name.encode())
            if number == UNKNOWN:
                continue  # A system call of a newer kernel, which engines skip as well.
            action = _action(rule["action"], rule.get("errnoRet"))
            added = library.seccomp_rule_add_array(context, action, number, len(compared), array)
            _check(added, name)
    _check(library.seccomp_load(context), "seccomp_load")


def _action(name: str, number: int | None) -> int:
    return ACTIONS[name] | (
        errno.EPERM if number is None and name.endswith("ERRNO") else number or 0
    )


def _check(result: int, what: str, but: int = 0) -> None:
    if result < 0 and -result != but:
        raise OSError(-result, f"{what}: {os.strerror(-result)}")


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        load(json.load(file))
    os.execvp(sys.argv[2], sys.argv[2:])
