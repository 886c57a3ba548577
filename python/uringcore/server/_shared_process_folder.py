"""Folders that the processes of one server share while it runs: sessions, reports, a made certificate.

A server removes its folder at its end. If it was killed, its workers remove the folder when they notice, and
if those were killed as well, the next server that starts does. Each process of a server holds a lock on the
folder's ``lock`` file, which the kernel releases with the process, so a folder whose lock is free has no
server any more.

Other modules define the contents of a folder.

Abstract sockets would need no folder, but they do not show which processes exist, and sessions need a
file in any case.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from typing import Any

__all__ = ["LOCK", "SharedFolder", "close_in"]

LOCK = "lock"


class SharedFolder:
    """A new private folder of this user, in ``parent`` or the system's folder for temporary files.

    ``kind`` is a part of its name. A child process gets the object by fork or by pickling.
    """

    def __init__(self, kind: str, parent: str | None = None) -> None:
        parent = tempfile.gettempdir() if parent is None else parent
        prefix = f"uringcore-{kind}-"
        _remove_left(parent, prefix)
        self._lock: int | None = None
        while self._lock is None:
            # The folder may have to be made again, because another server that starts may remove it before
            # this one has locked it.
            self.path = tempfile.mkdtemp(prefix=prefix, suffix=SUFFIX, dir=parent)
            self._hold()

    def _hold(self) -> None:
        """Locks the folder for the lifetime of this process. Sets no lock if the folder is gone."""
        path = os.path.join(self.path, LOCK)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(path, flags, 0o600)
            fcntl.flock(lock, fcntl.LOCK_SH)
            if os.path.exists(path):
                self._lock = lock
            else:
                os.close(lock)

    def remove(self) -> None:
        """Removes the folder and its contents, even if other processes use it. A second call does nothing."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.path = state["path"]
        self._lock = None
        self._hold()


def _remove_left(parent: str, prefix: str) -> None:
    """Removes folders that servers of this user have left because they were killed."""
    try:
        names = os.listdir(parent)
    except OSError:
        # mkdtemp() reports the error if the parent folder cannot be read.
        return
    for name in names:
        path = os.path.join(parent, name)
        if name.startswith(prefix) and name.endswith(SUFFIX) and _is_ours(path):
            _remove_if_left(path)


def _is_ours(path: str) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    is_private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    return is_private and found.st_uid == os.geteuid()


def _remove_if_left(path: str) -> None:
    try:
        lock = os.open(os.path.join(path, LOCK), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        # A folder without a lock file is just being made by another server.
        return
    try:
        # The lock is held during the removal. Another server that is about to lock the folder waits, and then
        # finds that it was removed.
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(lock)


SUFFIX = ".d"
"""Folders of older versions have another suffix and no lock."""


def close_in(process: int, files: contextlib.ExitStack) -> None:
    """Closes ``files``, unless this process is a fork of the one that made them."""
    if os.getpid() == process:
        files.close()
