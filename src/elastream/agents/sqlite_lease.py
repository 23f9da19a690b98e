"""The lease in the SQLite file that has the master's state too, for masters on one host.

Why here: what must be fenced is the state with its intents, and it lies in this file; one transaction checks the
term and writes, with no second system that could disagree. It needs nothing that is not there already. Its limit
is said plainly: SQLite's locks, and the clock since boot by which a lease ends, hold on one host. For masters on
several hosts the state would have to lie in a store that they share (PostgreSQL, etcd), which is this same port.

A holder that dies lets go of its lock on a file, as the kernel sees to that, and the next one need not wait for
the end of the lease; one that hangs keeps the lock, and loses the lease when it ends. The lease says which file
was locked: one that was deleted, and made anew by someone else, says nothing of whoever holds the old one.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from elastream.agents.lease import Lease, LeaseError
from elastream.manager.loop import boot_of_this_machine

_log = logging.getLogger(__name__)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS lease (
  id INTEGER PRIMARY KEY CHECK (id = 1), term INTEGER NOT NULL, holder TEXT NOT NULL, boot TEXT NOT NULL,
  ends_s REAL NOT NULL, locked INTEGER NOT NULL
)
"""
_TIMEOUT_S = 2.0
_MOST_INTEGER = 2**63 - 1  # of SQLite


class SqliteLease:
    """One for each process. `path` is the file with the state; beside it lies the file that is locked."""

    def __init__(self, path: Path, steady: Callable[[], float] = time.monotonic) -> None:
        """`steady` is the clock since boot, which all processes of the host share."""
        self.path, self._steady = path, steady
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LeaseError(f"{path.parent}: cannot be written: {error.strerror}") from None
        self._lock = self._opened_lock()
        self.boot = boot_of_this_machine()
        with self._transaction() as db:
            db.execute(_SCHEMA)
        self._inode = os.stat(path).st_ino

    def take(self, holder: str, *, lasts_s: float) -> Lease | None:
        self._adopt()
        locked = self._try_lock()
        taken: Lease | None = None
        try:
            with self._transaction() as db:
                row = db.execute("SELECT term, boot, ends_s, locked FROM lease").fetchone()
                term, boot, ends_s, was_locked = row or (0, "", 0.0, 0)
                is_over = row is not None and boot == self.boot and ends_s <= self._steady()
                is_dead = bool(locked) and was_locked == locked
                # of another boot, or of another host that has this folder, too: its clock says nothing here
                is_left = bool(locked) and (row is None or boot != self.boot)
                if is_over or is_dead or is_left:
                    taken = Lease(term=term + 1, holder=holder)
                    ends_s = self._steady() + lasts_s
                    values = (taken.term, holder, self.boot, ends_s, locked)
                    db.execute("INSERT OR REPLACE INTO lease VALUES (1, ?, ?, ?, ?, ?)", values)
        finally:
            if locked and taken is None:
                self._unlock()
        return taken

    def renew(self, lease: Lease, *, lasts_s: float) -> bool:
        self._check_is_there()
        locked = self._try_lock()  # one that took over from a master which hung gets it when that one ends
        with self._transaction() as db:
            changed = db.execute(
                "UPDATE lease SET ends_s = ?, locked = ? WHERE term = ?",
                (self._steady() + lasts_s, locked, lease.term),
            )
            return changed.rowcount == 1

    def release(self, lease: Lease) -> None:
        self._check_is_there()
        with self._transaction() as db:
            db.execute("UPDATE lease SET ends_s = 0 WHERE term = ?", (lease.term,))
        self._unlock()

    def holder(self) -> str:
        self._check_is_there()
        with self._transaction() as db:
            row = db.execute("SELECT holder FROM lease WHERE ends_s > ?", (self._steady(),)).fetchone()
            return "" if row is None else str(row[0])

    def fence(self, db: sqlite3.Connection, lease: Lease) -> None:
        """Within a transaction of someone who writes as the holder: refuse where that is someone else by now."""
        self._check_is_there()
        row = db.execute("SELECT term FROM lease").fetchone()
        if row is None or row[0] != lease.term:
            now = "there is none" if row is None else f"the term is {row[0]}"
            raise LeaseError(f"fenced: this master has term {lease.term} of the lease, and {now} now")

    def stand_back(self) -> None:
        """Let others see that this process holds nothing."""
        self._unlock()

    def close(self) -> None:
        os.close(self._lock)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """A connection for each: calls come from several threads, and seldom."""
        try:
            db = sqlite3.connect(self.path, timeout=_TIMEOUT_S, isolation_level=None)
            try:
                db.execute("PRAGMA synchronous=FULL")
                db.execute("BEGIN IMMEDIATE")
                yield db
                db.execute("COMMIT")
            finally:
                db.close()
        except (sqlite3.Error, OSError) as error:
            raise LeaseError(f"{self.path}: the lease cannot be reached: {error}") from None

    def is_there(self) -> bool:
        try:
            self._check_is_there()
        except LeaseError:
            return False
        return True

    def _adopt(self) -> None:
        """Nothing is held, so a file in the place of the one before is as good, with the state that it has."""
        if self.path.exists() and not self.is_there():
            _log.warning("%s: is another file than before, and so is what is remembered there", self.path)
            with self._transaction() as db:
                db.execute(_SCHEMA)
            self._inode = os.stat(self.path).st_ino
        self._check_is_there()

    def _check_is_there(self) -> None:
        """A file that was deleted lives on for whoever has it open, and another one for the others."""
        try:
            same = os.stat(self.path).st_ino == self._inode
        except OSError as error:
            raise LeaseError(f"{self.path}: the lease is gone: {error.strerror}") from None
        if not same:
            raise LeaseError(f"{self.path}: the lease was replaced by another file")

    def _try_lock(self) -> int:
        """The number of the file that is locked now, or 0."""
        try:
            newest = self._opened_lock()
            if os.path.sameopenfile(newest, self._lock):
                os.close(newest)
            else:
                os.close(self._lock)
                self._lock = newest
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (OSError, LeaseError):
            return 0
        return os.fstat(self._lock).st_ino & _MOST_INTEGER

    @property
    def _lock_path(self) -> Path:
        return self.path.parent / "lock"

    def _opened_lock(self) -> int:
        try:
            return os.open(self._lock_path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise LeaseError(f"{self.path.parent}: cannot be written: {error.strerror}") from None

    def _unlock(self) -> None:
        fcntl.flock(self._lock, fcntl.LOCK_UN)
