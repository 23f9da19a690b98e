"""The accounts of a pipeline on Spark: from its channels, its checkpoints, and what Spark tells of batches.

What was published is in the head of a channel's log, what was read in the checkpoint of the reader's query, and
what waits is counted in the entries of the log behind what the reader has acknowledged. After a clean stop the
acknowledgement is brought up to what is committed: it is otherwise written when Spark asks for the next batch.

Every batch is looked at as well: what its tasks read of a channel has to be what lies between its offsets. Spark's
count is worth that only where the plan is run once and takes every record: not for sinks with a function, which
may run it several times or not at all, nor for plans with a limit or a table (`plan_reads.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from elastream.engines.spark.channels.aside import read_aside
from elastream.engines.spark.channels.channel import DurableChannel
from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.channels.segments import Head, SegmentLog, StreamPosition
from elastream.engines.spark.checkpoint import moved_state, newest_committed, position, positions
from elastream.engines.spark.ledger import Ledger, is_batch, read_ledger, write_ledger
from elastream.engines.spark.pipeline import Kind, Pipeline, PipelineStep
from elastream.engines.spark.plan_reads import PlanReads
from elastream.engines.spark.workspace import Workspace
from elastream.measurement.accounts import Accounts, Counted, InputAccount, StepAccount, read_fault

_MOST_FAULTS = 100


@dataclass
class _Book:
    """Of one step with a query."""

    step: PipelineStep
    reads: PlanReads
    output: DurableChannel | None
    counted: Counted | None
    """How often Spark counts the records of a batch; None where that cannot be said."""
    began: Mapping[str, StreamPosition]
    """Where its query begins to read each channel, where it has no checkpoint."""
    aside: Path
    """Where records lie that it cannot process."""
    ledger: Ledger
    found: Ledger = field(init=False)
    """When this run began."""

    def __post_init__(self) -> None:
        self.found = self.ledger


class Books:
    """Kept while a pipeline runs; `local` where no task is ever run a second time."""

    def __init__(self, pipeline: Pipeline, workspace: Workspace, *, local: bool) -> None:
        self._pipeline = pipeline
        self._workspace = workspace
        self._local = local
        self._books: dict[str, _Book] = {}
        self._faults: list[str] = []
        self._told_faults = 0

    def open(self, step: PipelineStep, reads: PlanReads, output: DurableChannel | None) -> None:
        """For a step whose query is about to be started."""
        self._books[step.name] = _Book(
            step=step,
            reads=reads,
            output=output,
            counted=self._counted(step, reads, output),
            began={read: self._log(read).acknowledged(step.name) for read in step.reads},
            aside=self._workspace.aside(step.name),
            ledger=read_ledger(self._workspace.ledger(step.name)),
        )

    def _counted(self, step: PipelineStep, reads: PlanReads, output: DurableChannel | None) -> Counted | None:
        if not reads.takes_all or (step.kind is Kind.SINK and step.function is not None):
            return None
        if not self._local:
            return Counted.AT_LEAST_ONCE
        return Counted.ONCE if output is None or isinstance(output, FileChannel) else Counted.WHOLE_TIMES

    # While it runs

    def take(self, name: str, progress: Iterable[Mapping[str, Any]]) -> None:
        """What Spark tells of the batches of a step; what was taken before is passed over."""
        book = self._books[name]
        before = book.ledger
        for entry in progress:
            if int(entry["batchId"]) > book.ledger.batch and is_batch(entry):
                self._faults += _faults(book, entry)[: _MOST_FAULTS - len(self._faults)]
            book.ledger = book.ledger.told_of(entry, moved_state=self._moved_state(name))
        if book.ledger != before:
            write_ledger(self._workspace.ledger(name), book.ledger)

    def new_faults(self) -> tuple[str, ...]:
        """Batches that did not read what they were to read, since the last call, as text."""
        found = tuple(self._faults[self._told_faults :])
        self._told_faults = len(self._faults)
        return found

    # At its end

    def acknowledge(self) -> None:
        """Bring every reader up to what Spark has committed. One that is ahead of that stays so, and shows."""
        for name in self._books:
            for channel, at in self._committed(name).items():
                self._log(channel).acknowledge(name, at)

    def accounts(self) -> Accounts:
        order = self._pipeline.graph().order
        return Accounts(
            steps=tuple(self._account(self._pipeline[name]) for name in order),
            faults=tuple(self._faults),
        )

    def _account(self, step: PipelineStep) -> StepAccount:
        book = self._books.get(step.name)
        if book is None:  # a feed: another process writes it
            return StepAccount(operator=step.name, records_out=self._log(step.name).head().records)
        committed = newest_committed(self._workspace.checkpoint(step.name))
        inputs = self._inputs(step)
        out, must = self._out(book, committed)
        ledger, after = book.ledger, 0 if committed is None else committed + 1
        untold = ledger.untold + ledger.missed_until(after, moved_state=self._moved_state(step.name))
        return StepAccount(
            operator=step.name,
            inputs=inputs,
            records_in=sum(one.read for one in inputs) if inputs else _taken_from_outside(book, untold),
            records_out=out,
            must_have_put_out=must if inputs or not untold else None,
            late=ledger.late if ledger.event_time else None,
            late_before=book.found.late,
            uncounted_batches=untold,
            uncounted_before=book.found.untold,
            aside=sum(1 for _ in read_aside(book.aside)),
        )

    def _inputs(self, step: PipelineStep) -> tuple[InputAccount, ...]:
        committed = self._committed(step.name)
        found = []
        for read in step.reads:
            log = self._log(read)
            head = log.head()  # once: a feed may be written meanwhile
            found.append(
                InputAccount(
                    producer=read,
                    published=head.records,
                    read=committed.get(read, StreamPosition()).record,
                    waiting=_held(log, head, log.acknowledged(step.name)),
                )
            )
        return tuple(found)

    def _out(self, book: _Book, committed: int | None) -> tuple[int | None, int | None]:
        """What a step has published, and what it must have, where both can be compared."""
        if book.output is None:
            return None, None
        if book.step.folder is not None:
            return self._kept(book, book.output.log, committed)
        head = book.output.log.head()
        comparable = book.step.kind is Kind.SOURCE and head.batch <= (-1 if committed is None else committed)
        taken = _taken_from_outside(book, untold=0) if comparable else None
        return head.records, taken

    def _kept(self, book: _Book, log: SegmentLog, committed: int | None) -> tuple[int, int | None]:
        """Of what lies in the folder of a sink, that of this pipeline; others may have written there before."""
        commits = list(log.all_commits())
        own = [commit for commit in commits if commit.writer == self._workspace.writer(book.step.name)]
        kept = sum(commit.records for commit in own)
        if commits and commits[0].number > 0:  # someone has cleared away the oldest
            return kept, None
        # a batch may be published and not committed yet
        batch = max((commit.batch for commit in own), default=-1)
        batch = batch if committed is None else max(batch, committed)
        if batch < 0:
            return kept, 0
        read = positions(self._workspace.checkpoint(book.step.name), batch, book.reads.streams)
        return kept, sum(at.record for at in read.values())

    def _committed(self, name: str) -> Mapping[str, StreamPosition]:
        """Up to where Spark has committed each channel that a step reads."""
        checkpoint = self._workspace.checkpoint(name)
        batch = newest_committed(checkpoint)
        return {} if batch is None else positions(checkpoint, batch, self._books[name].reads.streams)

    def _moved_state(self, name: str) -> Callable[[int], bool]:
        return partial(moved_state, self._workspace.checkpoint(name))

    def _log(self, channel: str) -> SegmentLog:
        return self._workspace.channel(channel).log


def _taken_from_outside(book: _Book, untold: int) -> int | None:
    """Of a source whose records are counted once and passed on, each of them."""
    if untold or not book.reads.passes_all_on or book.step.kind is not Kind.SOURCE:
        return None
    return book.ledger.read if book.output is None or isinstance(book.output, FileChannel) else None


def _held(log: SegmentLog, head: Head, after: StreamPosition) -> int:
    """What the entries of a log hold behind a position, up to the head: it may have grown since."""
    commits = (commit for commit in log.all_commits() if commit.number < head.commits)
    return sum(max(0, commit.after - max(commit.before, after.record)) for commit in commits)


def _put_aside(book: _Book, batch: int, channel: str) -> int:
    return sum(one.channel == channel for one in read_aside(book.aside, batch=batch))


def _faults(book: _Book, entry: Mapping[str, Any]) -> list[str]:
    sources: Sequence[Mapping[str, Any]] = entry["sources"]
    if book.counted is None or len(sources) != len(book.reads.told):
        return []
    found = []
    for channel, source in zip(book.reads.told, sources, strict=True):
        if channel is None or not book.reads.in_one_place(channel):
            continue
        told = source["startOffset"]
        start = book.began[channel] if told in (None, "null") else position(told)
        found.append(
            read_fault(
                book.step.name,
                int(entry["batchId"]),
                channel,
                offered=position(source["endOffset"]).record
                - start.record
                - _put_aside(book, int(entry["batchId"]), channel),
                read=int(source["numInputRows"]),
                counted=book.counted,
            )
        )
    return [fault for fault in found if fault is not None]
