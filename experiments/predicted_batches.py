"""How long batches of other people's jobs take on n executors: predicted by `elastream.attached`, and measured.

    python -m experiments run predicted-batches              all jobs
    python -m experiments.predicted_batches scan shuffle     those of them, and what is there

Five jobs read the same files on a standalone cluster of eight executors with one core each, which go from eight to
four, two and one while the job runs. What a row costs is a *wait*, so that a machine of two cores can have eight;
in the job that computes it is a computation, and two executors are the most. The model learns from the batches at
one size, or at two, and predicts those at the others from their rows alone.

A job leaves a file with its batches when it has ended, so it can be run in pieces.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

from elastream.attached.batch import BatchRun, StageRun
from elastream.attached.executors import ClusterExecutors
from elastream.attached.from_spark import batch_from_progress, profiled, stages_by_batch
from elastream.attached.model import fit
from elastream.engines.spark.cluster import ClusterOptions, StandaloneCluster
from elastream.engines.spark.rest import RestApi
from elastream.errors import ElastreamError, InvalidInput, nearest
from experiments.frame import Check, Progress, Report, experiment
from experiments.on_spark import folder_for_a_run

FOLDER = Path("out/predicted-batches")
_BOUND = 0.20
_SIZES = (8, 4, 2, 1)  # downwards: an executor that has just come is slow for reasons of its own
_BATCHES = {8: 6, 4: 5, 2: 4, 1: 3}  # that count
_WARM_UP = 4  # batches at the start that do not: the JVM compiles
_FILES_PER_BATCH = 16
_ROWS_PER_FILE = 12
_WAIT_MS = 50  # long beside what a busy machine adds to each wait
_KEYS = 120
_KEY_WAIT_MS = 80
_HASHES = 30_000  # of one row of the job that computes
_PATIENCE_S = 900.0
_SETTINGS = {
    "spark.ui.port": "0",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "700m",
    "spark.executor.cores": "1",
    "spark.executor.memory": "480m",
    "spark.sql.shuffle.partitions": "16",
    "spark.sql.streaming.numRecentProgressUpdates": "300",
}


# The jobs: each makes of a column `id` what its sink reads


def _wait(milliseconds: int) -> str:
    return f"reflect('java.lang.Thread', 'sleep', cast({milliseconds} as bigint))"


def scan(rows: Any) -> Any:
    return rows.selectExpr("id", f"{_wait(_WAIT_MS)} AS waited")


def cpu(rows: Any) -> Any:
    hashed = f"aggregate(sequence(1, {_HASHES}), cast(id AS string), (text, n) -> md5(text)) AS hashed"
    return rows.selectExpr("id", hashed)


def shuffle(rows: Any) -> Any:
    many = rows.selectExpr("id", "explode(sequence(1, 5)) AS copy", "repeat(cast(id AS string), 500) AS filling")
    waits = f"CASE WHEN copy = 1 THEN {_wait(_WAIT_MS)} END AS waited"
    return many.repartition(24, "copy", "id").selectExpr("id", "copy", "filling", waits)


def skewed(rows: Any) -> Any:
    """A quarter of the rows has one key."""
    keyed = rows.selectExpr("id", "IF(id % 4 = 0, 0, id) AS key")
    return keyed.repartition(16, "key").selectExpr("id", "key", f"{_wait(_WAIT_MS)} AS waited")


def state(rows: Any) -> Any:
    """The time goes with the keys whose state changes."""
    counted = rows.selectExpr(f"id % {_KEYS} AS key").groupBy("key").count()
    return counted.selectExpr("key", "count", f"{_wait(_KEY_WAIT_MS)} AS waited")


@dataclass(frozen=True, kw_only=True)
class Job:
    of: Callable[[Any], Any]
    mode: str = "append"
    most: int = 8
    """Executors that this machine can feed."""


JOBS = {
    "scan": Job(of=scan),
    "cpu": Job(of=cpu, most=2),
    "shuffle": Job(of=shuffle),
    "skewed": Job(of=skewed),
    "state": Job(of=state, mode="update"),
}


@experiment(
    "predicted-batches",
    paper="none",
    question="How well does an attached job know how long a batch would take on other executors?",
    minutes=12,
)
def run(progress: Progress) -> Report:
    measure([name for name in JOBS if not _file(name).exists()], progress)
    progress("done", 1.0)
    return report({name: _read(name) for name in JOBS if _file(name).exists()})


# Measuring


def measure(names: Sequence[str], progress: Progress) -> None:
    if not names:
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    with folder_for_a_run() as folder:
        _write_files(folder / "in")
        options = ClusterOptions(folder=folder / "cluster", workers=2, cores=4, memory="4g", port=0, web_port=0)
        with StandaloneCluster(options) as cluster, _session(cluster.master_url) as spark:
            for number, name in enumerate(names):
                progress(name, number / len(names))
                found = _run(spark, JOBS[name], folder, name)
                told = {size: [asdict(one) for one in batches] for size, batches in found.items()}
                _file(name).write_text(json.dumps(told))


class _session:  # noqa: N801 - a context
    def __init__(self, master: str) -> None:
        self._master = master

    def __enter__(self) -> Any:
        from pyspark.sql import SparkSession

        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.master(self._master).appName("predicted-batches")
        for name, value in _SETTINGS.items():
            builder = builder.config(name, value)
        self._spark = builder.getOrCreate()
        self._spark.sparkContext.setLogLevel("OFF")
        return self._spark

    def __exit__(self, *_: object) -> None:
        self._spark.stop()


def _write_files(folder: Path) -> None:
    """In the order of their times; those of a batch have more or fewer rows than those of the next."""
    folder.mkdir()
    chance, written = random.Random(16), 0
    for number in range(60 * _FILES_PER_BATCH):
        if number % _FILES_PER_BATCH == 0:
            rows = round(_ROWS_PER_FILE * chance.uniform(0.7, 1.3))
        path = folder / f"{number:05}.txt"
        path.write_text("".join(f"{written + row}\n" for row in range(rows)))
        written += rows
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def _run(spark: Any, job: Job, folder: Path, name: str) -> dict[int, list[BatchRun]]:
    rows = (
        spark.readStream.option("maxFilesPerTrigger", _FILES_PER_BATCH)
        .text(str(folder / "in"))
        .selectExpr("cast(value AS bigint) AS id")
    )
    writer = job.of(rows).writeStream.queryName(name).format("noop").outputMode(job.mode)
    holder = ClusterExecutors(spark)
    holder.take(job.most, job.most)
    _until(lambda: holder.count() == job.most, f"{job.most} executors")
    query = writer.option("checkpointLocation", str(folder / f"checkpoint-{name}")).start()
    try:
        return dict(_sizes(spark, query, holder, [size for size in _SIZES if size <= job.most]))
    finally:
        query.stop()


def _sizes(
    spark: Any, query: Any, holder: ClusterExecutors, sizes: Sequence[int]
) -> Iterator[tuple[int, list[BatchRun]]]:
    api = RestApi(str(spark.sparkContext.uiWebUrl), str(spark.sparkContext.applicationId))
    warm_up = _WARM_UP
    for size in sizes:
        while holder.count() != size:
            holder.change(size, lambda: None)
        first = _newest(query) + 1 + warm_up + 1  # the one that runs now has begun at another size
        last = first + _BATCHES[size] - 1
        _until(lambda last=last: _newest(query) >= last, f"batch {last}")  # type: ignore[misc]
        yield size, _batches(query, api, first, size)
        warm_up = 1  # state that was elsewhere is read again


def _batches(query: Any, api: RestApi, first: int, cores: int) -> list[BatchRun]:
    stages = stages_by_batch(api.get("/jobs"), api.get("/stages?status=complete"))
    entries = [json.loads(entry.json) for entry in query.recentProgress]
    return [
        profiled(batch_from_progress(entry, stages[str(query.runId), entry["batchId"]], cores=cores), api.get)
        for entry in entries
        if entry["batchId"] >= first and entry["numInputRows"] > 0
    ]


def _newest(query: Any) -> int:
    if query.exception() is not None:
        raise ElastreamError(f"the job failed: {query.exception()}")
    last = query.lastProgress
    return -1 if last is None else int(last["batchId"])


def _until(true: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + _PATIENCE_S
    while not true():
        if time.monotonic() > deadline_s:
            raise ElastreamError(f"{what} did not come within {_PATIENCE_S:.0f} s")
        time.sleep(0.2)


# Files


def _file(name: str) -> Path:
    return FOLDER / f"{name}.json"


def _read(name: str) -> dict[int, list[BatchRun]]:
    told = json.loads(_file(name).read_text())
    return {int(size): [_batch(one) for one in batches] for size, batches in told.items()}


def _batch(told: Mapping[str, Any]) -> BatchRun:
    stages = tuple(StageRun(**{**stage, "quantiles_s": tuple(stage["quantiles_s"])}) for stage in told["stages"])
    return BatchRun(**{**told, "stages": stages})


# Comparing


@dataclass(frozen=True, kw_only=True)
class Predicted:
    learned_at: tuple[int, ...]
    at: int
    measured_s: float
    """Of a batch, on the median."""
    off: float
    """The predicted time of a batch over the measured one, less 1, on the median."""


def compared(batches: Mapping[int, Sequence[BatchRun]]) -> list[Predicted]:
    """From each size, and from each two, to all others."""
    sizes = sorted(batches)
    return [
        _predicted(batches, learned_at, at)
        for many in (1, 2)
        for learned_at in combinations(sizes, many)
        for at in sizes
        if at not in learned_at
    ]


def _predicted(batches: Mapping[int, Sequence[BatchRun]], learned_at: tuple[int, ...], at: int) -> Predicted:
    model = fit([batch for size in learned_at for batch in batches[size]], splits_by_cores=True)
    if model is None:
        raise ElastreamError(f"too few batches alike at {learned_at}")
    return Predicted(
        learned_at=learned_at,
        at=at,
        measured_s=median(batch.duration_s for batch in batches[at]),
        off=median(model.duration_s(batch.rows, at) / batch.duration_s for batch in batches[at]) - 1,
    )


def report(found: Mapping[str, Mapping[int, Sequence[BatchRun]]]) -> Report:
    predicted = {name: compared(batches) for name, batches in found.items()}
    return Report(
        checks=tuple(
            check for name, of in predicted.items() for many in (1, 2) for check in _checks(name, many, of)
        ),
        differs=(
            "What a row costs is a wait, so that two cores can feed eight executors; the one that computes "
            "has two at most.",
            "Executors went from eight to one while a job ran, so none was cold; one that has come is slower.",
        ),
        data={name: [asdict(one) for one in of] for name, of in predicted.items()},
    )


def _checks(name: str, many: int, predicted: Sequence[Predicted]) -> Iterator[Check]:
    of = [one for one in predicted if len(one.learned_at) == many]
    for learned_at in dict.fromkeys(one.learned_at for one in of):
        those = [one for one in of if one.learned_at == learned_at]
        yield Check(
            what=f"{name}: from batches at {' and '.join(map(str, learned_at))}",
            ours=", ".join(f"at {one.at}: {one.measured_s:.1f} s {one.off:+.0%}" for one in those),
            bound=f"within {_BOUND:.0%}",
            holds=all(abs(one.off) <= _BOUND for one in those),
        )


def main(*names: str) -> None:
    for name in names:
        if name not in JOBS:
            raise InvalidInput(f"unknown job {name!r}{nearest(name, JOBS)}")
    measure(names, lambda what, _: print(what, flush=True))
    found = report({name: _read(name) for name in JOBS if _file(name).exists()})
    for check in found.checks:
        print(f"{check.what}: {check.ours}{'' if check.holds else '  NOT ' + check.bound}")


if __name__ == "__main__":
    main(*sys.argv[1:])
