"""The accounts of a pipeline in a folder, without a Spark: real channels, and checkpoints as Spark writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from elastream.engines.spark.accounts import Books
from elastream.engines.spark.channels.channel import DurableChannel
from elastream.engines.spark.channels.files import FileChannel
from elastream.engines.spark.channels.segments import StreamPosition
from elastream.engines.spark.ledger import Ledger, read_ledger
from elastream.engines.spark.pipeline import Kind, Pipeline
from elastream.engines.spark.plan_reads import PlanReads
from elastream.engines.spark.workspace import Workspace
from elastream.errors import ElastreamError
from elastream.measurement.accounts import Accounts, StepAccount

COPIES = PlanReads(streams=("joined",), takes_all=True, passes_all_on=True)


class Site:
    """A pipeline of two feeds that are joined, with a sink that keeps the result, as it lies in a folder."""

    def __init__(self, folder: Path) -> None:
        self.kept = folder / "kept"
        self.pipeline = Pipeline("site")
        self.pipeline.feed("left", schema="id bigint")
        self.pipeline.feed("right", schema="id bigint")
        self.pipeline.operator(reads=("left", "right"), state_partitions=2)(joined)
        self.pipeline.keep("all", reads="joined", folder=self.kept)
        self.workspace = Workspace(folder / "run", "site")
        self.workspace.open()
        for name in ("left", "right", "joined"):
            self.channel(name).create()
        self.sink = FileChannel(self.kept, writer=self.workspace.writer("all"))
        self.sink.create()
        self.books = self.opened()

    def opened(self, *, local: bool = True, both: PlanReads | None = None) -> Books:
        """As when a run begins; the plan of the join has what it reads in another order."""
        books = Books(self.pipeline, self.workspace, local=local)
        both = both or PlanReads(streams=("right", "left"), takes_all=True, passes_all_on=False)
        books.open(self.pipeline["joined"], both, self.channel("joined"))
        books.open(self.pipeline["all"], COPIES, self.sink)
        return books

    def channel(self, name: str) -> DurableChannel:
        return self.workspace.channel(name)

    def publish(self, name: str, records: int) -> None:
        (self.sink if name == "all" else self.channel(name)).append(pa.table({"id": range(records)}))

    def batch(self, name: str, number: int, *ends: int, committed: bool = True, partitions: int = 2) -> None:
        """As Spark writes it down: the offsets before the batch, the commit after it."""
        checkpoint = self.workspace.checkpoint(name)
        for log in ("offsets", "commits"):
            (checkpoint / log).mkdir(parents=True, exist_ok=True)
        lines = [json.dumps({"record": end, "commit": 1}) for end in ends]
        settings = json.dumps({"conf": {"spark.sql.shuffle.partitions": str(partitions)}})
        (checkpoint / "offsets" / str(number)).write_text("\n".join(["v1", settings, *lines]))
        if committed:
            (checkpoint / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')

    def account(self, name: str) -> StepAccount:
        return next(step for step in self.accounts().steps if step.operator == name)

    def accounts(self) -> Accounts:
        self.books.acknowledge()
        return self.books.accounts()


def joined(left: Any, right: Any) -> Any:
    return left


def told(
    batch: int, *reads: tuple[int | None, int, int], late: int | None = None, ran: bool = True
) -> Mapping[str, Any]:
    """An entry of Spark's progress: from where to where each source was read, and how many records that were."""
    return {
        "batchId": batch,
        "numInputRows": sum(rows for _, _, rows in reads),
        "durationMs": {"addBatch": 10, "triggerExecution": 12} if ran else {"triggerExecution": 1},
        "eventTime": {} if late is None else {"watermark": "2026-11-16T00:00:00.000Z"},
        "stateOperators": [] if late is None else [{"numRowsDroppedByWatermark": late}],
        "sources": [
            {
                "startOffset": "null" if start is None else json.dumps({"record": start, "commit": 1}),
                "endOffset": json.dumps({"record": end, "commit": 1}),
                "numInputRows": rows,
            }
            for start, end, rows in reads
        ],
    }


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


class TestTotals:
    def test_a_new_pipeline_has_read_nothing(self, site: Site) -> None:
        site.publish("left", 7)
        accounts = site.accounts()
        assert accounts.differences == ()
        found = site.account("joined")
        assert (found.records_in, found.records_out, found.waiting) == (0, 0, 7)
        assert site.account("left").records_out == 7

    def test_each_input_is_counted_by_itself_whatever_their_order_in_the_plan(self, site: Site) -> None:
        site.publish("left", 100)
        site.publish("right", 30)
        site.batch("joined", 0, 30, 60)  # the right one is the first in the plan
        site.publish("joined", 12)
        site.batch("all", 0, 12)
        site.publish("all", 12)
        assert site.accounts().differences == ()
        found = site.account("joined")
        assert [(one.producer, one.read, one.waiting) for one in found.inputs] == [
            ("left", 60, 40),
            ("right", 30, 0),
        ]
        assert (found.records_in, found.records_out, found.waiting) == (90, 12, 40)
        assert (site.account("all").records_in, site.account("all").records_out) == (12, 12)

    def test_only_what_is_committed_counts(self, site: Site) -> None:
        site.publish("left", 100)
        site.batch("joined", 0, 0, 60)
        site.batch("joined", 1, 0, 100, committed=False)
        assert site.account("joined").records_in == 60

    def test_a_stream_that_a_plan_has_in_two_places_is_read_once(self, site: Site) -> None:
        site.books = site.opened(both=PlanReads(streams=("left", "left"), takes_all=True, passes_all_on=False))
        site.publish("left", 100)
        site.batch("joined", 0, 60, 60)
        site.books.take("joined", [told(0, (None, 60, 120))])
        assert site.accounts().differences == ()
        assert site.account("joined").records_in == 60

    def test_a_stop_brings_the_acknowledgement_up_to_what_is_committed(self, site: Site) -> None:
        site.publish("left", 100)
        site.batch("joined", 0, 0, 60)
        assert site.channel("left").log.pending("joined") == 100
        site.books.acknowledge()
        assert site.channel("left").log.pending("joined") == 40

    def test_what_is_published_meanwhile_is_not_missed(self, site: Site) -> None:
        """A feed goes on being written while its readers are stopped."""
        site.publish("left", 100)
        site.batch("joined", 0, 0, 60)
        site.books.acknowledge()
        site.publish("left", 5)
        assert site.books.accounts().differences == ()
        assert site.account("joined").waiting == 45

    def test_a_checkpoint_that_cannot_be_read_is_told(self, site: Site) -> None:
        site.publish("left", 100)
        site.batch("joined", 0, 30)
        with pytest.raises(ElastreamError, match="a position for each of 2 inputs was expected, found 1"):
            site.accounts()


class TestDifferences:
    def test_an_acknowledgement_ahead_of_the_checkpoint_shows(self, site: Site) -> None:
        """What it says to be done would be deleted before it is read."""
        site.publish("left", 100)
        site.batch("joined", 0, 0, 60)
        site.channel("left").log.acknowledge("joined", StreamPosition(record=90, commit=1))
        assert site.accounts().differences == (
            "joined: left has published 100 records, of which it has read 60 and 10 wait for it: 30 are missing",
        )

    def test_it_shows_before_the_first_batch_as_well(self, site: Site) -> None:
        site.publish("left", 100)
        site.channel("left").log.acknowledge("joined", StreamPosition(record=90, commit=1))
        (difference,) = site.accounts().differences
        assert difference.endswith("of which it has read 0 and 10 wait for it: 90 are missing")

    def test_records_that_were_deleted_though_they_wait_show(self, site: Site) -> None:
        for _ in range(3):
            site.publish("left", 10)
        site.batch("joined", 0, 0, 5)
        (site.channel("left").log.folder / "log" / "0000000001.json").unlink()
        (difference,) = site.accounts().differences
        assert difference.endswith("of which it has read 5 and 15 wait for it: 10 are missing")

    def test_a_sink_that_keeps_less_than_it_read_shows(self, site: Site) -> None:
        site.publish("joined", 20)
        site.batch("all", 0, 20)
        site.publish("all", 19)
        assert site.accounts().differences == (
            "all: it took in 20 records, which it passes on, and has put out 19: 1 is missing",
        )

    def test_a_batch_that_is_kept_and_not_committed_yet_is_no_difference(self, site: Site) -> None:
        site.publish("joined", 20)
        site.batch("all", 0, 15)
        site.publish("all", 15)
        site.batch("all", 1, 20, committed=False)
        site.publish("all", 5)
        assert site.accounts().differences == ()
        assert (site.account("all").records_in, site.account("all").records_out) == (15, 20)

    def test_what_others_kept_in_the_same_folder_does_not_count(self, site: Site) -> None:
        FileChannel(site.kept, writer="another/all").create()
        FileChannel(site.kept, writer="another/all").append(pa.table({"id": range(1_000)}))
        site.sink.create()
        site.publish("joined", 20)
        site.batch("all", 0, 20)
        site.publish("all", 20)
        assert site.accounts().differences == ()
        assert site.account("all").records_out == 20

    def test_a_sink_whose_oldest_records_someone_cleared_away_is_not_compared(self, site: Site) -> None:
        site.publish("joined", 20)
        site.batch("all", 0, 10)
        site.publish("all", 10)
        site.batch("all", 1, 20)
        site.publish("all", 10)
        (site.kept / "log" / "0000000000.json").unlink()
        assert site.accounts().differences == ()


class TestBatches:
    def test_a_batch_that_reads_what_it_is_to_read_is_no_fault(self, site: Site) -> None:
        site.books.take("joined", [told(0, (None, 30, 30), (None, 60, 60)), told(1, (30, 30, 0), (60, 100, 40))])
        assert site.books.new_faults() == ()

    def test_one_that_lost_records_is_told_once_and_is_a_difference(self, site: Site) -> None:
        site.books.take("joined", [told(0, (None, 30, 30), (None, 60, 50))])
        (fault,) = site.books.new_faults()
        assert fault == "joined: its batch 0 was to read 60 records of left, and has read 50: 10 were lost"
        site.books.take("joined", [told(0, (None, 30, 30), (None, 60, 50))])
        assert site.books.new_faults() == ()
        assert site.accounts().differences == (fault,)

    def test_so_many_that_every_batch_is_one_are_not_all_kept(self, site: Site) -> None:
        for number in range(200):
            site.books.take("joined", [told(number, (0, 1, 0), (0, 1, 0))])
        assert len(site.books.new_faults()) == 100

    def test_records_that_tasks_of_a_lost_executor_read_again_are_no_fault(self, site: Site) -> None:
        site.books = site.opened(local=False)
        site.books.take("joined", [told(0, (None, 30, 35), (None, 60, 60))])
        assert site.books.new_faults() == ()

    def test_a_plan_that_need_not_read_everything_is_not_looked_at(self, site: Site) -> None:
        limited = PlanReads(streams=("right", "left"), takes_all=False, passes_all_on=False)
        site.books = site.opened(both=limited)
        site.books.take("joined", [told(0, (None, 30, 1), (None, 60, 1))])
        assert site.books.new_faults() == ()

    def test_a_reader_that_began_in_the_middle_is_to_read_from_there(self, site: Site) -> None:
        site.publish("left", 100)
        site.channel("left").log.acknowledge("joined", StreamPosition(record=40, commit=1))
        site.books = site.opened()
        site.books.take("joined", [told(0, (None, 30, 30), (None, 60, 20))])
        assert site.books.new_faults() == ()


class TestLateRecords:
    def test_they_are_added_up_over_restarts(self, site: Site) -> None:
        site.books.take("joined", [told(0, late=3), told(1, late=0)])
        site.batch("joined", 1, 0, 0)
        assert (site.account("joined").late, site.account("joined").late_before) == (3, 0)
        site.books = site.opened()
        site.books.take("joined", [told(1, late=9), told(2, late=4)])  # the first of them was counted before
        site.batch("joined", 2, 0, 0)
        found = site.account("joined")
        assert (found.late, found.late_before, found.uncounted_batches) == (7, 3, 0)

    def test_without_event_time_it_is_not_zero_but_unknown(self, site: Site) -> None:
        site.books.take("joined", [told(0)])
        assert site.account("joined").late is None

    def test_a_look_that_found_nothing_to_do_is_no_batch(self, site: Site) -> None:
        site.books.take("joined", [told(0, late=1), told(1, late=0, ran=False), told(1, late=2)])
        assert site.account("joined").late == 3

    def test_batches_that_a_killed_run_was_not_told_of_are_counted(self, site: Site) -> None:
        site.books.take("joined", [told(0, late=1)])
        for number in (1, 2, 3):
            site.batch("joined", number, 0, 0)
        assert site.account("joined").uncounted_batches == 3, "at once"
        site.books = site.opened()
        site.batch("joined", 4, 0, 0)
        site.books.take("joined", [told(4, late=1)])
        found = site.account("joined")
        assert (found.late, found.uncounted_batches, found.uncounted_before) == (2, 3, 0)
        assert read_ledger(site.workspace.ledger("joined")) == Ledger(batch=4, late=2, event_time=True, untold=3)

    def test_moving_the_state_has_a_number_and_is_no_batch(self, site: Site) -> None:
        site.batch("joined", 0, 0, 0)
        site.batch("joined", 1, 0, 0, partitions=4)
        site.batch("joined", 2, 0, 0, partitions=4)
        site.books.take("joined", [told(0, late=1), told(2, late=1)])
        assert site.account("joined").uncounted_batches == 0


class TestSources:
    @pytest.fixture
    def books(self, site: Site) -> Books:
        site.pipeline.source(outside)
        site.channel("outside").create()
        books = Books(site.pipeline, site.workspace, local=True)
        books.open(site.pipeline["outside"], self.reads(), site.channel("outside"))
        return books

    def reads(self, *, passes_all_on: bool = True) -> PlanReads:
        return PlanReads(streams=(None,), takes_all=True, passes_all_on=passes_all_on)

    def told(self, batch: int, rows: int) -> Mapping[str, Any]:
        return {**told(batch), "numInputRows": rows}

    def found(self, books: Books) -> StepAccount:
        return books._account(books._pipeline["outside"])

    def test_what_it_took_from_outside_is_what_it_published(self, site: Site, books: Books) -> None:
        assert site.pipeline["outside"].kind is Kind.SOURCE
        site.publish("outside", 25)
        site.batch("outside", 0, 0)
        books.take("outside", [self.told(0, 25)])
        assert self.found(books).differences == ()
        assert (self.found(books).records_in, self.found(books).records_out) == (25, 25)

    def test_less_shows(self, site: Site, books: Books) -> None:
        site.publish("outside", 24)
        site.batch("outside", 0, 0)
        books.take("outside", [self.told(0, 25)])
        assert self.found(books).differences == (
            "outside: it took in 25 records, which it passes on, and has put out 24: 1 is missing",
        )

    def test_one_that_leaves_out_records_is_not_compared(self, site: Site, books: Books) -> None:
        books.open(site.pipeline["outside"], self.reads(passes_all_on=False), site.channel("outside"))
        site.publish("outside", 24)
        site.batch("outside", 0, 0)
        books.take("outside", [self.told(0, 25)])
        assert self.found(books).differences == ()
        assert self.found(books).records_in is None

    def test_nor_is_one_whose_batches_a_killed_run_was_not_told_of(self, site: Site, books: Books) -> None:
        site.publish("outside", 25)
        site.batch("outside", 0, 0)
        assert self.found(books).differences == ()
        assert self.found(books).records_in is None


def outside(spark: Any) -> Any:
    return spark
