"""Recordings: what was measured and what was done, as JSON lines that can be written, read and replayed.

Every line is an object with its kind under `event`. A line of the kind `snapshot` is a snapshot in the snapshot
format; a line without `event` is taken for one, so that plain snapshots in a file are a recording too. The other
kinds are the manager's events. A line is written whole and flushed; what a killed writer leaves behind is at
most one line that is cut off, and the next writer removes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from elastream.errors import ElastreamError, InvalidInput
from elastream.formats import read_json, read_text
from elastream.monitor.snapshot import Snapshot
from elastream.monitor.snapshot_format import snapshot_from_json, snapshot_to_json


@dataclass(frozen=True, kw_only=True)
class Recording:
    snapshots: tuple[Snapshot, ...]
    events: tuple[Mapping[str, Any], ...]
    """Everything else, as it was written, in order."""


class RecordingWriter:
    """Appends to a recording, after a last line that was cut off is removed; or begins anew."""

    def __init__(self, path: Path, *, anew: bool = False) -> None:
        self.path = path
        with self._errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            self.repaired = not anew and _repaired(path)
            self._file = path.open("w" if anew else "a", encoding="utf-8")

    def snapshot(self, snapshot: Snapshot) -> None:
        self.write(snapshot_line(snapshot))

    def write(self, line: Mapping[str, Any]) -> None:
        with self._errors():
            self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
            self._file.flush()

    def close(self) -> None:
        with self._errors():  # what could not be written before is tried once more
            self._file.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ElastreamError(f"{self.path}: cannot be written: {error.strerror}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def snapshot_line(snapshot: Snapshot) -> Mapping[str, Any]:
    return {"event": "snapshot", **snapshot_to_json(snapshot)}


def read_recording(path: Path, *, ignore_cut_off: bool = False) -> Recording:
    """Read a recording; every error names the file and the line."""
    text = read_text(path)
    lines = text.split("\n")
    cut_off = lines.pop()  # what stands after the last line feed: nothing, if the last line is whole
    if cut_off and not _is_whole(cut_off):
        if not ignore_cut_off:
            raise InvalidInput(
                f"{path}: line {len(lines) + 1}: the last line is cut off, as if its writer was stopped; "
                "--ignore-cut-off reads what is before it"
            )
    elif cut_off:
        lines.append(cut_off)
    snapshots: list[tuple[int, Snapshot]] = []
    events = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            found = read_line(line, f"{path}: line {number}")
            if isinstance(found, Snapshot):
                _check_order(snapshots, found, number, path)
                snapshots.append((number, found))
            else:
                events.append(found)
    if not snapshots:
        raise InvalidInput(f"{path}: the recording is empty: no line has a snapshot")
    return Recording(snapshots=tuple(snapshot for _, snapshot in snapshots), events=tuple(events))


def read_line(line: str, place: str) -> Snapshot | Mapping[str, Any]:
    """A snapshot, or an event as it was written."""
    data = read_json(line, place)
    if not isinstance(data, dict):
        raise InvalidInput(f"{place}: a JSON object was expected, found {type(data).__name__}")
    kind = data.pop("event", "snapshot")
    if kind == "snapshot":
        return snapshot_from_json(data, place=place)
    if not isinstance(kind, str):
        raise InvalidInput(f"{place}: event must be a text, found {kind!r}")
    return {"event": kind, **data}


def _check_order(known: list[tuple[int, Snapshot]], found: Snapshot, number: int, path: Path) -> None:
    if known and found.at_s <= known[-1][1].at_s:
        line, before = known[-1]
        raise InvalidInput(
            f"{path}: line {number}: windows out of order: this one ends at {found.at_s} s, "
            f"the one in line {line} at {before.at_s} s (at_s)"
        )


def _is_whole(line: str | bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _repaired(path: Path) -> bool:
    """See to it that the file ends with a whole line; whether one that was cut off had to go."""
    if not path.is_file():
        return False
    with path.open("rb+") as file:
        content = file.read()
        whole = content.rfind(b"\n") + 1
        if whole == len(content):
            return False
        if _is_whole(content[whole:]):
            file.write(b"\n")
            return False
        file.truncate(whole)
    return True
