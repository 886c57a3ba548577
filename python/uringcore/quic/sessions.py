"""Stores of the sessions that clients of a QUIC server may resume (RFC 8446 section 4.6.1).

A store maps tickets to sessions, both as bytes. It returns each session once, so that a ticket is valid for
0-RTT data once, whichever process its client reaches: a program's own store must guarantee this too. Here:
the protocol of stores, a store that processes of one machine share, and aioquic's callbacks as a store. Not
here: the store in memory, which is Rust (``uringcore.tls.MemorySessionStore``), and the content of sessions,
which is the TLS library's.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
import weakref
from datetime import datetime, timedelta, timezone
from typing import Any, ClassVar, Protocol

from uringcore._private_files import check_private, make_private

# Names that methods use are imported here, because a running loop imports no modules.
from uringcore.tls import (
    _MAX_EARLY_DATA,
    CipherSuite,
    SessionTicket,
    SessionTicketFetcher,
    SessionTicketHandler,
)

__all__ = ["SessionStore", "SharedSessionStore"]


class SessionStore(Protocol):
    """Keeps sessions by their tickets.

    A handshake calls ``put`` twice and ``take`` at most four times. Their exceptions go to the loop's
    exception handler, and the handshake continues without the session.

    The loop's thread calls the store, which must not block there. A store that may wait for a disk, a lock or
    another machine has the attribute ``may_block = True``: then a separate thread makes the calls, one after
    the other in their order. Handshakes wait one second for the result and continue without it. When 1,024
    calls wait, sessions are neither stored nor looked up. An endpoint lets 256 clients with unvalidated
    addresses wait; others get a Retry, or, with ``retry=False``, no session.

    A store may have a third method, ``spend(token: bytes) -> bool``. A handshake calls it at most once with
    the identifier of an address validation token (RFC 9000 section 8.1.4). It returns true for the first call
    in any process, and false afterwards. Without it each process detects only its own reuse of tokens. A
    client with a used token gets a Retry.
    """

    def put(self, ticket: bytes, session: bytes) -> object:
        """Stores ``session`` under ``ticket``, for a day at most."""

    def take(self, ticket: bytes) -> bytes | None:
        """Removes and returns the session of ``ticket`` in one step; ``None`` if there is none.

        Of two calls with one ticket, in any processes, only one may return the session.
        """


class SharedSessionStore:
    """Sessions in a file, shared by the processes of one machine that open the same ``path``.

    The file is an SQLite database that only its owner can read. Use a folder that is empty after a restart of
    the machine (``/run``, ``/dev/shm``): sessions are secrets, and a session that came back after a crash
    could be replayed. The store holds ``capacity`` sessions; the oldest are removed first. It also remembers
    about as many used address validation tokens; tokens beyond them count as used.

    A file that belongs to another user, is a link or may be read by others is refused, and so are such files
    that SQLite puts beside it (``-wal``, ``-shm``, ``-journal``). Only this user should be able to write in
    the folder. A folder with the sticky bit, such as ``/dev/shm``, is safe where the kernel's
    ``fs.protected_regular`` is 1 or 2: SQLite removes those files and makes new ones, and without that
    setting it would open a file that another user has made in between. The store then raises
    ``PermissionError`` before it writes a session, but SQLite has read that file.

    Kubernetes gives the files of a volume with ``fsGroup`` to a group whenever it mounts the volume (mode
    0660), so such a store is refused after a restart. Use the container's ``/dev/shm``, or a folder outside
    of volumes.

    A store can be pickled, and works after ``os.fork``: each process opens the file itself. Raises
    ``OSError`` when the file cannot be made, ``PermissionError`` when an existing file is not safe,
    ``sqlite3.Error`` when it is not a database, and ``ValueError`` for a ``capacity`` below 1.

    Servers call the store on a separate thread (``may_block``): while another process holds the file's lock,
    handshakes continue without sessions.
    """

    may_block = True

    _all: ClassVar[weakref.WeakSet[SharedSessionStore]] = weakref.WeakSet()

    def __init__(self, path: str | os.PathLike[str], *, capacity: int = 65536) -> None:
        if capacity < 1:
            raise ValueError("capacity: must be at least 1")
        self._path = os.path.abspath(os.fspath(path))
        self._capacity = capacity
        self._lock = threading.Lock()
        self._database: sqlite3.Connection | None = None
        self._until_sweep = 0
        self._until_token_sweep = 0
        self._has_room = True
        with self._lock:
            self._open()
        self._all.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (type(self), self._path, self._capacity)

    def __len__(self) -> int:
        with self._lock:
            (count,) = self._open().execute("SELECT count(*) FROM sessions").fetchone()
        return int(count)

    def put(self, ticket: bytes, session: bytes) -> None:
        """Stores ``session`` under ``ticket`` for a day."""
        with self._lock, self._changing() as database:
            database.execute(
                "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?)",
                (ticket, session, time.time() + _LIFETIME),
            )
            self._until_sweep -= 1
            if self._until_sweep < 0:
                self._sweep(database)

    def take(self, ticket: bytes) -> bytes | None:
        """Removes and returns the session of ``ticket``; ``None`` if there is none."""
        with self._lock, self._changing() as database:
            found = database.execute(
                "SELECT session, expires FROM sessions WHERE ticket = ?", (ticket,)
            ).fetchone()
            if found is None:
                return None
            database.execute("DELETE FROM sessions WHERE ticket = ?", (ticket,))
        session, expires = found
        return bytes(session) if time.time() < expires else None

    def spend(self, token: bytes) -> bool:
        """Marks ``token`` as used. True if it was not used before; false while ``capacity`` tokens are
        stored."""
        with self._lock, self._changing() as database:
            self._until_token_sweep -= 1
            if self._until_token_sweep < 0:
                self._until_token_sweep = self._capacity // 16
                database.execute("DELETE FROM tokens WHERE expires <= ?", (time.time(),))
                (count,) = database.execute("SELECT count(*) FROM tokens").fetchone()
                self._has_room = count < self._capacity
            if not self._has_room:
                return False
            done = database.execute(
                "INSERT OR IGNORE INTO tokens VALUES (?, ?)", (token, time.time() + _LIFETIME)
            )
        return bool(done.rowcount == 1)

    def close(self) -> None:
        """Closes the database file in this process. The next call opens it again."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()

    def _open(self) -> sqlite3.Connection:
        if self._database is not None:
            return self._database
        journal = f"{self._path}-journal"
        # All files are checked before the first one is made, so that an error leaves no files behind.
        for path in (journal, *self._files()):
            check_private(path)
        for path in self._files():
            make_private(path)
        database = sqlite3.connect(
            self._path, timeout=_BUSY, isolation_level=None, check_same_thread=False
        )
        try:
            # Writes do not wait for the disk. So a crash of the machine may lose sessions, and each lost
            # session costs one full handshake.
            (mode,) = database.execute("PRAGMA journal_mode = WAL").fetchone()
            database.execute("PRAGMA synchronous = OFF")
            database.execute(
                "CREATE TABLE IF NOT EXISTS sessions "
                "(ticket BLOB PRIMARY KEY, session BLOB NOT NULL, expires REAL NOT NULL)"
            )
            database.execute("CREATE INDEX IF NOT EXISTS by_age ON sessions (expires)")
            database.execute(
                "CREATE TABLE IF NOT EXISTS tokens "
                "(token BLOB PRIMARY KEY, expires REAL NOT NULL) WITHOUT ROWID"
            )
            # The files are checked again before a session is written. SQLite removes two of them when the
            # last process closes the database, and makes new ones later. In between, another user may have
            # made files with these names.
            check_private(journal)
            check_private(self._path, is_open=True)
            for path in self._files()[1:]:
                # On a file system without shared memory SQLite has neither of these two files, but a journal.
                check_private(path, is_open=mode == "wal")
        except BaseException:
            database.close()
            raise
        self._database = database
        return database

    def _files(self) -> list[str]:
        """Returns the paths of the database, and of the files that SQLite has beside it while it is open."""
        return [self._path, f"{self._path}-wal", f"{self._path}-shm"]

    @contextlib.contextmanager
    def _changing(self) -> Any:
        database = self._open()
        database.execute("BEGIN IMMEDIATE")
        try:
            yield database
        except BaseException:
            database.execute("ROLLBACK")
            raise
        database.execute("COMMIT")

    def _sweep(self, database: sqlite3.Connection) -> None:
        """Removes the oldest sessions beyond the capacity. It does so only once for many calls of ``put``:
        after a sixteenth of the capacity."""
        self._until_sweep = self._capacity // 16
        database.execute("DELETE FROM sessions WHERE expires <= ?", (time.time(),))
        keep = self._capacity - self._until_sweep
        database.execute(
            "DELETE FROM sessions WHERE ticket IN "
            "(SELECT ticket FROM sessions ORDER BY expires DESC LIMIT -1 OFFSET ?)",
            (keep,),
        )


class _Fork:
    """Closes every store around a fork.

    SQLite keeps a list of its locks on a file in the process. A child with an inherited list would break its
    parent's locks, and the file with them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: list[SharedSessionStore] = []

    def before(self) -> None:
        self._lock.acquire()
        self._held = list(SharedSessionStore._all)
        for store in self._held:
            store._lock.acquire()
            store._close()

    def after(self) -> None:
        for store in self._held:
            store._lock.release()
        self._held = []
        self._lock.release()


_fork = _Fork()
os.register_at_fork(before=_fork.before, after_in_parent=_fork.after, after_in_child=_fork.after)


def _reopen(kind: type[SharedSessionStore], path: str, capacity: int) -> SharedSessionStore:
    return kind(path, capacity=capacity)


class _TicketCallbacks:
    """aioquic's ``session_ticket_fetcher`` and ``session_ticket_handler`` as a store."""

    def __init__(
        self, fetcher: SessionTicketFetcher | None, handler: SessionTicketHandler | None
    ) -> None:
        self._fetcher = fetcher
        self._handler = handler

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _TicketCallbacks):
            return NotImplemented
        return (self._fetcher, self._handler) == (other._fetcher, other._handler)

    __hash__ = None  # type: ignore[assignment]

    def put(self, ticket: bytes, session: bytes) -> None:
        if self._handler is not None:
            self._handler(_server_ticket(ticket, session))

    def take(self, ticket: bytes) -> bytes | None:
        found = self._fetcher(ticket) if self._fetcher is not None else None
        return found._session if found is not None else None


def _server_ticket(ticket: bytes, session: bytes) -> SessionTicket:
    """Makes the ticket object that a server's handler gets. Its ``_session`` has all data for the
    resumption."""
    now = datetime.now(timezone.utc)
    return SessionTicket(
        age_add=0,
        cipher_suite=CipherSuite.AES_128_GCM_SHA256,
        not_valid_after=now + timedelta(seconds=_LIFETIME),
        not_valid_before=now,
        resumption_secret=b"",
        server_name="",
        ticket=ticket,
        max_early_data_size=_MAX_EARLY_DATA,
        _session=session,
    )


_LIFETIME = 86400
"Lifetime of tickets, in seconds."
_BUSY = 0.25
"Seconds to wait for another process that is writing."
