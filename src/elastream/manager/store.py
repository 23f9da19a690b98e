"""The manager's memory on disk: one SQLite file with its state, so that a restart goes on.

The state is written before an action begins and after it ended; whoever finds a state with an action under way
knows that it may be half done. What happened on the way is in the recording, not here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from elastream.errors import ElastreamError, InvalidInput
from elastream.manager.state import ManagerState, state_from_json, state_to_json

_SCHEMA = """
CREATE TABLE IF NOT EXISTS state (id INTEGER PRIMARY KEY CHECK (id = 1), json TEXT NOT NULL);
DROP TABLE IF EXISTS events;  -- of versions that kept every event here as well
"""


class StoreError(ElastreamError):
    """The file cannot be read or written."""


class Store:
    def __init__(self, path: Path, fence: Callable[[sqlite3.Connection], None] | None = None) -> None:
        """`fence` is called within the transaction of every write, and raises where this writer may not."""
        self.path = path
        self._fence = fence
        try:
            self._db = sqlite3.connect(path, timeout=10.0)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.executescript(_SCHEMA)
        except sqlite3.Error as error:
            raise StoreError(f"{path}: cannot be used as the manager's store: {error}") from None

    def load(self) -> ManagerState | None:
        """The state of the last run; None where there was none."""
        try:
            row = self._db.execute("SELECT json FROM state").fetchone()
            return None if row is None else state_from_json(row[0], place=str(self.path))
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: the manager's state cannot be read: {error}") from None
        except InvalidInput as error:
            raise StoreError(str(error)) from None

    def save(self, state: ManagerState, *, lasting: bool = True) -> None:
        """A kill loses nothing. A power cut may take what is not `lasting`, which does not wait for the disk."""
        try:
            self._db.execute(f"PRAGMA synchronous={'FULL' if lasting else 'NORMAL'}")
            with self._db:
                self._db.execute("BEGIN IMMEDIATE")
                if self._fence is not None:
                    self._fence(self._db)
                self._db.execute("INSERT OR REPLACE INTO state VALUES (1, ?)", (state_to_json(state),))
        except ElastreamError as error:
            raise StoreError(str(error)) from None
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: the manager's state cannot be written: {error}") from None

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
