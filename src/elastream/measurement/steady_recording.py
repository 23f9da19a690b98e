"""A recording that never ends its run: what cannot be written is left out, which is told once, as is its end.

What is missing is counted, and where the recording goes on, a line of it says how much is not there.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from elastream.errors import ElastreamError
from elastream.measurement.recording import RecordingWriter, RunHeader, header_line, snapshot_line
from elastream.measurement.snapshot import Snapshot

_log = logging.getLogger(__name__)

_ENOUGH_BYTES = 1_000_000
"""That a disk must have left before it is written to again: else it is full now, and again after a short line."""


def _logged(what: str) -> None:
    _log.warning("%s", what)


class SteadyRecording:
    """`RecordingWriter`, but only opening it may fail; `tell` is called when it stops and when it goes on."""

    def __init__(
        self,
        path: Path,
        *,
        anew: bool = False,
        tell: Callable[[str], None] = _logged,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._writer = RecordingWriter(path, anew=anew)
        self._tell = tell
        self._now = now
        self._header: Mapping[str, Any] | None = None
        self._lacks, self._failing = 0, False

    @property
    def repaired(self) -> bool:
        return self._writer.repaired

    def begin(self, header: RunHeader) -> None:
        """The first line of a run, which comes as soon as anything can be written."""
        self._header = header_line(header)
        if self._written(self._header):
            self._header = None

    def snapshot(self, snapshot: Snapshot) -> None:
        self.write(snapshot_line(snapshot))

    def write(self, line: Mapping[str, Any]) -> None:
        if (self._failing and not self._has_room()) or not self._catch_up() or not self._written(line):
            self._lacks += 1

    def _has_room(self) -> bool:
        try:
            return shutil.disk_usage(self._writer.path.parent).free >= _ENOUGH_BYTES
        except OSError:
            return False

    def _catch_up(self) -> bool:
        """What has to stand before the next line: the header, and how many lines are missing."""
        if self._header is not None and not self._written(self._header):
            return False
        self._header = None
        if self._lacks and not self._written(self._gap()):
            return False
        if self._failing:
            self._tell(f"{self._writer.path}: is written again; it lacks {self._lacks:,} lines")
        self._failing, self._lacks = False, 0
        return True

    def _gap(self) -> Mapping[str, Any]:
        what = f"the recording lacks {self._lacks:,} lines before this one, which could not be written"
        return {"event": "trouble", "at_s": self._now(), "what": what}

    def _written(self, line: Mapping[str, Any]) -> bool:
        try:
            self._writer.write(line)
        except ElastreamError as error:
            if not self._failing:
                self._tell(f"{error}; the run goes on without a recording, until it can be written again")
            self._failing = True
            return False
        return True

    def close(self) -> None:
        try:
            self._writer.close()
        except ElastreamError as error:
            _logged(str(error))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
