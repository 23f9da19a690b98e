"""How long an operator on Spark stands still when it is rescaled under load.

The pause is the longest time without a finished batch around an action, of the batch under way and of the next
one, which has its effect, less the usual time between two batches. Batches end when Spark writes their commit
file, so its time of writing is the clock. The same of two batches before the action, when nothing was done, is
printed beside it.

Within its state partitions an operator with state is rescaled as one without: nothing may be restarted. Beyond
them its query is stopped and its state moved; that is broken down into its steps, by what Spark says of the
first batch and by marks of our own. Last, a driver is killed and started again in a new process, which is what
an engine without rescaling of single operators does. What was published of other engines is printed for
comparison, and was not measured here.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.batches import Around, Batch, Marks, median_breakdown_s, pause_s
from benchmarks.measure import Measure, Report
from benchmarks.spark_runs import (
    Stopwatch,
    await_batches,
    batches_of,
    channel,
    checkpoint,
    driver,
    ends_s,
    generator,
    none_failed,
    put_once,
    rescale,
    running,
    session,
    temporary_folder,
    wait_until,
    watched,
)
from benchmarks.spread import median_between, p95
from elastream.engines.spark import query as step_queries
from elastream.engines.spark.channels.segments import SegmentLog
from elastream.engines.spark.engine import SparkEngine
from elastream.engines.spark.pipeline import Pipeline
from elastream.workloads.generator import SCHEMA

MOST_MEDIAN_S = 0.1
MOST_P95_S = 0.3
_BATCH_INTERVAL_S = 1.0
_SENTENCES_PER_S = 2_000
_KEYS = 200_000
_MORE_KEYS = 2_000_000
_SETTLE_BATCHES = 7
_SLOTS = 8
_PARTITIONS = 12
_MOST_PARALLELISM = 96
_LOADING_S = 1_800.0  # until every key is in the state
PUBLISHED = (
    "published, not measured here: Flink 1.4 in the DS2 paper 30 to 50 s; Flink 1.12 in the Gesscale paper 120 s; "
    "Flink 2.3 with its adaptive scheduler 0.53 to 0.89 s (median 0.79 s) for a whole job with 200,000 keys on a "
    "machine like this one"
)


def pipeline(keys: int = _KEYS) -> Pipeline:
    found = Pipeline("pauses")
    found.feed("sentences", schema=SCHEMA)

    @found.operator(reads="sentences", max_parallelism=8)
    def numbered(sentences: DataFrame) -> DataFrame:
        return sentences.select((F.col("id") % keys).alias("key"))

    @found.operator(
        reads="numbered",
        state_partitions=_PARTITIONS,
        max_parallelism=_MOST_PARALLELISM,
        output_mode="update",
    )
    def counts(numbered: DataFrame) -> DataFrame:
        return numbered.groupBy("key").count()

    return found


@dataclass(frozen=True, kw_only=True)
class Rescaled:
    """The rescales of one operator, one after another."""

    around: Sequence[Around]
    restarts: int
    """Of its query, meanwhile."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Of a pipeline with so many keys."""

    keys: int
    stateful: Rescaled
    stateless: Rescaled | None = None
    moved: Sequence[Marks] = ()
    killed_s: Sequence[float] = ()


def run(
    *,
    rescales: int = 30,
    stateless: int = 10,
    moves: int = 3,
    kills: int = 3,
    keys: int = _KEYS,
    more_keys: int = _MORE_KEYS,
) -> Report:
    few = _seen(keys, rescales=rescales, stateless=stateless, moves=moves, kills=kills)
    many = _seen(more_keys, rescales=rescales)
    return _report(few, many)


def _seen(keys: int, *, rescales: int, stateless: int = 0, moves: int = 0, kills: int = 0) -> Seen:
    with temporary_folder() as folder, ExitStack() as whole:
        feed = channel(folder, "sentences")
        put_once(feed, keys)  # every key is in the state from the beginning
        whole.enter_context(generator(feed, _SENTENCES_PER_S))
        with (
            session("pauses", slots=_SLOTS) as spark,
            running(spark, pipeline(keys), folder, batch_interval_s=_BATCH_INTERVAL_S) as engine,
        ):
            _catch_up(folder)
            stateful = _rescaled(engine, folder, "counts", rescales)
            without_state = _rescaled(engine, folder, "numbered", stateless) if stateless else None
            moved = [_move(engine, checkpoint(folder, "counts")) for _ in range(moves)]
        killed_s = _kills(folder, keys, kills) if kills else []
    return Seen(keys=keys, stateful=stateful, stateless=without_state, moved=moved, killed_s=killed_s)


def _report(few: Seen, many: Seen) -> Report:
    measures = [
        *_of_rescales(few.stateful, f"with {few.keys:,} keys"),
        *_of_rescales(many.stateful, f"with {many.keys:,} keys"),
    ]
    if few.stateless is not None:
        measures += _of_rescales(few.stateless, "without state")
    if few.moved:
        measures.append(
            Measure(
                what=f"pause where the state is moved into more partitions, {len(few.moved)} times: median",
                value=median(pause_s(marks) for marks in few.moved),
                unit="s",
            )
        )
        measures += [
            Measure(what=f"of that: {phase}", value=value_s, unit="s")
            for phase, value_s in median_breakdown_s(few.moved).items()
        ]
    if few.killed_s:
        what = f"driver killed and started again, {len(few.killed_s)} times: median"
        measures.append(Measure(what=what, value=median(few.killed_s), unit="s"))
    return Report(
        measures=tuple(measures),
        notes=(
            f"{_SENTENCES_PER_S:,} records/s, a batch every {_BATCH_INTERVAL_S:g} s, {_PARTITIONS} state "
            "partitions, parallelism 2 and 4 in turn",
            PUBLISHED,
        ),
    )


def _of_rescales(seen: Rescaled, which: str) -> list[Measure]:
    pauses, without = [[one.pause_s for one in seen.around], [one.pause_without_s for one in seen.around]]
    middle = median_between(pauses)
    return [
        Measure(
            what=f"pause of an operator {which}, {len(pauses)} rescales: median",
            value=middle.value,
            unit="s",
            at_most=MOST_MEDIAN_S,
            between=middle.between,
        ),
        Measure(what="the same: 95th percentile", value=p95(pauses), unit="s", at_most=MOST_P95_S),
        Measure(what="the same between batches without a rescale: median", value=median(without), unit="s"),
        Measure(what="the same between batches without a rescale: 95th percentile", value=p95(without), unit="s"),
        Measure(
            what="the usual time between two batches", value=median(one.usual_s for one in seen.around), unit="s"
        ),
        Measure(what="restarts of its query", value=seen.restarts, unit="", at_most=0),
    ]


def _catch_up(folder: Path) -> None:
    """Until the backlog of the beginning is gone, and every key has been counted once."""
    feed, numbered = SegmentLog(channel(folder, "sentences")), SegmentLog(channel(folder, "numbered"))
    most = 3 * _SENTENCES_PER_S * _BATCH_INTERVAL_S
    wait_until(
        lambda: feed.pending("numbered") < most and numbered.pending("counts") < most,
        "the backlog gone",
        _LOADING_S,
    )


# Within the state partitions


def _rescaled(engine: SparkEngine, folder: Path, operator: str, times: int) -> Rescaled:
    at, runs, around = checkpoint(folder, operator), set(), []
    for number in range(times):
        await_batches(at, _SETTLE_BATCHES)
        before_s = ends_s(at)[-_SETTLE_BATCHES:]
        rescale(engine, operator, 2 if number % 2 else 4)
        await_batches(at, 2, since_s=before_s[-1])
        around.append(Around(before_s=before_s, after_s=[s for s in ends_s(at) if s > before_s[-1]]))
        runs.add(str(engine._queries[operator].query.runId))
        none_failed(engine)
    return Rescaled(around=around, restarts=len(runs) - 1)


# Beyond them


def _move(engine: SparkEngine, state: Path) -> Marks:
    """To one instance more than there are partitions, which makes more of them."""
    await_batches(state, _SETTLE_BATCHES)
    usual_s, usual_work_s = _usual(engine, state)
    step = engine._queries["counts"]
    run_before, partitions = str(step.query.runId), step.state_partitions
    assert partitions is not None
    with (
        watched(step.query, "stop") as stop,
        watched(step, "start") as start,
        watched(step_queries, "repartition") as moving,
    ):
        asked_s = time.time()
        rescale(engine, "counts", partitions + 1)
    first = _first_batch(engine, run_before)
    ended = ends_s(state)
    return Marks(
        last_end_s=max(end_s for end_s in ended if end_s < _ended_s(stop)),
        asked_s=asked_s,
        stop_s=stop.began_s[0],
        stopped_s=_ended_s(stop),
        moved_s=_ended_s(moving),
        started_s=_ended_s(start),
        first=first,
        first_end_s=min(end_s for end_s in ended if end_s > _ended_s(start)),
        usual_s=usual_s,
        usual_work_s=usual_work_s,
    )


def _ended_s(watch: Stopwatch) -> float:
    return watch.began_s[0] + watch.took_s[0]


def _usual(engine: SparkEngine, state: Path) -> tuple[float, float]:
    """The time between two batches, and the work of one."""
    ended = ends_s(state)[-_SETTLE_BATCHES:]
    works = [batch.parts_s["addBatch"] for batch in batches_of(engine) if batch.query == "counts"]
    # the first batches of a run are cold
    return median(later - earlier for earlier, later in pairwise(ended)), median(works[-2:])


def _first_batch(engine: SparkEngine, run_before: str) -> Batch:
    """The first batch of the query that was started in place of that run."""
    found: list[Batch] = []

    def is_there() -> bool:
        found[:] = [b for b in batches_of(engine) if b.query == "counts" and b.run != run_before]
        return none_failed(engine) and bool(found)

    wait_until(is_there, "the first batch after a rescale")
    return found[0]


# Everything


def _kills(folder: Path, keys: int, times: int) -> list[float]:
    """The pause of each kill of the driver with an immediate start of a new one."""
    (folder / "keys").write_text(str(keys), encoding="utf-8")
    state, found, ended_s = checkpoint(folder, "counts"), [], None
    for _ in range(times + 1):  # the first is there to be killed
        with driver("benchmarks.rescale_pause", folder):
            if ended_s is not None:
                found.append(await_batches(state, 1, since_s=ended_s) - ended_s - _BATCH_INTERVAL_S)
            await_batches(state, _SETTLE_BATCHES)
        ended_s = ends_s(state)[-1]
    return found


def _drive(folder: Path) -> None:
    """The driver that is killed: as `elastream run` does it, a session and an engine that goes on where it was."""
    keys = int((folder / "keys").read_text(encoding="utf-8"))
    with (
        session("pauses", slots=_SLOTS) as spark,
        running(spark, pipeline(keys), folder, batch_interval_s=_BATCH_INTERVAL_S) as engine,
    ):
        while True:
            time.sleep(10)
            engine.measure()


if __name__ == "__main__":
    _drive(Path(sys.argv[1]))
