"""The runs of `nexmark-spark`: a query of Nexmark with a cost for each record, started with some instances and
then sized, or left alone. What was found of each is kept in a file, so that they can be run in pieces."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from elastream.dataflow import Plan
from elastream.engines.spark.engine import SparkEngine
from elastream.engines.spark.pipeline import Kind, Pipeline
from elastream.engines.spark.session import start_session
from elastream.manager.events import Acted, Event, Proposed
from elastream.manager.knobs import Knobs
from elastream.manager.loop import Manager, WallClock
from elastream.measurement import Snapshot
from elastream.options import build
from elastream.policies.catalog import create, info
from experiments.frame import Progress
from experiments.workloads.nexmark_queries import Changes, query_pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOLDER = Path("out/nexmark-spark")
KNOBS = Knobs(interval_s=5.0, warm_up_intervals=2, activation_intervals=2, scale_down_delay_s=0.0)
_QUIET_S = 10 * KNOBS.interval_s  # the paper: five intervals, five times as long
_MOST_S = 180.0
_AS_THE_PAPER = {"catch_up_s": 3600.0}  # a backlog is left alone: it asks for next to nothing
_BATCH_S, _LONGEST_BATCH_S = 1.0, 2.0
_SLOTS = 32
_WARM_S, _WATCHED_S = 12.0, 24.0
_LONG_S, _HOT_S = 1200.0, 60.0
_HASHES = 300
_TELLING = 5  # windows
_BEHIND_S = 10.0  # of what arrives
_PROCESS_ENDS_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Case:
    query: str
    main: str
    """The operator that the paper's table is about."""
    events_per_s: float
    share: float
    """Of the events that reach the main operator."""
    wait_ms: int
    starts: tuple[int, ...] = (1, 2, 3, 5, 6, 8)
    paper: str = ""
    """What the text of the paper says of the query."""

    @property
    def records_per_s(self) -> float:
        return self.events_per_s * self.share

    @property
    def need(self) -> float:
        """By arithmetic, without what a batch costs beside its records."""
        return self.records_per_s * self.wait_ms / 1000


_OF_BIDS = 46 / 50
_OF_BOTH = 4 / 50
CASES: Mapping[str, Case] = {
    case.query: case
    for case in (
        Case(query="q1", main="in_euros", events_per_s=380, share=_OF_BIDS, wait_ms=10, paper="one step from 12"),
        Case(
            query="q2", main="asked_for", events_per_s=540, share=_OF_BIDS, wait_ms=5, paper="three from one start"
        ),
        Case(query="q3", main="local_sellers", events_per_s=1000, share=3 / 250 + 1 / 100, wait_ms=120),
        Case(query="q5", main="counts", events_per_s=430, share=_OF_BIDS, wait_ms=8, paper="three from 8"),
        Case(query="q8", main="new_sellers", events_per_s=1000, share=_OF_BOTH, wait_ms=40),
        Case(
            query="q11", main="sessions", events_per_s=430, share=_OF_BIDS, wait_ms=8, paper="three from one start"
        ),
    )
}


# What a record costs

Cost = Callable[["DataFrame"], "DataFrame"]


def waiting(milliseconds: int, *, by: str | None = None) -> Cost:
    """Of each record; where a column is given, all records of a key are waited for in one task."""
    from pyspark.sql import functions as F

    wait = F.expr(f"reflect('java.lang.Thread', 'sleep', {milliseconds}L) != ''")
    return lambda frame: (frame if by is None else frame.repartition(by)).where(wait)


def computing(frame: DataFrame) -> DataFrame:
    """Hashes its record again and again: no waiting, no Python."""
    from pyspark.sql import functions as F

    times = F.sequence(F.lit(1), F.lit(_HASHES))
    text = F.concat_ws(" ", *(F.col(name).cast("string") for name in frame.columns))
    return frame.where(F.aggregate(times, text, lambda found, _: F.sha2(found, 256)) != "")


# The pieces


@dataclass(frozen=True, kw_only=True)
class Piece:
    case: Case
    kind: str
    """`start` of table 4, `around` the answer (figure 8), `unmeasured` (figure 10); `cores`. With the defaults of
    a policy, for so long: `policy`, `long`, and `hot`, with all records of a key in one task."""
    start: int
    """The instances to begin with; of `hot`, of how many bids all but one are the hot bidder's."""
    policy: str = "ds2"
    lasts_s: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.case.query}-{self.kind}-{self.start}"


def pieces(cases: Iterable[Case], done: Mapping[str, Any]) -> list[Piece]:
    """In the order in which they say most; those around an answer come once there is one."""
    cases = list(cases)
    found = [
        Piece(case=case, kind="start", start=start)
        for turn in range(len(cases[0].starts))
        for case in cases
        for start in [_from_both_ends(case.starts)[turn]]
    ]
    for case in cases:
        answer = answer_of(case, done)
        if answer is not None:
            around = [size for size in (answer - 1, answer, answer + 1) if size >= 1]
            found += [Piece(case=case, kind="around", start=size) for size in around]
            found.append(Piece(case=case, kind="unmeasured", start=answer))
        if case.query == "q1":
            found += [Piece(case=case, kind="cores", start=start) for start in (1, 6)]
        if case.query == "q11":
            found += [Piece(case=case, kind="hot", start=hot, lasts_s=_HOT_S) for hot in (4, 40)]
        if case.query in ("q5", "q11"):
            found.append(Piece(case=case, kind="long", start=1, lasts_s=_LONG_S))
    return found


def _from_both_ends(starts: Sequence[int]) -> list[int]:
    ordered = sorted(starts, key=lambda start: -abs(start - (starts[0] + starts[-1]) / 2))
    return list(ordered)


def answer_of(case: Case, done: Mapping[str, Any]) -> int | None:
    """Where most starts end."""
    ends = [found["sizes"][-1] for name, found in done.items() if name.startswith(f"{case.query}-start-")]
    return Counter(ends).most_common(1)[0][0] if ends else None


def run_piece(spark: SparkSession, piece: Piece) -> dict[str, Any]:
    case = piece.case
    events_per_s = case.events_per_s if piece.kind != "cores" else 1.3 * _events_of_all_cores(spark, case)
    start = 1 if piece.kind == "hot" else piece.start
    changes = Changes(cost={case.main: _cost(piece)}, parallelism={case.main: start})
    options = ("--hot-bidders", str(piece.start)) if piece.kind == "hot" else ()
    with tempfile.TemporaryDirectory(prefix="nexmark-", ignore_cleanup_errors=True) as name:
        pipeline = query_pipeline(case.query, Path(name) / "kept", changes)
        with _running(spark, pipeline, Path(name), events_per_s, options) as engine:
            found = _found(engine, piece)
    return {**found, "events_per_s": events_per_s, "cost": "a computation" if piece.kind == "cores" else "a wait"}


def _cost(piece: Piece) -> Cost:
    if piece.kind == "cores":
        return computing
    return waiting(piece.case.wait_ms, by="bidder" if piece.kind == "hot" else None)


def _found(engine: SparkEngine, piece: Piece) -> dict[str, Any]:
    main = piece.case.main
    match piece.kind:
        case "start" | "cores":
            return _settled(engine, main, most_s=_MOST_S * (2 if piece.kind == "cores" else 1))
        case "long" | "hot" | "policy":
            return _sized_by(engine, piece.policy, main, lasts_s=piece.lasts_s)
        case kind:
            return _watched(engine, main, measured=kind == "around")


@contextmanager
def _running(
    spark: SparkSession, pipeline: Pipeline, folder: Path, events_per_s: float, options: Sequence[str]
) -> Iterator[SparkEngine]:
    engine = SparkEngine(
        pipeline, spark, folder / "run", batch_interval_s=_BATCH_S, longest_batch_s=_LONGEST_BATCH_S
    )
    feeds = [step.name for step in pipeline.steps if step.kind is Kind.FEED]
    command = [
        sys.executable,
        "-m",
        "elastream.workloads.nexmark_load",
        str(folder / "run" / "channels" / feeds[0]),
    ]
    engine.start()
    load = subprocess.Popen([*command, "--streams", ",".join(feeds), "--load", f"{events_per_s}", *options])
    try:
        yield engine
    finally:
        load.terminate()
        load.wait(timeout=_PROCESS_ENDS_S)
        engine.stop()


def _settled(engine: SparkEngine, main: str, *, most_s: float) -> dict[str, Any]:
    """The sizes of the operator, until the manager has left it alone for ten intervals and it keeps up."""
    began_s = time.time()
    plans, acted_s = [engine.plan()], [began_s + KNOBS.warm_up_intervals * KNOBS.interval_s]
    snapshots: list[Snapshot] = []
    needs: list[dict[str, Any]] = []

    def note(event: Event) -> None:
        if isinstance(event, Proposed):
            needs.append(_need(event, main, since_s=began_s))
        if isinstance(event, Acted) and event.outcome.succeeded:
            plans.append(event.outcome.plan)
            acted_s.append(event.at_s)

    manager = Manager(
        engine=engine,
        policy=create("ds2", _AS_THE_PAPER),
        knobs=KNOBS,
        clock=WallClock(),
        on_snapshot=snapshots.append,
        on_event=note,
    )

    def settled() -> bool:
        return time.time() - acted_s[-1] > _QUIET_S and _keeps_up(snapshots[-_TELLING:], main)

    manager.run(until_s=began_s + most_s, stopped=settled)
    return {
        "sizes": [size for size, _ in groupby(plan[main] for plan in plans)],
        "others": [_others(plan, main) for plan in plans],
        "actions": len(plans) - 1,
        "settled": settled(),
        "took_s": round(acted_s[-1] - began_s, 1),
        **_seen(snapshots[-_TELLING:], main),
        "needs": needs,
    }


def _sized_by(engine: SparkEngine, policy: str, main: str, *, lasts_s: float) -> dict[str, Any]:
    """What it did and cost in so long, with a look every five seconds where it has no interval of its own."""
    began_s, plan = time.time(), engine.plan()
    times: list[tuple[float, int, bool]] = []
    acted: list[tuple[float, int]] = []
    needs: list[dict[str, Any]] = []

    def note(event: Event) -> None:
        if isinstance(event, Proposed):
            needs.append(_need(event, main, since_s=began_s))
        if isinstance(event, Acted) and event.outcome.succeeded:
            acted.append((round(event.at_s - began_s, 1), event.outcome.plan[main]))

    def look(snapshot: Snapshot) -> None:
        waiting = math.fsum(one.totals.backlog or 0.0 for one in snapshot.measurements.values())
        arriving = math.fsum(snapshot.source_rates.values())
        times.append((snapshot.window_s, snapshot.plan.total, waiting > _BEHIND_S * arriving))

    knobs = build(Knobs, {"interval_s": KNOBS.interval_s, **info(policy).knobs}, place=policy)
    manager = Manager(
        engine=engine, policy=create(policy), knobs=knobs, clock=WallClock(), on_snapshot=look, on_event=note
    )
    manager.run(until_s=began_s + lasts_s)
    watched_s = math.fsum(window_s for window_s, _, _ in times)
    return {
        "lasts_s": watched_s,
        "others": len(plan) - 1,
        "actions": len(acted),
        "last_action_s": max((at_s for at_s, _ in acted), default=0.0),
        "instance_s": math.fsum(window_s * total for window_s, total, _ in times),
        "behind": math.fsum(window_s for window_s, _, is_behind in times if is_behind) / watched_s,
        "sizes": [plan[main], *(size for _, size in acted)],
        "acted": acted,
        "needs": needs,
    }


def _need(proposed: Proposed, main: str, *, since_s: float) -> dict[str, Any]:
    """What was asked for in a window, and the reasons: to see why a start went as it did."""
    advice = proposed.proposal.advice[main]
    reasons = [str(reason) for reason in (*proposed.proposal.reasons, *advice.reasons)]
    need = None if advice.need is None else round(advice.need, 2)
    found = {"at_s": round(proposed.at_s - since_s, 1), "has": advice.current, "need": need}
    return {**found, "asks": advice.parallelism, "reasons": reasons}


def _keeps_up(snapshots: Sequence[Snapshot], main: str) -> bool:
    """Whether what waits for longer than a batch may take becomes no more."""
    overdue = [s.measurements[main].totals.overdue or 0.0 for s in snapshots if main in s.measurements]
    return len(overdue) == _TELLING and overdue[-1] <= max(0.0, overdue[0])


def _others(plan: Plan, main: str) -> dict[str, int]:
    return {name: size for name, size in plan.items() if name != main}


def _watched(engine: SparkEngine, main: str, *, measured: bool) -> dict[str, Any]:
    """Left alone for a while after its first batches."""
    time.sleep(_WARM_S)
    engine.measure()
    snapshots, began_s = [], time.time()
    while time.time() - began_s < _WATCHED_S:
        time.sleep(KNOBS.interval_s)
        if measured:
            snapshots.append(engine.measure())
    batches = engine._queries[main].query.recentProgress
    times_s = [p["durationMs"]["triggerExecution"] / 1000 for p in batches if p["numInputRows"] > 0]
    return {**_seen(snapshots or [engine.measure()], main), "batch_s": median(times_s[-10:]) if times_s else None}


def _seen(snapshots: Sequence[Snapshot], main: str) -> dict[str, Any]:
    """The rate, the latency and the backlog of the operator."""
    found = [s.measurements[main].totals for s in snapshots if main in s.measurements]
    over_s = sum(totals.window_s for totals in found)
    latencies = [totals.latency_s for totals in found if totals.latency_s is not None]
    return {
        "rate_per_s": round(sum(totals.records_in for totals in found) / over_s, 1) if over_s else None,
        "latency_s": round(median(latencies), 2) if latencies else None,
        "backlog": found[-1].backlog if found else None,
    }


def _events_of_all_cores(spark: SparkSession, case: Case) -> float:
    """By the price of a record, on one task alone; the best of some, as the first compiles."""
    from pyspark.sql import functions as F

    frame = computing(
        spark.range(0, 2_000, 1, 1).select(*(F.col("id").cast("string").alias(c) for c in "abcdefg"))
    )
    took_s = float("inf")
    for _ in range(3):
        began_s = time.monotonic()
        frame.write.format("noop").mode("overwrite").save()
        took_s = min(took_s, time.monotonic() - began_s)
    return len(os.sched_getaffinity(0)) * 2_000 / took_s / case.share


# Running what is not done yet


def run_missing(cases: Sequence[Case], folder: Path, *, until_s: float, tell: Progress) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    done = read_done(folder)
    if all(piece.name in done for piece in pieces(cases, done)):
        return done
    with on_spark() as spark:
        while time.time() < until_s:
            todo = [piece for piece in pieces(cases, done) if piece.name not in done]
            if not todo:
                break
            tell(todo[0].name, len(done) / (len(done) + len(todo)))
            done[todo[0].name] = run_piece(spark, todo[0])
            (folder / f"{todo[0].name}.json").write_text(json.dumps(done[todo[0].name]) + "\n")
    return done


def read_done(folder: Path = FOLDER) -> dict[str, Any]:
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("q*-*-*.json"))}


@contextmanager
def on_spark() -> Iterator[SparkSession]:
    with tempfile.TemporaryDirectory(prefix="nexmark-spark-", ignore_cleanup_errors=True) as folder:
        settings = {"spark.ui.port": "0", "spark.driver.memory": "2g", "spark.sql.warehouse.dir": folder}
        spark = start_session("nexmark", master=f"local[{_SLOTS}]", settings=settings, log=Path(folder) / "log")
        try:
            yield spark
        finally:
            spark.stop()
