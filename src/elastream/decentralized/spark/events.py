"""What happened to an instance, one JSON object on each line of its `events.jsonl`; written by it, read by
anyone."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from elastream.decentralized.protocol.messages import Address
from elastream.decentralized.spark.folders import RunFolder

_LAST_BYTES = 4096


class EventLog:
    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8", buffering=1)
        self._lock = threading.Lock()

    def record(self, event: str, **told: Any) -> None:
        line = json.dumps({"at_s": round(time.time(), 3), "event": event, **told}, default=str)
        with self._lock:
            self._file.write(line + "\n")


def read_events(path: Path) -> Iterator[dict[str, Any]]:
    """All that are whole: the last line of a killed process may not be."""
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            continue
        yield found


def last_event(path: Path) -> dict[str, Any] | None:
    """The newest that is whole, without reading all of them."""
    if not path.exists():
        return None
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LAST_BYTES))
        lines = file.read().splitlines(keepends=True)
    whole = [line for line in lines if line.startswith(b"{") and line.endswith(b"\n")]
    return json.loads(whole[-1]) if whole else None


def all_events(run: RunFolder) -> list[dict[str, Any]]:
    """Those of all instances in the order of time, each with its `instance`."""
    return _merged((folder.me, folder.events) for folder in run.instances())


def all_metrics(run: RunFolder) -> list[dict[str, Any]]:
    return _merged((folder.me, folder.metrics) for folder in run.instances())


def _merged(files: Iterable[tuple[Address, Path]]) -> list[dict[str, Any]]:
    found = [{**event, "instance": instance} for instance, path in files for event in read_events(path)]
    return sorted(found, key=lambda event: float(event["at_s"]))
