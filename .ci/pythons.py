"""Find the CPython interpreters that uringcore is tested on.

Prints one line each, `ROLE VERSION PATH`, for the oldest, the default and the newest CPython from
3.10 on that this machine has (PATH and pyenv). An interpreter with several roles is printed once. Versions
that debian_unstable.py has and this machine lacks follow, as role `unstable`. venv.py and the Makefile build
and test on the interpreters.

    python3 .ci/pythons.py            all roles
    python3 .ci/pythons.py default    only the path of that role, without debian_unstable.py's interpreters
    python3 .ci/pythons.py roles      `ROLE VERSION`, one line for each role, without debian_unstable.py's
    python3 .ci/pythons.py every      `VERSION PATH` of one interpreter for each minor version
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import debian_unstable

OLDEST_SUPPORTED = (3, 10)
PROBE = """
import json, platform, sys, sysconfig
try:
    import ensurepip, venv
    usable = True
except ImportError:
    usable = False
print(json.dumps({
    "version": list(sys.version_info[:3]),
    "final": sys.version_info.releaselevel == "final",
    "cpython": platform.python_implementation() == "CPython",
    "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "usable": usable,
    "path": getattr(sys, "_base_executable", None) or sys.executable,
}))
"""


def main(arguments):
    found = interpreters()
    if not found:
        sys.exit(
            "no CPython 3.10 or later with the venv module was found on PATH or in ~/.pyenv/versions "
            "(on Debian and Ubuntu: apt-get install python3 python3-venv)"
        )
    if arguments == ["every"]:
        for probe in found + from_unstable(found):
            print(minor_version(probe), probe["path"])
        return
    roles = {"oldest": found[0], "default": default(found), "newest": found[-1]}
    if arguments == ["roles"]:
        for role, probe in roles.items():
            print(role, minor_version(probe))
        return
    if arguments:
        if arguments[0] not in roles:
            sys.exit(f"unknown role {arguments[0]!r}: choose from every, roles, {', '.join(roles)}")
        print(roles[arguments[0]]["path"])
        return
    printed = set()
    for role, probe in roles.items():
        if probe["path"] not in printed:
            printed.add(probe["path"])
            print(role, minor_version(probe), probe["path"])
    for probe in from_unstable(found):
        print("unstable", minor_version(probe), probe["path"])


def interpreters():
    """One usable interpreter for each minor version, oldest first."""
    by_version = {}
    for candidate in candidates():
        probe = ask(candidate)
        if probe is not None:
            by_version.setdefault(tuple(probe["version"][:2]), probe)
    return [by_version[version] for version in sorted(by_version)]


def candidates():
    # PATH first: the interpreter that the user runs as python3 wins over another build of its version.
    names = ["python3", "python"] + [f"python3.{minor}" for minor in range(10, 30)]
    for name in names:
        path = shutil.which(name)
        if path:
            yield path
    root = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv"))
    for path in sorted(root.glob("versions/*/bin/python3")):
        yield str(path)
    # A distribution's own interpreter may be hidden behind a shim of the same name.
    for path in sorted(pathlib.Path("/usr/bin").glob("python3.[0-9]*")):
        if path.name.replace("python3.", "").isdigit():
            yield str(path)


def ask(candidate):
    """The result of `PROBE` in the interpreter, or None for an unusable one."""
    try:
        answer = subprocess.run(
            [candidate, "-c", PROBE], capture_output=True, text=True, timeout=30, check=True
        )
        probe = json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None  # a pyenv shim without a version behind it, or a program other than Python
    supported = tuple(probe["version"][:2]) >= OLDEST_SUPPORTED and probe["cpython"]
    if not supported or not probe["usable"] or not probe["final"] or probe["free_threaded"]:
        return None
    return probe


def default(found):
    """The interpreter that `python3` starts, else the newest."""
    path = shutil.which("python3")
    probe = ask(path) if path else None
    return probe or found[-1]


def from_unstable(found):
    """debian_unstable.py's interpreters that this machine lacks. The reason of a failure goes to stderr."""
    here = {minor_version(probe) for probe in found}
    lacking = [version for version in debian_unstable.VERSIONS if version not in here]
    probes = {}
    reason = "Debian's unstable packages have none that runs here"
    try:
        paths = debian_unstable.interpreters() if lacking else {}
        probes = {version: ask(paths[version]) for version in lacking if version in paths}
    except debian_unstable.Unavailable as failure:
        reason = failure
    left_out = [version for version in lacking if not probes.get(version)]
    if left_out:
        print(f"CPython {' and '.join(left_out)} left out: {reason}", file=sys.stderr)
    return [probe for probe in probes.values() if probe]


def minor_version(probe):
    return ".".join(str(part) for part in probe["version"][:2])


if __name__ == "__main__":
    main(sys.argv[1:])
