"""A pipeline on Spark under a manager, for experiments that take their time: what was measured and done."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from elastream.engines.spark.channels.kinds import kind_of
from elastream.engines.spark.kind import Spark
from elastream.engines.spark.options import ChannelOptions, SparkOptions
from elastream.engines.spark.pipeline import Pipeline
from elastream.engines.spark.rest import RestApi
from elastream.engines.spark.run import PipelineFile, SparkJob, records_at
from elastream.manager.events import Decided, Event, Trouble
from elastream.manager.knobs import Knobs
from elastream.manager.run import Run, header_of
from elastream.measurement import Snapshot
from elastream.options import build
from elastream.policies.by_rules import Rules
from elastream.policies.catalog import Policy, info
from elastream.policies.rules import RuleSet

_SLOTS = 32  # more than there are cores: what the experiments let records cost is mostly waiting


@dataclass(frozen=True, kw_only=True)
class Change:
    at_s: float
    before: int
    after: int

    def __str__(self) -> str:
        return f"{self.before} → {self.after} at {self.at_s:.0f} s"


@dataclass(frozen=True, kw_only=True)
class SparkRun:
    operator: str
    snapshots: tuple[Snapshot, ...]
    events: tuple[Event, ...]
    began_s: float
    """When the load began that counts; all times are from there."""

    @property
    def changes(self) -> list[Change]:
        """Of the operator, when each was decided."""
        return [
            Change(at_s=event.at_s - self.began_s, before=change.before, after=change.after)
            for event in self.events
            if isinstance(event, Decided)
            for change in event.decision.changes
            if change.operator == self.operator
        ]

    def series(self, what: str) -> list[tuple[float, float]]:
        """Time and a field of all instances together, where it was measured."""
        found = []
        for snapshot in self.snapshots:
            measured = snapshot.measurements.get(self.operator)
            if measured is not None and (value := getattr(measured.totals, what)) is not None:
                found.append((snapshot.at_s - self.began_s, float(value)))
        return found

    @property
    def sizes(self) -> list[tuple[float, int]]:
        return [(snapshot.at_s - self.began_s, snapshot.plan[self.operator]) for snapshot in self.snapshots]

    @property
    def troubles(self) -> list[str]:
        return [event.what for event in self.events if isinstance(event, Trouble)]

    def as_json(self, *fields: str) -> dict[str, Any]:
        series = {name: [[round(t, 1), round(v, 4)] for t, v in self.series(name)] for name in fields}
        actions = [str(change) for change in self.changes]
        sizes = [[round(t, 1), size] for t, size in self.sizes]
        return {"actions": actions, "sizes": sizes, "troubles": self.troubles, **series}


def run_on_spark(
    pipeline: Pipeline,
    rules: RuleSet,
    folder: Path,
    *,
    operator: str,
    duration_s: float,
    interval_s: float = 5.0,
    batch_s: float = 1.0,
    load: Mapping[str, Any] | None = None,
    channel_bound: int | None = None,
) -> SparkRun:
    """Run it under rules, for so long from the moment that everything is up; times are from there."""
    return managed(
        PipelineFile(pipeline=pipeline, generator=None if load is None else records_at(load)),
        "rules",
        Rules(rules=rules),
        folder,
        operator=operator,
        duration_s=duration_s,
        interval_s=interval_s,
        options=Spark(
            master=f"local[{_SLOTS}]",
            batch_interval_s=batch_s,
            longest_batch_s=batch_s,
            channels=ChannelOptions(bound=channel_bound),
        ),
    )


def managed(
    file: PipelineFile,
    name: str,
    policy: Policy,
    folder: Path,
    *,
    operator: str,
    duration_s: float,
    interval_s: float,
    options: SparkOptions,
    recorded: Mapping[str, Sequence[tuple[float, float]]] | None = None,
) -> SparkRun:
    """The same under any policy, with the knobs that it brings, and what its sources had before."""
    snapshots: list[Snapshot] = []
    events: list[Event] = []
    knobs = replace(build(Knobs, info(name).knobs, place=name), interval_s=interval_s)
    Run(
        job=SparkJob(file=file, options=options, channels=kind_of(options.channels)),
        policy=policy,
        knobs=knobs,
        folder=folder / "run",
        header=header_of(file.pipeline.name, "spark", name, policy, knobs),
        duration_s=duration_s,
        recorded=recorded or {},
        on_snapshot=snapshots.append,
        on_event=events.append,
    ).run()
    began_s = snapshots[0].at_s - snapshots[0].window_s if snapshots else 0.0
    return SparkRun(operator=operator, snapshots=tuple(snapshots), events=tuple(events), began_s=began_s)


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    instance: int
    began_s: float
    cpu_s: float


def tasks_of(operator: str, api: RestApi) -> list[list[Task]]:
    """Of each stage of it that has ended and is still known."""
    stages = api.get("/stages?status=complete")
    own = [stage for stage in stages if str(stage.get("description", "")).startswith(f"{operator}<")]
    return [
        [
            Task(
                instance=task["index"],
                began_s=datetime.fromisoformat(task["launchTime"].replace("GMT", "+00:00")).timestamp(),
                cpu_s=task["taskMetrics"]["executorCpuTime"] / 1e9,
            )
            for task in api.get(f"/stages/{stage['stageId']}/{stage['attemptId']}/taskList?length={_SLOTS}")
        ]
        for stage in own
    ]


def cpu_by_instance(
    stages: Sequence[Sequence[Task]], size: int, began_s: float
) -> dict[int, list[tuple[float, float]]]:
    """Of the stages with as many tasks as there are instances, which begin with each batch."""
    batches = sorted((tasks for tasks in stages if len(tasks) == size), key=lambda tasks: tasks[0].began_s)
    found: dict[int, list[tuple[float, float]]] = {}
    for tasks, after in pairwise(batches):
        lasts_s = after[0].began_s - tasks[0].began_s
        for task in tasks if tasks[0].began_s >= began_s and lasts_s > 0 else ():
            share = round(100 * task.cpu_s / lasts_s, 2)
            found.setdefault(task.instance, []).append((round(task.began_s - began_s, 1), share))
    return found


@contextmanager
def folder_for_a_run() -> Iterator[Path]:
    # Spark may still delete a file of its own while the folder goes
    with tempfile.TemporaryDirectory(prefix="elastream-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)
