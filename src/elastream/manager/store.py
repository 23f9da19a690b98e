"""The manager's memory on disk: one SQLite file with the state and every event, so that a restart goes on.

The state is written before an action begins and after it ended, each time in one transaction with its events;
whoever finds a state with an action under way knows that it may be half done.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Container, Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from elastream.errors import ElastreamError, InvalidInput
from elastream.manager.events import Event, event_from_json, event_to_json
from elastream.manager.state import ManagerState, state_from_json, state_to_json

_SCHEMA = """
CREATE TABLE IF NOT EXISTS state (id INTEGER PRIMARY KEY CHECK (id = 1), json TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS events (
    number INTEGER PRIMARY KEY AUTOINCREMENT, at_s REAL NOT NULL, kind TEXT NOT NULL, json TEXT NOT NULL
);
"""


class StoreError(ElastreamError):
    """The file cannot be read or written."""


class Store:
    def __init__(self, path: Path, *, without: Container[str] = ()) -> None:
        self.path = path
        self._without = without
        """Kinds of events that are not kept: one with every window, every second, would fill the disk."""
        try:
            self._db = sqlite3.connect(path, timeout=10.0)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")  # an intent that a power cut loses is no intent
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

    def save(self, state: ManagerState, events: Iterable[Event] = ()) -> None:
        rows = [
            (event.at_s, event.event, json.dumps(event_to_json(event)))
            for event in events
            if event.event not in self._without
        ]
        try:
            with self._db:
                self._db.execute("INSERT OR REPLACE INTO state VALUES (1, ?)", (state_to_json(state),))
                self._db.executemany("INSERT INTO events (at_s, kind, json) VALUES (?, ?, ?)", rows)
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: the manager's state cannot be written: {error}") from None

    def events(self, *, after: int = 0) -> list[tuple[int, Event]]:
        """Every event with its number, from the first after the given one."""
        query = "SELECT number, json FROM events WHERE number > ? ORDER BY number"
        try:
            return [
                (number, event_from_json(json.loads(text))) for number, text in self._db.execute(query, (after,))
            ]
        except (sqlite3.Error, ValueError, InvalidInput) as error:
            raise StoreError(f"{self.path}: the manager's events cannot be read: {error}") from None

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
