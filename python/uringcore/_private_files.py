"""Files that hold secrets: created for their owner alone, and never accepted from other users.

In a folder that several users may write to (``/tmp``, ``/dev/shm``), another user can create a file, or a
link to one of this user's files, under a name that this process is about to open. So a new file is created
with ``O_EXCL``, which follows no link, and an existing file must belong to this user and give no rights to
others. In a folder with the sticky bit other users can neither rename nor remove that file afterwards.

The folder itself is not checked. In a folder *without* the sticky bit, users who may write to it can replace
any file.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import tempfile

__all__ = ["check_private", "make_private", "mark_checked", "replace_file", "warn_if_exposed"]

_Path = str | os.PathLike[str]


def make_private(path: _Path) -> None:
    """Creates a private file of this user at ``path``, or checks the one that exists.

    Raises ``PermissionError`` if :func:`check_private` does, and ``OSError`` if the file cannot be created.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        made = os.open(path, flags, 0o600)
    except FileExistsError:
        check_private(path)
    else:
        os.close(made)


def check_private(path: _Path, *, is_open: bool = False) -> None:
    """Checks that a file at ``path`` belongs to this user alone. A missing file passes unless ``is_open``.

    The check uses the name and opens nothing, because closing a second descriptor of an open SQLite database
    would release its locks. Raises ``PermissionError`` with the file and the reason.
    """
    try:
        why = _reason_to_distrust(os.lstat(path))
    except FileNotFoundError:
        why = "was removed since it was opened, perhaps by another user who had created it"
        if not is_open:
            return
    if why is not None:
        raise PermissionError(errno.EPERM, f"not safe to use: it {why}", os.fspath(path))


def _reason_to_distrust(found: os.stat_result) -> str | None:
    if stat.S_ISLNK(found.st_mode):
        return (
            "is a symbolic link, which may lead anywhere: name the file itself, or remove the link"
        )
    if not stat.S_ISREG(found.st_mode):
        return "is not a regular file: choose another path"
    if found.st_uid != os.geteuid():
        return (
            f"belongs to the user {found.st_uid}, and this process is {os.geteuid()}: choose a path in a "
            "folder that only this user may write in"
        )
    if found.st_nlink > 1:
        return "has a second name (a hard link): remove it, and a new one is made"
    if found.st_mode & 0o077:
        mode = stat.S_IMODE(found.st_mode)
        return f"is open to other users (mode {mode:04o}): remove it, and a new one is made"
    return None


def replace_file(path: _Path, content: bytes, mode: int) -> None:
    """Replaces the file or link at ``path`` by a new file, in one step.

    An existing file is never written to. Raises ``OSError`` that names ``path`` if it cannot be replaced,
    such as another user's file in a folder with the sticky bit.
    """
    folder, name = os.path.split(os.path.abspath(path))
    try:
        # The new file has a random name, and only its owner can read it.
        descriptor, made = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
    except OSError as exc:
        text = f"cannot be made in its folder: {exc.strerror}"
        raise OSError(exc.errno, text, os.fspath(path)) from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
        os.replace(made, path)
    except BaseException as exc:
        os.unlink(made)
        if isinstance(exc, OSError):
            text = f"cannot be replaced, perhaps because it is another user's: {exc.strerror}"
            raise OSError(exc.errno, text, os.fspath(path)) from None
        raise


def warn_if_exposed(path: _Path, log: logging.Logger, content: bytes = b"") -> None:
    """Logs a warning, once in a process, if every user of the machine may read or change a key file.

    Exempt are keys that only their group may read, which is intended (Debian's ``ssl-cert``, a mounted
    Secret), encrypted keys, and keys in a folder that others cannot enter.
    """
    real = os.path.realpath(path)
    if real in _warned or b"ENCRYPTED" in content:
        return
    try:
        mode = stat.S_IMODE(os.stat(real).st_mode)
        if not mode & 0o006 or not _is_reachable(real):
            return
    except OSError:
        # The file was removed after it was read.
        return
    _warned.add(real)
    may = "read" if not mode & 0o002 else "change"
    log.warning(
        "Every user of this machine may %s the key in %s (mode %04o): chmod o-rwx %s",
        may,
        path,
        mode,
        path,
    )


def mark_checked(path: _Path) -> None:
    """Skips the check of a file, because another process of the same program has checked it."""
    _warned.add(os.path.realpath(path))


def _is_reachable(path: str) -> bool:
    """True if every user may enter all parent folders."""
    while (folder := os.path.dirname(path)) != path:
        if not os.stat(folder).st_mode & stat.S_IXOTH:
            return False
        path = folder
    return True


_warned: set[str] = set()
