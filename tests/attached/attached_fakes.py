"""A session that is not there: queries, executors and a REST API that do as they are told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attached_batches import ran

from elastream.attached.attaching import Attached, AttachOptions, Used, _Job
from elastream.attached.engine import AttachedEngine
from elastream.attached.policy import NAME, BatchSchedule
from elastream.attached.watch import Arrival, QueryWatch
from elastream.errors import ElastreamError
from elastream.manager.knobs import Knobs
from elastream.manager.run import Run, header_of


@dataclass
class FakeHolder:
    """Executors of a cluster, of which at most `room` are to be had."""

    up: int = 8
    room: int = 100
    configured: int = 8
    can_change: bool = True
    gone: bool = False
    given_back: int = 0
    asked: list[int] = field(default_factory=list)

    def most(self) -> int:
        return self.configured

    def take(self, least: int, most: int) -> None:
        pass

    def count(self) -> int:
        return self.up

    def change(self, total: int, alive: Callable[[], None]) -> str:
        if self.given_back:
            raise ElastreamError("the executors were given back")
        self.asked.append(total)
        self.up = min(total, self.room)
        return "" if self.up == total else f"{total} were asked for, and {self.up} are there"

    def give_back(self) -> None:
        self.given_back += 1
        self.up = self.configured

    def is_gone(self) -> bool:
        return self.gone


class FakeQueries:
    """One query of which all is known, every ten seconds 10,000 rows of 1 ms each in two stages."""

    def __init__(self, *, rows: float = 10_000) -> None:
        watch = QueryWatch(name="counts", run="run-1", interval_s=10.0)
        for number in range(8):
            watch.arrivals.append(Arrival(started_s=10.0 * number, rows=rows, left=0.0))
            watch.learn(ran(number, rows * (1 + 0.1 * number), 8, tasks=(40, 40)))
        self.sized = [watch]
        self.left_alone: dict[str, str] = {}
        self.looks = 0
        self.on_look: Callable[[], None] = lambda: None

    def look(self) -> None:
        self.looks += 1
        self.on_look()


def executors_of(holder: FakeHolder) -> list[dict[str, Any]]:
    return [
        {
            "id": str(number),
            "hostPort": "worker:1",
            "isActive": True,
            "totalCores": 1,
            "activeTasks": 0,
            "totalDuration": 0,
        }
        for number in range(holder.count())
    ]


def engine_of(queries: FakeQueries, holder: FakeHolder, *, least: int = 1, most: int = 16) -> AttachedEngine:
    def get(path: str) -> Any:
        return executors_of(holder) if path == "/executors" else []

    return AttachedEngine(queries=queries, holder=holder, get=get, least=least, most=most)  # type: ignore[arg-type]


def attached_of(
    folder: Path, queries: FakeQueries, holder: FakeHolder, *, interval_s: float = 0.02, **knobs: Any
) -> Attached:
    settled = AttachOptions(knobs={"scale_down_delay_s": 0.0, "interval_s": interval_s, **knobs}).settled()
    return _attached(folder, settled, engine_of(queries, holder), holder)


def _attached(folder: Path, knobs: Knobs, engine: AttachedEngine, holder: FakeHolder) -> Attached:
    policy, used = BatchSchedule(), Used()
    run = Run(
        job=_Job("job", engine),
        policy=policy,
        knobs=knobs,
        folder=folder,
        header=header_of("job", "attached", NAME, policy, knobs),
        on_snapshot=used.window,
        on_event=used.event,
    )
    found = Attached(application="app", run=run, engine=engine, holder=holder, used=used)
    found._start()
    return found


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "elastream"]
