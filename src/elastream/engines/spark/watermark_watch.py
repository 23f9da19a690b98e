"""What whoever runs a pipeline should know of its watermarks: one that runs far ahead, one that is held back.

A single event time in the far future moves a watermark there for good, and everything else is late from then on.
And an operator with several inputs waits for the slowest: one that has fallen silent lets state grow and results
wait. Neither is an error, and plain Spark says nothing of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

_AHEAD_S = 3600.0  # of the clock: clocks may differ, and time zones are mixed up by hours
_SILENT_S = 30.0  # while another input brings records


@dataclass
class WatermarkWatch:
    """Of one operator; fed with the progress of its query and with what its inputs have brought."""

    name: str
    _watermark_s: float = 0.0
    _brought: dict[str, int] = field(default_factory=dict)
    _news_s: dict[str, float] = field(default_factory=dict)

    def progress(self, entries: Iterable[Mapping[str, Any]]) -> None:
        for entry in entries:
            text = (entry.get("eventTime") or {}).get("watermark")
            if text is not None:
                self._watermark_s = _seconds(str(text))

    def inputs(self, brought: Mapping[str, int], *, now_s: float) -> None:
        """How many records each input has brought from the beginning; `now_s` is monotonic."""
        for name, count in brought.items():
            if count != self._brought.get(name) or name not in self._news_s:
                self._news_s[name] = now_s
        self._brought = dict(brought)

    def notes(self, *, clock_s: float, now_s: float) -> list[str]:
        """`clock_s` is the time of day, in seconds since 1970. A note that stays has the same words every time."""
        return [*self._ahead(clock_s), *self._held_back(clock_s, now_s)]

    def _ahead(self, clock_s: float) -> list[str]:
        if self._watermark_s - clock_s <= _AHEAD_S:
            return []
        return [
            f"{self.name}: its watermark stands at {_moment(self._watermark_s)}, ahead of this machine's clock, "
            "and whatever is earlier is dropped as late. Most likely an event time was wrong: filter such records "
            "out before the watermark is declared, and begin anew"
        ]

    def _held_back(self, clock_s: float, now_s: float) -> list[str]:
        silent = {name: since_s for name, since_s in self._news_s.items() if now_s - since_s >= _SILENT_S}
        if not silent or len(silent) == len(self._news_s):
            return []
        at = f" at {_moment(self._watermark_s)}" if self._watermark_s > 0 else ""
        return [
            f"{self.name}: {name!r} has brought nothing since {_moment(clock_s - (now_s - since_s))}, which holds "
            f"the watermark{at}: results that wait for it, and state, pile up"
            for name, since_s in silent.items()
        ]


def _seconds(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:  # a year of five digits, which Python does not know
        return math.inf


def _moment(seconds: float) -> str:
    if math.isinf(seconds):
        return "a year beyond 9999"
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
