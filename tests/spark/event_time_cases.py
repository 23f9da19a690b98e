"""The same answer as plain Spark: random pipelines over random inputs, while they are rescaled and broken off.

    python tests/spark/event_time_cases.py --seeds 0-299 [--channels drawn|files|kafka] [--results FILE]

A seed determines a case. The results must be those of a single plain query over the same input, and of a
computation from the definition in pandas, where nothing is late. Where something is, at least what a plain query
counts that is given the same batches one by one (it then drops the most), and at the most what there is. The
results file has a line for each case; what passed there is not run again.

A plain query may be given its batches back to back, too: then it drops what is late one batch later, for its
watermark moves on between two batches only when it has time for one without input. Which of both a query in
production does depends on how busy it is, so it is the strict one that elastream is held against.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
from event_time_hosts import Host, InItsOwnProcess, InThisProcess, failing_at
from event_time_inputs import (
    SCHEMA,
    TICK_MS,
    Incoming,
    Shape,
    Stream,
    as_rows,
    draw_stream,
    out_of_order_ms,
    punctual,
    together,
)
from event_time_kinds import KINDS, Joins, Kind, Question, Row, differences, repeated
from event_time_surroundings import surroundings
from plain import PlainQuery, composed
from pyspark.sql import DataFrame, SparkSession
from running import kept, records, write

from elastream.engines.spark.channels.channel import DurableChannel
from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.channels.kinds import ChannelKind, Files, Kafka
from elastream.engines.spark.crash_points import CrashPoint
from elastream.engines.spark.kafka.broker import Broker
from elastream.engines.spark.pipeline import Kind as StepKind
from elastream.engines.spark.pipeline import Pipeline
from elastream.engines.spark.workspace import Workspace

_NAME = "event_time"
_HALF_AN_HOUR_MS = 1_800_000
_POINTS = (CrashPoint.AFTER_THE_TASKS, CrashPoint.IN_THE_PUBLICATION, CrashPoint.AFTER_THE_PUBLICATION)
_ONLY_SOME = "value % 5 <> 0"  # what a filter between lets through


# What is run


@dataclass(frozen=True, kw_only=True)
class Case:
    seed: int
    kind: Kind = field(repr=False)
    question: Question
    order: str
    """`in order`, `within` the delay, or `beyond` it."""
    source: str
    """`files`, taken by a source of Spark's, or a `feed`, whose batches its writer makes."""
    limit: int | None
    """So many files a source takes at once."""
    start: str
    """With a `backlog` of everything, `live`, or in `bursts`."""
    between: str | None
    """An operator without state between source and operator: it lets through `all` records, or `some`."""
    idle: bool
    """The second input of a join ends early."""
    channels: str
    killed: bool
    """Really killed, in a process of its own."""
    steps: tuple[str, ...]
    """What happens to it, one after the other; `add` puts in a group or, in the beginning, the backlog."""
    first_groups: int
    streams: tuple[Stream, ...] = field(repr=False)
    horizon_ms: int = field(repr=False)

    @property
    def inputs(self) -> tuple[str, ...]:
        return ("left", "right")[: self.kind.inputs]

    def batches(self, stream: Stream) -> list[pd.DataFrame]:
        """What comes together, at least: records of one batch do not make each other late."""
        if self.source == "feed":
            return [together(group) for group in stream.groups]
        if self.start != "backlog":
            return list(stream.files)
        every = self.limit or len(stream.files)
        return [together(stream.files[first : first + every]) for first in range(0, len(stream.files), every)]

    @cached_property
    def late(self) -> bool:
        """Whether some records may be."""
        return max(out_of_order_ms(self.batches(one)) for one in self.streams) >= self.question.delay_ms

    def pipeline(self, folder: Path, *, plain: bool = False) -> Pipeline:
        pipeline = Pipeline(_NAME)
        reads = [self._input(pipeline, name, folder) for name in self.inputs]
        last = self.kind.declare(pipeline, reads, self.question, plain=plain)
        pipeline.keep("all", reads=last, folder=kept(folder, "all"))
        return pipeline

    def _input(self, pipeline: Pipeline, name: str, folder: Path) -> str:
        """The source, and what stands between it and the operator: only at the first input, to save a query."""
        if self.source == "feed":
            pipeline.feed(name, schema=SCHEMA)
        else:

            def source(spark: SparkSession) -> DataFrame:
                frame = read_files(spark, folder / "incoming" / name, self.limit)
                return self.question.watermark(frame, "source")

            source.__name__ = name
            pipeline.source(source)
        if self.between is None or name != "left":
            return name

        @pipeline.operator(reads=name, max_parallelism=4)
        def passed(frame: DataFrame) -> DataFrame:
            chosen = frame if self.between == "all" else frame.where(_ONLY_SOME)
            return self.question.watermark(chosen, "between").select("at", "key", "value", "uid", "id")

        return "passed"

    def asked(self, streams: Sequence[pd.DataFrame]) -> list[Row]:
        """What it must put out, of these records of each stream."""
        through = list(streams)
        if self.between == "some":
            through[0] = through[0][through[0]["value"] % 5 != 0]
        return self.compared(self.kind.truth(through, self.question))

    def compared(self, rows: Sequence[Row]) -> list[Row]:
        """Without what is about the records that close the streams."""
        return [row for row in rows if row[0] < self.horizon_ms]


def read_files(spark: SparkSession, folder: Path, limit: int | None = None) -> DataFrame:
    reader = spark.readStream.schema(SCHEMA)
    return (reader if limit is None else reader.option("maxFilesPerTrigger", limit)).json(str(folder))


# Drawing one


def draw(seed: int) -> Case:
    chance = Random(seed)
    kind = KINDS[seed % len(KINDS)]
    source = chance.choice(("files", "files", "feed"))
    start = chance.choice(("backlog", "backlog", "live", "bursts"))
    limited = source == "files" and chance.random() < 0.5
    order = chance.choice(("in order", "within", "within", "beyond"))
    shape = _shape(chance, kind, order, whole=start == "backlog" and source == "files" and not limited)
    between = chance.choice((None, None, "all", "some"))
    idle = isinstance(kind, Joins) and order != "beyond" and chance.random() < 0.3
    streams = [draw_stream(chance, shape) for _ in range(kind.inputs)]
    case = Case(
        seed=seed,
        kind=kind,
        question=_question(chance, kind, source, between),
        order=order,
        source=source,
        limit=shape.files * chance.choice((1, 1, 2)) if limited else None,
        start=start,
        between=between,
        idle=idle,
        channels="kafka" if chance.random() < 0.15 else "files",
        killed=chance.random() < 0.1,
        steps=(),
        first_groups=0,
        streams=_closed(chance, streams, idle=idle),
        horizon_ms=max(stream.last_ms for stream in streams) + _HALF_AN_HOUR_MS,
    )
    case = replace(case, question=replace(case.question, delay_ms=_delay_ms(chance, case, shape)))
    first, steps = _steps(chance, case)
    return replace(case, first_groups=first, steps=steps)


def _shape(chance: Random, kind: Kind, order: str, *, whole: bool) -> Shape:
    """`whole` is what comes in a single batch: then enough that elastream makes several of it."""
    late = order == "beyond" and not whole
    few, many = (300, 900) if kind.inputs == 1 else (200, 500)
    repeated_share, repeats_after_s = 0.0, 0.0
    if "duplicates" in kind.name or "distinct" in kind.name:
        repeated_share = 0.4
        repeats_after_s = 2.0 if kind.name.endswith("watermark") else 0.0
    return Shape(
        records=chance.randint(1500, 4000) if whole else chance.randint(few, many),
        span_s=chance.choice((40.0, 90.0, 150.0)),
        keys=chance.randint(1, 6) if kind.inputs == 1 else 40,
        groups=chance.randint(3, 4) if late else chance.randint(3, 6),
        files=chance.choice((1, 1, 2) if late else (1, 2, 3)),
        out_of_order_s=0.0 if order == "in order" else chance.choice((1.0, 5.0, 20.0)),
        repeated=repeated_share,
        repeats_after_s=repeats_after_s,
        bursts=chance.random() < 0.4,
    )


def _question(chance: Random, kind: Kind, source: str, between: str | None) -> Question:
    places = ["operator", "operator"]
    if source == "files":
        places.append("source")
    if between is not None and kind.inputs == 1:
        places.append("between")
    size_ms = chance.choice((3_000, 5_000, 10_000, 20_000))
    sliding = kind.name in ("sliding windows", "the most of sliding windows")
    return Question(
        delay_ms=TICK_MS,
        declared_in=chance.choice(places),
        second=chance.choice(("own", "carried")),
        size_ms=size_ms,
        slide_ms=chance.choice((size_ms // 2, size_ms // 4, 1_000)) if sliding else size_ms,
        gap_ms=chance.choice((450, 2_050, 6_050)),
        within_ms=chance.choice((0, 1_000, 8_000)),
        outer=chance.random() < 0.5,
        state_partitions=chance.choice((2, 2, 3)),
    )


def _closed(chance: Random, streams: list[Stream], *, idle: bool) -> tuple[Stream, ...]:
    after_ms = max(stream.last_ms for stream in streams)
    closed = [stream.closed(after_ms=after_ms) for stream in streams]
    if idle:
        closed[1] = streams[1].until(chance.randint(1, 2))
    return tuple(closed)


def _delay_ms(chance: Random, case: Case, shape: Shape) -> int:
    """Longer than records come out of order, or so short that some are late."""
    found_ms = max(out_of_order_ms(case.batches(stream)) for stream in case.streams)
    least_ms = int(shape.repeats_after_s * 1000) + TICK_MS
    if case.order == "beyond" and found_ms > 2 * least_ms:
        return max(least_ms, int(found_ms * chance.uniform(0.1, 0.7)) // TICK_MS * TICK_MS)
    return max(found_ms, least_ms) + chance.choice((1, 10, 100)) * TICK_MS


def _steps(chance: Random, case: Case) -> tuple[int, tuple[str, ...]]:
    """With how many groups it begins, and what happens then."""
    groups = max(len(stream.groups) for stream in case.streams)
    disturb = ["rescale", "rescale", "size", *(["kill"] if case.killed else ["fail", "stop", "interrupt"])]
    disturbances = [chance.choice(disturb) for _ in range(chance.randint(1, 3))]
    if case.killed and "kill" not in disturbances:
        disturbances.append("kill")
    if case.start == "backlog":
        return groups, tuple(disturbances)
    first = 1 if case.start == "live" else chance.randint(1, max(1, groups // 2))
    adds = ["add"] * (groups - first)
    if case.start == "bursts":
        adds.insert(chance.randint(0, len(adds)), "settle")
    for one in disturbances:
        adds.insert(chance.randint(0, len(adds)), one)
    return first, tuple(adds)


# Running it


@dataclass(frozen=True, kw_only=True)
class Ending:
    case: Case
    found: list[Row]
    plain: list[Row]
    faults: list[str]
    took_s: float


def run(spark: SparkSession, case: Case, folder: Path, channels: ChannelKind) -> Ending:
    began_s = time.monotonic()
    plain = case.compared(run_plain(spark, case, folder / "plain"))
    found = case.compared(run_here(spark, case, folder / "elastream", channels))
    faults = compare(case, found, plain)
    return Ending(case=case, found=found, plain=plain, faults=faults, took_s=time.monotonic() - began_s)


def compare(case: Case, found: list[Row], plain: list[Row]) -> list[str]:
    """What is wrong, in words."""
    most = case.asked([stream.records for stream in case.streams])
    if case.late:
        least = plain
        if not case.kind.by_plain:
            least = case.asked([punctual(case.batches(one), case.question.delay_ms) for one in case.streams])
            assert case.kind.beyond(plain, least, most) == [], "what is expected does not hold for plain Spark"
        return [*repeated(found), *case.kind.beyond(found, least, most)]
    if case.idle and case.question.outer:  # how many come without a match depends on where the watermark stays
        pairs = [row for row in found if row[2] is not None]
        by_definition = differences("by definition", pairs, [row for row in most if row[2] is not None])
    else:
        by_definition = differences("by definition", found, most)
    return [*repeated(found), *differences("beside plain Spark", found, plain), *by_definition]


def run_plain(spark: SparkSession, case: Case, folder: Path) -> list[Row]:
    """The same in one query: all of it at once where nothing is late, else batch by batch."""
    incoming = {name: Incoming(folder / "incoming" / name) for name in case.inputs}
    strict = case.late and case.kind.by_plain
    if not strict:
        for name, stream in zip(case.inputs, case.streams, strict=True):
            incoming[name].add(stream.files)
    pipeline = replace(case, limit=None if strict else case.limit).pipeline(folder, plain=True)
    feeds = {name: read_files(spark, one.folder) for name, one in incoming.items()}
    (last,) = pipeline["all"].reads
    frame = composed(spark, pipeline, last, feeds=feeds)
    with PlainQuery(spark, frame, state_partitions=case.question.state_partitions) as query:
        if strict:
            for batch in case.batches(case.streams[0]):
                incoming["left"].add([batch])
                query.settle()
        query.settle()
        return query.rows()


def run_here(spark: SparkSession, case: Case, folder: Path, channels: ChannelKind) -> list[Row]:
    """In elastream, with all that happens to it."""
    chance = Random(f"what happens in {case.seed}")
    putting = Putting(case, folder, channels)
    putting.put(case.first_groups)
    host = _host(spark, case, folder, channels)
    with contextlib.ExitStack() as lasting:
        lasting.enter_context(host)
        for step in case.steps:
            _do(step, host, putting, chance, lasting)
        host.settle()
    return list(records(FileChannel(kept(folder, "all"))))


def _host(spark: SparkSession, case: Case, folder: Path, channels: ChannelKind) -> InThisProcess | InItsOwnProcess:
    if case.killed:
        return InItsOwnProcess(["--seed", str(case.seed)], folder, channels)
    return InThisProcess(spark, lambda: case.pipeline(folder), folder, channels)


class Putting:
    """Puts the streams into the folders or feeds of a run, group by group, and knows how far it is."""

    def __init__(self, case: Case, folder: Path, channels: ChannelKind) -> None:
        self.case = case
        self.pipeline = case.pipeline(folder)
        self._workspace = Workspace(folder / "run", _NAME, channels)
        self._incoming = {name: Incoming(folder / "incoming" / name) for name in case.inputs}
        self._groups = 0
        self._put = dict.fromkeys(case.inputs, 0)
        if case.source == "feed":
            for name in case.inputs:
                self._channel(name).create()

    def put(self, groups: int) -> None:
        """The next so many groups of each stream."""
        for name, stream in zip(self.case.inputs, self.case.streams, strict=True):
            for group in stream.groups[self._groups : self._groups + groups]:
                self._put_group(name, group)
        self._groups += groups

    def _put_group(self, name: str, group: Sequence[pd.DataFrame]) -> None:
        self._put[name] += sum(map(len, group))
        if self.case.source == "files":
            self._incoming[name].add(group)
        elif rows := as_rows(together(group)):
            write(self._channel(name), SCHEMA, rows)

    def is_taken(self) -> bool:
        """Whether the sources have copied all that was put in."""
        return all(self._channel(name).log.head().records >= count for name, count in self._put.items())

    def is_drained(self) -> bool:
        return self.is_taken() and not any(
            self._channel(read).log.pending(name)
            for name in self.pipeline.graph().order
            for read in self.pipeline[name].reads
        )

    def batches(self) -> int:
        """Of all operators, as far as Spark has noted that they are done."""
        return sum(1 for _ in self._workspace.folder.glob("checkpoints/*/commits/[0-9]*"))

    def _channel(self, name: str) -> DurableChannel:
        return self._workspace.channel(name)


def _do(step: str, host: Host, putting: Putting, chance: Random, lasting: contextlib.ExitStack) -> None:
    if step == "add":
        putting.put(1)
        host.wait_until(putting.is_taken, "taken by the sources")
        return
    if step == "settle":
        host.settle()
        return
    done = putting.batches() + chance.randint(1, 4)
    host.wait_until(lambda: putting.batches() >= done or putting.is_drained(), "further")
    operators = [one for one in putting.pipeline.steps if one.kind is StepKind.OPERATOR]
    if step == "rescale":
        chosen = chance.sample(operators, chance.randint(1, len(operators)))
        host.rescale({one.name: chance.randint(1, one.state_partitions or 4) for one in chosen})
    elif step == "size":
        host.size_batches({one.name: chance.choice((5, 20, 100, 1000)) for one in operators})
    elif step == "fail":
        lasting.enter_context(failing_at(chance.choice(_POINTS), chance.choice(operators).name))
    else:
        host.break_off(step)


# Many of them


def main() -> None:
    given = _arguments()
    first, _, last = given.seeds.partition("-")
    passed = _passed(given.results)
    seeds = [seed for seed in range(int(first), int(last or first) + 1) if seed not in passed]
    if given.without_kills:
        seeds = [seed for seed in seeds if not draw(seed).killed]
    print(f"{len(seeds)} cases, {len(passed)} passed before ({given.results})", flush=True)
    with surroundings(given.channels, given.results.with_suffix(".spark.log")) as (spark, broker):
        failed = [seed for seed in seeds if not _tell(spark, draw(seed), given, broker)]
    sys.exit(f"{len(failed)} of {len(seeds)} cases failed: {failed}" if failed else None)


def _tell(spark: SparkSession, case: Case, given: argparse.Namespace, broker: Broker | None) -> bool:
    """Run it and say in a line what came of it; the folder stays where it is worth a look."""
    folder = Path(tempfile.mkdtemp(prefix=f"event-time-{case.seed}-"))
    kind = case.channels if given.channels == "drawn" else given.channels
    channels = Kafka(servers=broker.servers) if broker is not None and kind == "kafka" else Files()
    line: dict[str, Any] = {"seed": case.seed, "kind": case.kind.name, "channels": kind, "late": case.late}
    try:
        ending = run(spark, case, folder, channels)
        line |= {"faults": ending.faults, "rows": len(ending.found), "took_s": round(ending.took_s, 1)}
    except Exception as error:
        line |= {"faults": [_first_lines(error)], "trace": traceback.format_exc()}
    with given.results.open("a", encoding="utf-8") as results:
        results.write(json.dumps(line) + "\n")
    told = "ok" if not line["faults"] else f"FAILED in {folder}: {case}\n  " + "\n  ".join(line["faults"])
    print(f"{_words(case, kind)}: {line.get('rows')} rows, {line.get('took_s')} s, {told}", flush=True)
    if not line["faults"]:
        shutil.rmtree(folder, ignore_errors=True)
    return not line["faults"]


def _first_lines(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:600]}"


def _words(case: Case, channels: str) -> str:
    where = f"{case.source}{f' of {case.limit}' if case.limit else ''}, {channels} channels, {case.start}"
    late = "late" if case.late else "not late"
    return f"seed {case.seed}: {case.kind.name}, {where}, {case.order} ({late}), {'/'.join(case.steps)}"


def _passed(results: Path) -> set[int]:
    results.parent.mkdir(parents=True, exist_ok=True)
    if not results.exists():
        return set()
    lines = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    return {line["seed"] for line in lines if not line["faults"]}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0-299", help="one, or from the first to the last")
    parser.add_argument("--channels", choices=("drawn", "files", "kafka"), default="drawn")
    parser.add_argument("--results", type=Path, default=Path("out/event-time.jsonl"))
    parser.add_argument("--without-kills", action="store_true", help="only cases that start no processes: quicker")
    return parser.parse_args()


if __name__ == "__main__":
    main()
