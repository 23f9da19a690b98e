"""How long a stateful operator on Spark stands still when it is rescaled under load.

The pause is the time between the last batch that ended before an action and the first that ended after it, less
the usual time between two batches. Batches end when Spark writes their commit file, so its time of writing is the
clock. The action of a stateless operator, which is a line in a control file, is measured beside it; and so is a
stop and a start of all queries, which is what an engine without rescaling of single operators does.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.measure import Measure
from elastream.engines.spark.engine import SparkEngine
from elastream.engines.spark.pipeline import Pipeline
from elastream.engines.spark.session import start_session
from elastream.manager.decision import Decision
from elastream.workloads.background import writing
from elastream.workloads.generator import SCHEMA
from elastream.workloads.load import Constant

MOST_PAUSE_S = 3.0
_BATCH_INTERVAL_S = 1.0
_SENTENCES_PER_S = 2_000
_KEYS = 200_000
_SETTLE_BATCHES = 4
_DEADLINE_S = 120.0


def pipeline() -> Pipeline:
    found = Pipeline("pauses")
    found.feed("sentences", schema=SCHEMA)

    @found.operator(reads="sentences", max_parallelism=8)
    def numbered(sentences: DataFrame) -> DataFrame:
        return sentences.select((F.col("id") % _KEYS).alias("key"))

    @found.operator(reads="numbered", state_partitions=12, output_mode="update")
    def counts(numbered: DataFrame) -> DataFrame:
        return numbered.groupBy("key").count()

    return found


def run(*, rescales: int = 30, restarts: int = 3) -> tuple[Measure, ...]:
    spark = start_session("pauses", master="local[8]")
    with tempfile.TemporaryDirectory() as folder:
        engine = SparkEngine(pipeline(), spark, Path(folder), batch_interval_s=_BATCH_INTERVAL_S)
        engine.start()
        channel, checkpoints = Path(folder) / "channels" / "sentences", Path(folder) / "checkpoints"
        try:
            with writing(channel, Constant(records_per_s=_SENTENCES_PER_S)):
                stateful = _pauses(checkpoints / "counts", lambda n: _rescale(engine, "counts", n), rescales)
                stateless = _pauses(checkpoints / "numbered", lambda n: _rescale(engine, "numbered", n), rescales)
                whole = _pauses(checkpoints / "counts", lambda n: _restart(engine), restarts)
        finally:
            engine.stop()
            spark.stop()
    return (
        Measure(what=f"stateful, {rescales} actions: median", value=median(stateful), unit="s"),
        Measure(what="stateful: 95th percentile", value=_p95(stateful), unit="s", at_most=MOST_PAUSE_S),
        Measure(what=f"stateless, {rescales} actions: median", value=median(stateless), unit="s"),
        Measure(what="stateless: 95th percentile", value=_p95(stateless), unit="s"),
        Measure(what=f"all queries stopped and started, {restarts} times: median", value=median(whole), unit="s"),
        Measure(what="stateful by all", value=median(stateful) / median(whole), unit="times"),
    )


def _pauses(checkpoint: Path, action: Callable[[int], None], times: int) -> list[float]:
    """The pause of each action, with a few batches of quiet between them."""
    pauses = []
    for number in range(times):
        _await_batches(checkpoint, _SETTLE_BATCHES)
        ended = _ends(checkpoint)
        usual_s = median(b - a for a, b in pairwise(ended[-_SETTLE_BATCHES:]))
        action(2 if number % 2 else 4)
        after = _await_batches(checkpoint, 1, since=ended[-1])
        pauses.append(max(0.0, after - ended[-1] - usual_s))
    return pauses


def _rescale(engine: SparkEngine, operator: str, parallelism: int) -> None:
    before = engine.plan()
    after = before.with_changes({operator: parallelism})
    engine.rescale(Decision(number=1, at_s=time.time(), before=before, after=after))


def _restart(engine: SparkEngine) -> None:
    engine.stop()
    engine.start()


def _ends(checkpoint: Path) -> list[float]:
    """When the batches of a query ended, the newest last."""
    return sorted(path.stat().st_mtime for path in (checkpoint / "commits").glob("[0-9]*"))


def _await_batches(checkpoint: Path, batches: int, since: float | None = None) -> float:
    """Wait for so many further batches; when the first of them ended."""
    since = max(_ends(checkpoint), default=0.0) if since is None else since
    deadline = time.monotonic() + _DEADLINE_S
    while time.monotonic() < deadline:
        further = [end for end in _ends(checkpoint) if end > since]
        if len(further) >= batches:
            return further[0]
        time.sleep(0.02)
    raise TimeoutError(f"{checkpoint}: no {batches} batches within {_DEADLINE_S:g} s")


def _p95(values: list[float]) -> float:
    return quantiles(values, n=20, method="inclusive")[-1]
