"""From what Spark says of a query (progress events, jobs and stages of its REST API) to values; no Spark in it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from elastream.attached.batch import BatchRun, StageRun, covered_s
from elastream.errors import ElastreamError

QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
_EVEN_STEPS = 10  # to which the quantiles are brought: from 0 to 1 in tenths
_BATCH = re.compile(r"runId = ([0-9a-f-]+)\s+batch = (\d+)")
_QUERY = re.compile(r"(?:^|\s)id = ([0-9a-f-]+)")
_TRIGGER = re.compile(r"ProcessingTimeTrigger\((\d+)\)")
_NOT_DRIVER = {"triggerExecution"}


def epoch_s(written: str) -> float:
    """A time as progress events (2026-11-16T21:00:00.000Z) or the REST API (...000GMT) write it."""
    plain = written.removesuffix("GMT").removesuffix("Z")
    return datetime.fromisoformat(plain).replace(tzinfo=UTC).timestamp()


# Jobs and stages


def batch_of(job: Mapping[str, Any]) -> tuple[str, int] | None:
    """The run and the number of the batch that a job belongs to; None for a job of no query."""
    described = _BATCH.search(job.get("description") or "")
    if described is None:
        return None
    return str(job.get("jobGroup") or described[1]), int(described[2])


def query_of(job: Mapping[str, Any]) -> tuple[str, str]:
    """The name of the query that a job belongs to, and its id; one without a name has the beginning of its id."""
    told = str(job.get("description") or "")
    found = _QUERY.search(told)
    query = found[1] if found else ""
    name = told.split("\n", 1)[0].strip()
    return name if name and not name.startswith(("id = ", "runId = ")) else f"query-{query[:8]}", query


def stages_by_batch(
    jobs: Iterable[Mapping[str, Any]], stages: Iterable[Mapping[str, Any]]
) -> dict[tuple[str, int], tuple[StageRun, ...]]:
    """The stages of each batch all of whose jobs have ended."""
    ended: dict[int, list[Mapping[str, Any]]] = {}
    for stage in stages:
        ended.setdefault(int(stage["stageId"]), []).append(stage)
    found: dict[tuple[str, int], dict[tuple[int, int], StageRun]] = {}
    running: set[tuple[str, int]] = set()
    for job in jobs:
        key = batch_of(job)
        if key is None:
            continue
        if job["status"] == "RUNNING":
            running.add(key)
        runs = found.setdefault(key, {})
        for stage_id in job["stageIds"]:
            runs.update({(stage_id, int(one["attemptId"])): stage_of(one) for one in ended.get(stage_id, ())})
    return {
        key: tuple(sorted(runs.values(), key=lambda stage: stage.submitted_s))
        for key, runs in found.items()
        if key not in running and runs
    }


def stage_of(told: Mapping[str, Any]) -> StageRun:
    run_ms = float(told["executorRunTime"]) + float(told.get("executorDeserializeTime", 0))
    submitted_s = epoch_s(told["submissionTime"])
    return StageRun(
        tasks=max(1, int(told["numCompleteTasks"])),
        slot_s=run_ms / 1000,
        submitted_s=submitted_s,
        completed_s=epoch_s(told["completionTime"]) if "completionTime" in told else submitted_s,
        rows_in=float(told.get("inputRecords", 0)),
        cpu_s=float(told.get("executorCpuTime", 0)) / 1e9,
        reads_shuffle=int(told.get("shuffleReadRecords", 0)) > 0 or int(told.get("shuffleReadBytes", 0)) > 0,
        writes_shuffle=int(told.get("shuffleWriteRecords", 0)) > 0 or int(told.get("shuffleWriteBytes", 0)) > 0,
        path=f"/stages/{told['stageId']}/{told['attemptId']}",
    )


def quantiles_of(summary: Mapping[str, Any]) -> tuple[float, ...]:
    """From `taskSummary` at QUANTILES: the times of tasks in equal steps, from the shortest to the longest."""
    run_ms = [float(one) for one in summary["executorRunTime"]]
    unpacked = summary.get("executorDeserializeTime") or [0.0] * len(run_ms)
    seconds = [(run + float(more)) / 1000 for run, more in zip(run_ms, unpacked, strict=True)]
    return tuple(_at(step / _EVEN_STEPS, seconds) for step in range(_EVEN_STEPS + 1))


def _at(share: float, values: Sequence[float]) -> float:
    for (below, above), (low, high) in zip(pairwise(QUANTILES), pairwise(values), strict=True):
        if share <= above:
            return low + (high - low) * (share - below) / (above - below)
    return values[-1]


def profiled(batch: BatchRun, get: Callable[[str], Any]) -> BatchRun:
    """With how its tasks shared their time; without, where Spark has forgotten them."""
    quantiles = ",".join(map(str, QUANTILES))
    try:
        stages = tuple(
            replace(stage, quantiles_s=quantiles_of(get(f"{stage.path}/taskSummary?quantiles={quantiles}")))
            for stage in batch.stages
        )
    except ElastreamError:
        return batch
    return replace(batch, stages=stages)


# Progress


def batch_from_progress(progress: Mapping[str, Any], stages: tuple[StageRun, ...], *, cores: int) -> BatchRun:
    parts = {name: float(ms) / 1000 for name, ms in progress["durationMs"].items() if name not in _NOT_DRIVER}
    in_stages_s = covered_s([(stage.submitted_s, stage.completed_s) for stage in stages])
    if "addBatch" in parts:  # what of it is the driver's
        parts["addBatch"] = max(0.0, parts["addBatch"] - in_stages_s)
    return BatchRun(
        batch=int(progress["batchId"]),
        started_s=epoch_s(progress["timestamp"]),
        duration_s=float(progress["durationMs"].get("triggerExecution", 0)) / 1000,
        rows=float(progress["numInputRows"]),
        cores=cores,
        stages=stages,
        parts_s=parts,
    )


def waiting_rows(progress: Mapping[str, Any]) -> float | None:
    """Rows that the sources had when the batch began and that it left: Σ(latest − end) of Kafka's partitions.

    None where a source does not tell, or counts something else than rows.
    """
    total = 0.0
    for source in progress.get("sources", ()):
        found = _left(_offsets(source.get("latestOffset")), _offsets(source.get("endOffset")))
        if found is None:
            return None
        total += found
    return total if progress.get("sources") else None


def _offsets(told: Any) -> Any:
    """Offsets are JSON, which Spark writes as such or as text."""
    if isinstance(told, str):
        try:
            return json.loads(told)
        except ValueError:
            return None
    return told


def _left(latest: Any, end: Any) -> float | None:
    """By topic and partition; what has other forms does not count rows."""
    if not (isinstance(latest, Mapping) and isinstance(end, Mapping)):
        return None
    total = 0.0
    for topic, partitions in latest.items():
        if not (isinstance(partitions, Mapping) and isinstance(end.get(topic, {}), Mapping)):
            return None
        for partition, offset in partitions.items():
            total += max(0.0, float(offset) - float(end.get(topic, {}).get(partition, 0)))
    return total


def splits_by_cores(progress: Mapping[str, Any]) -> bool:
    """Whether the sources make as many tasks as there are cores: Spark's own for tests, and files."""
    found = [str(source.get("description", "")) for source in progress.get("sources", ())]
    return bool(found) and all(one.startswith(("Rate", "FileStreamSource")) for one in found)


def interval_s(trigger: str) -> float | None:
    """Of a trigger as Spark writes it; None for one that has no interval (Once, AvailableNow, real-time, ...)."""
    found = _TRIGGER.search(trigger)
    return None if found is None else int(found[1]) / 1000


def left_alone(trigger: str) -> str | None:
    """Why a query with such a trigger is not sized; None where it is."""
    if trigger.startswith(("OneTimeTrigger", "AvailableNowTrigger")):
        return "it works off what is there and ends (once, availableNow): left as it is"
    if trigger.startswith("RealTimeTrigger"):
        return (
            "real-time mode runs every task of all stages at once: it needs as many cores as it has tasks, "
            "at all times, whatever the load"
        )
    if trigger.startswith("ContinuousTrigger"):
        return "continuous processing runs one task for each partition of its source at all times: left as it is"
    return None
