"""Recordings: what was measured and what was done, as JSON lines that can be written, read and replayed.

Every line is an object with its kind under `event`. A line of the kind `snapshot` is a snapshot in the snapshot
format; a line without `event` is taken for one, so that plain snapshots in a file are a recording too. The other
kinds are the manager's events. A line is written whole and flushed; what a killed writer leaves behind is at
most one line that is cut off, and the next writer removes it.

Every run begins with a line of the kind `recording`: the version of the format, and what was run with which
settings. Recordings from before there was such a line are read as well; one of a newer version is refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from elastream.errors import ElastreamError, InvalidInput, shown
from elastream.formats import read_json, read_text
from elastream.measurement.snapshot import Snapshot
from elastream.measurement.snapshot_format import snapshot_from_json, snapshot_to_json
from elastream.texts import check_name

VERSION = 4
"""Of the format; higher once a reader of this one could no longer make sense of it. Since version 2 a snapshot may
have executors, a key that readers of version 1 refuse; since version 3 notes and late records, and a recording the
accounts of a run; since version 4 a reading may be of several instances together, with the spread of its tasks,
and a snapshot names those that fail."""
_HEADER = "recording"
_BLOCK = 1 << 16
_LONGEST_LINE = 1 << 26  # bytes; a last line beyond it is taken to be cut off


@dataclass(frozen=True, kw_only=True)
class RunHeader:
    """What a run says of itself when it begins; what it does not say is not known."""

    pipeline: str | None = None
    engine: str | None = None
    policy: str | None = None
    """By its name in the catalog."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of the policy."""
    knobs: Mapping[str, Any] = field(default_factory=dict)
    """Of the manager."""


@dataclass(frozen=True, kw_only=True)
class Recording:
    snapshots: tuple[Snapshot, ...]
    """Each ends later than the one before it."""
    events: tuple[Mapping[str, Any], ...]
    """Everything else, as it was written, in order."""
    headers: tuple[RunHeader, ...] = ()
    """One for each run that wrote to it, oldest first."""
    cut_off: bool = False
    """Whether a last line was left out because it is not whole: being written, or left by a killed writer."""
    out_of_order: int = 0
    """Windows that were left out because an earlier one ends no sooner: the clock was set back."""


class RecordingWriter:
    """Appends to a recording, after a last line that was cut off is removed; or begins anew."""

    def __init__(self, path: Path, *, anew: bool = False) -> None:
        self.path = path
        self._torn_at: int | None = None
        """Where a line begins that could not be written to its end."""
        with self._errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            self.repaired = not anew and _repaired(path)
            self._file = path.open("wb" if anew else "ab", buffering=0)
            self._is_file = path.is_file()

    def begin(self, header: RunHeader) -> None:
        """The first line of a run; a recording that is appended to has one for each."""
        self.write(header_line(header))

    def snapshot(self, snapshot: Snapshot) -> None:
        self.write(snapshot_line(snapshot))

    def write(self, line: Mapping[str, Any]) -> None:
        """Whole or not at all: of a line for which the disk has no room nothing stays."""
        content = (json.dumps(line, separators=(",", ":")) + "\n").encode()
        with self._errors():
            self._mend()
            self._torn_at = os.fstat(self._file.fileno()).st_size
            while content:
                content = content[self._file.write(content) :]
            self._torn_at = None

    def close(self) -> None:
        with self._errors():
            with suppress(OSError):  # whoever opens it next removes what is left
                self._mend()
            self._file.close()

    def _mend(self) -> None:
        if self._torn_at is not None and self._is_file:
            self._file.truncate(self._torn_at)
            self._torn_at = None

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


def header_line(header: RunHeader) -> Mapping[str, Any]:
    return {"event": _HEADER, "version": VERSION, **asdict(header)}


def snapshot_line(snapshot: Snapshot) -> Mapping[str, Any]:
    return {"event": "snapshot", **snapshot_to_json(snapshot)}


def read_recording(path: Path, *, ignore_cut_off: bool = False) -> Recording:
    """Read a recording; every error names the file and the line."""
    text = read_text(path)
    lines = text.split("\n")
    last = lines.pop()  # what stands after the last line feed: nothing, if the last line is whole
    cut_off = bool(last) and not _is_whole(last)
    if cut_off:
        if not ignore_cut_off:
            raise InvalidInput(
                f"{path}: line {len(lines) + 1}: the last line is cut off, as if its writer was stopped; "
                "--ignore-cut-off reads what is before it"
            )
    elif last:
        lines.append(last)
    snapshots: list[Snapshot] = []
    headers: list[RunHeader] = []
    events: list[Mapping[str, Any]] = []
    out_of_order = 0
    for number, line in enumerate(lines, start=1):
        if line.strip():
            match read_line(line, f"{path}: line {number}"):
                case Snapshot(at_s=at_s) if snapshots and at_s <= snapshots[-1].at_s:
                    out_of_order += 1
                case Snapshot() as snapshot:
                    snapshots.append(snapshot)
                case RunHeader() as header:
                    headers.append(header)
                case event:
                    events.append(event)
    if not snapshots:
        raise InvalidInput(f"{path}: the recording is empty: no line has a snapshot")
    return Recording(
        snapshots=tuple(snapshots),
        events=tuple(events),
        headers=tuple(headers),
        cut_off=cut_off,
        out_of_order=out_of_order,
    )


def read_line(line: str, place: str) -> Snapshot | RunHeader | Mapping[str, Any]:
    """What it tells of; an event is as it was written."""
    data = read_json(line, place)
    if not isinstance(data, dict):
        raise InvalidInput(f"{place}: a JSON object was expected, found {type(data).__name__}")
    kind = data.pop("event", "snapshot")
    if kind == "snapshot":
        return snapshot_from_json(data, place=place)
    if kind == _HEADER:
        return _header(data, place)
    if not isinstance(kind, str):
        raise InvalidInput(f"{place}: event must be a text, found {shown(kind)}")
    return {"event": kind, **data}


def _check_version(data: Mapping[str, Any], place: str) -> None:
    version = data.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise InvalidInput(f"{place}: version: a whole number of at least 1 was expected, found {shown(version)}")
    if version > VERSION:
        raise InvalidInput(
            f"{place}: this recording has version {version}, written by a newer elastream; "
            f"this one reads versions up to {VERSION}"
        )


def _header(data: Mapping[str, Any], place: str) -> RunHeader:
    """Keys that are not known are passed over: a reader that had to know them would have another version."""
    _check_version(data, place)
    return RunHeader(
        pipeline=_text(data, "pipeline", place),
        engine=_text(data, "engine", place),
        policy=_text(data, "policy", place),
        options=_settings(data, "options", place),
        knobs=_settings(data, "knobs", place),
    )


def _text(data: Mapping[str, Any], name: str, place: str) -> str | None:
    found = data.get(name)
    if found is not None and not isinstance(found, str):
        raise InvalidInput(f"{place}: {name}: a text was expected, found {shown(found)}")
    check_name(found or "", f"{place}: {name}")
    return found


def _settings(data: Mapping[str, Any], name: str, place: str) -> Mapping[str, Any]:
    found = data.get(name, {})
    if not isinstance(found, dict):
        raise InvalidInput(f"{place}: {name}: an object was expected, found {shown(found)}")
    return found


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
        length = file.seek(0, os.SEEK_END)
        whole = _after_last_line_feed(file, length)
        if whole == length:
            return False
        file.seek(whole)
        if length - whole <= _LONGEST_LINE and _is_whole(file.read()):
            file.write(b"\n")
            return False
        file.truncate(whole)
    return True


def _after_last_line_feed(file: BinaryIO, length: int) -> int:
    """From the end, block by block: a recording may be larger than the memory."""
    end = length
    while end > 0:
        begin = max(0, end - _BLOCK)
        file.seek(begin)
        found = file.read(end - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0
