"""What the manager does when the machine has no more to give: an operator that only computes, and more of it than
the cores can do.

Spark is told that it has 16 slots, so nothing but the manager keeps the operator from having 16 instances. Each
record is hashed again and again in the JVM: no waiting, no Python. The load is a multiple of what all cores can
do, by the price of a record that is measured before. More instances than cores cannot help, so a good manager
settles at the number of cores or one more (an instance that waits for its driver leaves a core free), says that
more does not help, and stays there.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.measure import Measure, Report
from benchmarks.spark_runs import channel, generator, running, session, temporary_folder
from elastream.durations import text as duration_text
from elastream.engines.spark.pipeline import Pipeline
from elastream.manager.events import Decided, Event, Held, Judged, PhaseChanged, Proposed
from elastream.manager.knobs import Knobs
from elastream.manager.loop import Manager, WallClock
from elastream.manager.phase import ManagerPhase
from elastream.measurement import Snapshot
from elastream.measurement.flow import achieved_share
from elastream.policies.catalog import create
from elastream.policies.proposal import ReasonKind
from elastream.workloads.generator import SCHEMA

DEFAULT_POLICY = "ds2"  # that of `elastream run`
_SLOTS = 16
_HASHES = 1_000  # of a record: about a millisecond of a core
_BATCH_INTERVAL_S = 2.0  # that of `elastream run`
_LOAD = 1.3  # times what all cores can do
_TRIED = 1_000  # records by which the price is found
_OPERATOR = "hashed"


@dataclass
class Seen:
    """What the manager measured and said."""

    snapshots: list[Snapshot] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    @property
    def parallelism(self) -> list[int]:
        return [snapshot.plan[_OPERATOR] for snapshot in self.snapshots]


def pipeline() -> Pipeline:
    found = Pipeline("cpu_bound")
    found.feed("sentences", schema=SCHEMA)

    @found.operator(reads="sentences", max_parallelism=_SLOTS)
    def hashed(sentences: DataFrame) -> DataFrame:
        return sentences.select("id", _hash("line").alias("hash"))

    return found


def _hash(column: str) -> Column:
    times = F.sequence(F.lit(1), F.lit(_HASHES))
    return F.aggregate(times, F.col(column), lambda text, _: F.sha2(text, 256))


def run(
    *,
    policy: str = DEFAULT_POLICY,
    duration_s: float = 1200.0,
    knobs: Knobs | None = None,
    load: float = _LOAD,
) -> Report:
    cores = len(os.sched_getaffinity(0))
    knobs = Knobs() if knobs is None else knobs
    with temporary_folder() as folder, session("cpu_bound", slots=_SLOTS) as spark:
        record_s = _record_s(spark)
        records_per_s = load * cores / record_s
        with (
            running(spark, pipeline(), folder, batch_interval_s=_BATCH_INTERVAL_S) as engine,
            generator(channel(folder, "sentences"), records_per_s),
        ):
            seen = Seen()
            manager = Manager(
                engine=engine,
                policy=create(policy),
                knobs=knobs,
                clock=WallClock(),
                on_snapshot=seen.snapshots.append,
                on_event=seen.events.append,
            )
            manager.run(until_s=time.time() + duration_s)
    conditions = (
        f"{cores} cores, {_SLOTS} slots, policy {policy}, asked every {knobs.interval_s:g} s, "
        f"{duration_text(round(duration_s))}; a record costs {1000 * record_s:.2f} ms of a core, and "
        f"{records_per_s:,.0f}/s arrive: {load:g} times what the cores can do"
    )
    return report(seen, cores, conditions)


def _record_s(spark: SparkSession) -> float:
    """The time of a core for a record, on one task alone; the best of some, as the first compiles."""
    frame = spark.range(0, _TRIED, 1, 1).select(F.col("id").cast("string").alias("line")).select(_hash("line"))
    took_s = math.inf
    for _ in range(3):
        began_s = time.monotonic()
        frame.write.format("noop").mode("overwrite").save()
        took_s = min(took_s, time.monotonic() - began_s)
    return took_s / _TRIED


def report(seen: Seen, cores: int, conditions: str) -> Report:
    """The last third is taken as settled."""
    parallelism = seen.parallelism
    settled = parallelism[-max(1, len(parallelism) // 3) :]
    said = says_no_more(seen.events)
    shares = [share for snapshot in seen.snapshots if (share := achieved_share(snapshot)) is not None]
    return Report(
        measures=(
            Measure(what="settled at, the least", value=min(settled), unit="", at_least=cores, at_most=cores + 1),
            Measure(what="settled at, the most", value=max(settled), unit="", at_least=cores, at_most=cores + 1),
            Measure(what="changes of parallelism, once settled", value=_changes(settled), unit="", at_most=0),
            Measure(what="changes of parallelism in all", value=_changes(parallelism), unit="", at_most=6),
            Measure(what="the highest parallelism on the way", value=max(parallelism), unit=""),
            Measure(what="says that more does not help (1 is yes)", value=bool(said), unit="", at_least=1),
            Measure(what="share of the load that is processed, at the end", value=shares[-1], unit=""),
        ),
        notes=(
            conditions,
            f"parallelism, window by window: {' '.join(map(str, parallelism))}",
            *_told(seen.events, seen.snapshots[0].at_s),
            *(f"says: {text}" for text in said[-1:]),
        ),
    )


def _changes(values: Sequence[int]) -> int:
    return sum(before != after for before, after in pairwise(values))


def says_no_more(events: Sequence[Event]) -> list[str]:
    """Every text that tells a reader that more instances do not help."""
    telling = (ReasonKind.NO_CORES, ReasonKind.NOT_PARALLEL, ReasonKind.BOTTLENECK)
    found = []
    for event in events:
        if isinstance(event, PhaseChanged) and event.after is ManagerPhase.GIVEN_UP:
            found.append(event.why)
        if isinstance(event, Proposed):
            found += [
                str(r) for advice in event.proposal.advice.values() for r in advice.reasons if r.kind in telling
            ]
    return found


def _told(events: Sequence[Event], began_s: float) -> list[str]:
    """Decisions, verdicts and what was held back: each different one once."""
    lines: dict[str, str] = {}
    for event in events:
        text = _text(event)
        if text is not None:
            lines.setdefault(text, f"{duration_text(round(max(0.0, event.at_s - began_s)))}: {text}")
    return list(lines.values())


def _text(event: Event) -> str | None:
    match event:
        case Decided(decision=decision):
            why = "; ".join(str(reason) for advice in decision.advice for reason in advice.reasons)
            return f"{decision.kind}: {decision} ({why or '; '.join(map(str, decision.reasons))})"
        case Judged():
            return f"action {event.number}: {event.verdict}"
        case PhaseChanged(after=ManagerPhase.GIVEN_UP | ManagerPhase.ROLLED_BACK, why=why):
            return f"{event.after}: {why}"
        case Held(why=why):
            return f"held: {why}"
        case _:
            return None
