"""``subprocess.Popen`` without its fork: arguments are checked and converted to those of ``Spawn``.

CPython's own ``Popen`` of the running version does all work before the fork. ``_child_processes`` makes the
child and waits for its end."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from . import _uringcore

__all__ = ["PendingPopen", "can_spawn", "close_pipes"]

_Popen = subprocess.Popen
# The positional parameters of ``subprocess.Popen._execute_child`` in the running version.
_PARAMETERS = tuple(inspect.signature(_Popen._execute_child).parameters)[1:]  # type: ignore[attr-defined]
# fmt: off
_KNOWN_PARAMETERS = frozenset((
    "args", "executable", "preexec_fn", "close_fds", "pass_fds", "cwd", "env", "startupinfo",
    "creationflags", "shell", "p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite",
    "restore_signals", "gid", "gids", "uid", "umask", "start_new_session", "process_group",
))
# fmt: on
_KNOWS_POPEN = _KNOWN_PARAMETERS - {"process_group"} <= set(_PARAMETERS) <= _KNOWN_PARAMETERS


class PendingPopen(_Popen):  # type: ignore[type-arg]
    """A ``Popen`` whose child does not exist yet; its attribute ``spawn`` makes the child.

    It becomes a plain ``subprocess.Popen`` when the child runs.
    """

    spawn: _uringcore.Spawn
    _close_pipe_fds: Callable[..., None]
    _child_created: bool

    def _execute_child(self, *values: Any) -> None:
        """Makes the ``Spawn``, after CPython's checks in CPython's order."""
        given = dict(zip(_PARAMETERS, values, strict=True))
        args, executable = _command(given["args"], given["executable"], given["shell"])
        sys.audit("subprocess.Popen", executable, args, given["cwd"], given["env"])
        pass_fds = sorted({int(fd) for fd in given["pass_fds"]})
        if pass_fds and pass_fds[0] < 0:
            raise ValueError("bad value(s) in fds_to_keep")
        cwd = given["cwd"]
        self.spawn = _uringcore.Spawn(
            _candidates(executable, given["env"]),
            [os.fsencode(one) for one in args],
            _environment(given["env"]),
            None if cwd is None else os.fsencode(cwd),
            [given["p2cread"], given["c2pwrite"], given["errwrite"]],
            pass_fds,
            given["umask"],
            bool(given["restore_signals"]),
            bool(given["start_new_session"]),
            given.get("process_group", -1),
        )
        self._failure_names = {"chdir": cwd, "exec": executable}
        # `Spawn` has duplicated the child's ends of the pipes, so the originals are closed here.
        pipe_ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(given[name] for name in pipe_ends))

    def started(self, pid: int) -> None:
        """Called when the child runs."""
        self.pid = pid
        self._child_created = True
        self.forget_spawn()
        self.__class__ = _Popen  # type: ignore[assignment]

    def failed(self, stage: str, errno: int) -> OSError:
        """Returns the error that CPython raises for this failure."""
        name = self._failure_names.get(stage)
        close_pipes(self)
        if name is None:
            return OSError(errno, os.strerror(errno))
        return OSError(errno, os.strerror(errno), name)

    def forget_spawn(self) -> None:
        """Drop the attributes that only the start needs."""
        del self.spawn, self._failure_names


def can_spawn(options: dict[str, Any]) -> bool:
    """True if `Spawn` supports all options that are set in ``options``."""
    return (
        _KNOWS_POPEN
        # CPython's documented switch that forbids vfork.
        and getattr(subprocess, "_USE_VFORK", True)
        and options.get("preexec_fn") is None
        and bool(options.get("close_fds", True))
        and all(options.get(name) is None for name in ("user", "group", "extra_groups"))
    )


def _command(args: Any, executable: Any, shell: bool) -> tuple[list[Any], Any]:
    """Returns ``argv`` and the program, by the rules of ``subprocess.Popen``."""
    if isinstance(args, (str, bytes)):
        args = [args]
    elif isinstance(args, os.PathLike):
        if shell:
            raise TypeError("path-like args is not allowed when shell is true")
        args = [args]
    else:
        args = list(args)
    if shell:
        args = ["/bin/sh", "-c", *args]
        if executable:
            args[0] = executable
    return args, args[0] if executable is None else executable


def _candidates(executable: Any, env: Any) -> list[bytes]:
    """Returns the paths to try, as ``os.execvpe`` does."""
    path = os.fsencode(executable)
    if os.path.dirname(path):
        return [path]
    return [os.path.join(os.fsencode(folder), path) for folder in os.get_exec_path(env)]


def _environment(env: Any) -> list[bytes] | None:
    if env is None:
        return None
    entries = []
    for name, value in env.items():
        encoded = os.fsencode(name)
        if b"=" in encoded:
            raise ValueError("illegal environment variable name")
        entries.append(encoded + b"=" + os.fsencode(value))
    return entries


def close_pipes(process: subprocess.Popen[Any]) -> None:
    """Close the parent's ends of the pipes."""
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()
