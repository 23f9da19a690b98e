"""How long a stateful operator on Spark stands still when it is rescaled under load, and what it waits for.

The pause is the time between the last batch that ended before an action and the first that ended after it, less
the usual time between two batches. Batches end when Spark writes their commit file, so its time of writing is the
clock. Every rescale is broken down into its steps, by what Spark says of the first batch and by marks of our own.

Beside it, in the same run: the action of a stateless operator, which is a line in a control file; and a driver
that is killed and started again in a new process, which is what an engine without rescaling of single operators
does. What was published of other engines is printed for comparison, and was not measured here.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.batches import Batch, Marks, median_breakdown_s, pause_s
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
from elastream.engines.spark.channels.segments import SegmentLog
from elastream.engines.spark.engine import SparkEngine
from elastream.engines.spark.pipeline import Pipeline
from elastream.workloads.generator import SCHEMA

MOST_PAUSE_S = 3.0
MOST_STATELESS_PAUSE_S = 0.5  # half a batch interval: the batch that was due comes when it is due
_BATCH_INTERVAL_S = 1.0
_SENTENCES_PER_S = 2_000
_KEYS = 200_000
_SETTLE_BATCHES = 4
_SLOTS = 8
PUBLISHED = (
    "published, not measured here: Flink 1.4 in the DS2 paper 30 to 50 s; Flink 1.12 in the Gesscale paper 120 s; "
    "Flink 2.3 with its adaptive scheduler 0.8 s for a whole job with 200,000 keys on a machine like this one"
)


def pipeline(keys: int = _KEYS) -> Pipeline:
    found = Pipeline("pauses")
    found.feed("sentences", schema=SCHEMA)

    @found.operator(reads="sentences", max_parallelism=8)
    def numbered(sentences: DataFrame) -> DataFrame:
        return sentences.select((F.col("id") % keys).alias("key"))

    @found.operator(reads="numbered", state_partitions=12, output_mode="update")
    def counts(numbered: DataFrame) -> DataFrame:
        return numbered.groupBy("key").count()

    return found


def run(*, rescales: int = 30, stateless: int = 10, restarts: int = 3, keys: int = _KEYS) -> Report:
    with temporary_folder() as folder:
        feed, state = channel(folder, "sentences"), checkpoint(folder, "counts")
        put_once(feed, keys)  # every key is in the state from the beginning
        with ExitStack() as whole:
            whole.enter_context(generator(feed, _SENTENCES_PER_S))
            with (
                session("pauses", slots=_SLOTS) as spark,
                running(spark, pipeline(keys), folder, batch_interval_s=_BATCH_INTERVAL_S) as engine,
            ):
                _catch_up(folder)
                rescaled = [_rescale_stateful(engine, state, 2 if n % 2 else 4) for n in range(rescales)]
                untouched = [_rescale_stateless(engine, folder, 2 if n % 2 else 4) for n in range(stateless)]
            restarted = _restarts(folder, keys, restarts)
    return _report(rescaled, untouched, restarted, keys)


def _report(rescaled: list[Marks], untouched: list[float], restarted: list[float], keys: int) -> Report:
    pauses = [pause_s(marks) for marks in rescaled]
    middle, again = median_between(pauses), median(restarted)
    phases = median_breakdown_s(rescaled)
    dominant = max(phases, key=lambda phase: phases[phase])
    return Report(
        measures=(
            Measure(
                what=f"pause of a stateful operator with {keys:,} keys, {len(pauses)} rescales: median",
                value=middle.value,
                unit="s",
                between=middle.between,
            ),
            Measure(what="the same: 95th percentile", value=p95(pauses), unit="s", at_most=MOST_PAUSE_S),
            *(
                Measure(what=f"of a rescale, median: {phase}", value=value_s, unit="s")
                for phase, value_s in phases.items()
            ),
            Measure(
                what="the usual time between two batches, median",
                value=median(marks.usual_s for marks in rescaled),
                unit="s",
            ),
            Measure(
                what=f"pause of a stateless operator, {len(untouched)} rescales: median",
                value=median(untouched),
                unit="s",
                at_most=MOST_STATELESS_PAUSE_S,
            ),
            Measure(
                what=f"driver killed and started again, {len(restarted)} times: median", value=again, unit="s"
            ),
            Measure(what="a rescale by a restart of the driver", value=middle.value / again, unit="times"),
        ),
        notes=(
            f"a rescale spends most on: {dominant}",
            f"{_SENTENCES_PER_S:,} records/s, a batch every {_BATCH_INTERVAL_S:g} s, 12 state partitions, "
            "parallelism 2 and 4 in turn",
            PUBLISHED,
        ),
    )


def _catch_up(folder: Path) -> None:
    """Until the backlog of the beginning is gone, and every key has been counted once."""
    feed, numbered = SegmentLog(channel(folder, "sentences")), SegmentLog(channel(folder, "numbered"))
    most = 3 * _SENTENCES_PER_S * _BATCH_INTERVAL_S
    wait_until(lambda: feed.pending("numbered") < most and numbered.pending("counts") < most, "the backlog gone")


# A stateful operator


def _rescale_stateful(engine: SparkEngine, state: Path, parallelism: int) -> Marks:
    await_batches(state, _SETTLE_BATCHES)
    usual_s, usual_work_s = _usual(engine, state)
    step = engine._queries["counts"]
    run_before = str(step.query.runId)
    with watched(step.query, "stop") as stop, watched(step, "start") as start:
        asked_s = time.time()
        rescale(engine, "counts", parallelism)
    first = _first_batch(engine, run_before)
    ended = ends_s(state)
    return Marks(
        last_end_s=max(end_s for end_s in ended if end_s < _ended_s(stop)),
        asked_s=asked_s,
        stop_s=stop.began_s[0],
        stopped_s=_ended_s(stop),
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


# A stateless one, and everything


def _rescale_stateless(engine: SparkEngine, folder: Path, parallelism: int) -> float:
    at = checkpoint(folder, "numbered")
    await_batches(at, _SETTLE_BATCHES)
    ended = ends_s(at)
    usual_s = median(later - earlier for earlier, later in pairwise(ended[-_SETTLE_BATCHES:]))
    rescale(engine, "numbered", parallelism)
    return max(0.0, await_batches(at, 1, since_s=ended[-1]) - ended[-1] - usual_s)


def _restarts(folder: Path, keys: int, times: int) -> list[float]:
    """The pause of each kill of the driver with an immediate start of a new one."""
    (folder / "keys").write_text(str(keys), encoding="utf-8")
    state, found, ended_s = checkpoint(folder, "counts"), [], None
    for _ in range(times + 1):  # the first is there to be killed
        with driver("benchmarks.rescale_pause", folder):
            if ended_s is not None:
                found.append(await_batches(state, 1, since_s=ended_s) - ended_s - _BATCH_INTERVAL_S)
            await_batches(state, 2 * _SETTLE_BATCHES)
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
