"""The watermark of each input over restarts: what is written down, what is given back, and when neither is."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastream.engines.spark.input_watermarks import (
    DeclaredWatermark,
    InputWatermarks,
    Marks,
    later,
    read_input_watermarks,
    write_input_watermarks,
)
from elastream.engines.spark.watermark_keeper import WatermarkKeeper, keeper_of

_LEFT = DeclaredWatermark(reads=("left",), column="at", delay_ms=1_000)
_RIGHT = DeclaredWatermark(reads=("right",), column="at", delay_ms=2_000)
_KEPT = InputWatermarks(query="q", declared=(_LEFT, _RIGHT))
_node_ids = count()


# What is written down


def test_a_watermark_does_not_go_back() -> None:
    assert later((5, None, 7, None), (3, 4, None, None)) == (5, 4, 7, None)


def test_the_newest_batch_and_the_one_before_it_are_kept() -> None:
    kept = _KEPT.with_batch(3, (1, None)).with_batch(4, (2, None)).with_batch(6, (2, 9))
    assert kept.left_by == {4: (2, None), 6: (2, 9)}
    assert kept.newest == (2, 9)


def test_a_batch_that_is_run_again_begins_with_what_the_one_before_it_left() -> None:
    kept = _KEPT.with_batch(3, (1, 1)).with_batch(4, (5, 5))
    assert kept.before(4).left_by == {3: (1, 1)}
    assert kept.before(4).with_batch(4, (6, 1)).left_by == {3: (1, 1), 4: (6, 1)}


def test_batches_that_moved_the_state_have_a_number_and_no_watermarks() -> None:
    assert _KEPT.with_batch(4, (5, 5)).before(6).newest == (5, 5)


def test_a_checkpoint_that_was_set_back_far_is_given_nothing() -> None:
    assert _KEPT.with_batch(7, (1, 1)).with_batch(8, (5, 5)).before(7).newest is None


def test_what_is_written_is_read(tmp_path: Path) -> None:
    kept = _KEPT.with_batch(3, (1, None)).with_batch(4, (1_794_722_401_000, -5))
    write_input_watermarks(tmp_path / "pairs.json", kept)
    assert read_input_watermarks(tmp_path / "pairs.json") == kept


def test_no_file_is_no_watermark(tmp_path: Path) -> None:
    assert read_input_watermarks(tmp_path / "pairs.json") is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"query": "q", "declared": [{}], "left_by": {}}',
        '{"query": "q", "declared": [], "left_by": {"last": [1]}}',
        '{"query": "q", "declared": [], "left_by": [1]}',
    ],
)
def test_a_file_that_cannot_be_read_is_told_and_not_used(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "pairs.json").write_text(text, encoding="utf-8")
    assert read_input_watermarks(tmp_path / "pairs.json") is None
    assert "pairs.json: watermarks of each input were expected" in caplog.text


# What is given back


@dataclass
class FakeTracker:
    """As Spark's: it forgets everything with its run, and takes in a batch when that is over."""

    id: str = "q"
    nodes: Mapping[str, DeclaredWatermark] = field(default_factory=lambda: new_nodes(_LEFT, _RIGHT))
    held: dict[str, int | None] = field(default_factory=dict)
    batch: dict[str, int | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.held = dict.fromkeys(self.nodes)

    def query_id(self) -> str:
        return self.id

    def marks(self) -> dict[str, int | None]:
        return dict(self.held)

    def marks_of_batch(self) -> dict[str, int | None]:
        return dict(self.batch)

    def put(self, marks: Mapping[str, int]) -> None:
        self.held.update(marks)

    def run(self, brought: Marks) -> None:
        self.batch = dict(zip(self.nodes, brought, strict=True))

    def commit(self) -> None:
        self.held = dict(zip(self.nodes, later(self.in_order(), tuple(self.batch.values())), strict=True))

    def in_order(self) -> Marks:
        return tuple(self.held.values())


def new_nodes(*declared: DeclaredWatermark) -> dict[str, DeclaredWatermark]:
    """Every plan has ids of its own."""
    return {f"node-{next(_node_ids)}": one for one in declared}


def keeper(tracker: FakeTracker, folder: Path) -> WatermarkKeeper:
    return WatermarkKeeper("pairs", tracker.nodes, folder / "pairs.json", lambda: tracker)


def run_batch(tracker: FakeTracker, kept: WatermarkKeeper, batch: int, brought: Marks) -> None:
    kept.batch_begins(batch)
    tracker.run(brought)
    kept.batch_ends(batch)
    tracker.commit()


def left_over(folder: Path, brought: Marks) -> None:
    """Of a run of one batch."""
    tracker = FakeTracker()
    run_batch(tracker, keeper(tracker, folder), 0, brought)


def test_the_next_run_begins_with_what_the_last_one_left(tmp_path: Path) -> None:
    left_over(tmp_path, (9, 59))
    tracker = FakeTracker()
    keeper(tracker, tmp_path).batch_begins(1)
    assert tracker.in_order() == (9, 59)


def test_it_is_given_back_once(tmp_path: Path) -> None:
    left_over(tmp_path, (9, 59))
    tracker = FakeTracker()
    again = keeper(tracker, tmp_path)
    run_batch(tracker, again, 1, (99, None))
    again.batch_begins(2)
    assert tracker.in_order() == (99, 59)


def test_another_checkpoint_is_given_nothing(tmp_path: Path) -> None:
    left_over(tmp_path, (9, 59))
    tracker = FakeTracker(id="another")
    run_batch(tracker, keeper(tracker, tmp_path), 1, (1, None))
    assert tracker.in_order() == (1, None)
    found = read_input_watermarks(tmp_path / "pairs.json")
    assert found is not None
    assert (found.query, found.left_by) == ("another", {1: (1, None)})


@pytest.mark.parametrize(
    "declared",
    [
        (_RIGHT, _LEFT),
        (_LEFT, DeclaredWatermark(reads=("right",), column="at", delay_ms=3_000)),
        (_LEFT, DeclaredWatermark(reads=("right",), column="seen_at", delay_ms=2_000)),
        (_LEFT, _RIGHT, _RIGHT),
    ],
    ids=["other order", "other delay", "other column", "one more"],
)
def test_other_watermarks_begin_anew_and_that_is_told(
    tmp_path: Path, declared: tuple[DeclaredWatermark, ...], caplog: pytest.LogCaptureFixture
) -> None:
    left_over(tmp_path, (9, 59))
    tracker = FakeTracker(nodes=new_nodes(*declared))
    keeper(tracker, tmp_path).batch_begins(1)
    assert tracker.in_order() == (None,) * len(declared)
    assert "'pairs' declares other watermarks than before" in caplog.text


def test_a_run_that_another_has_followed_writes_nothing_any_more(tmp_path: Path) -> None:
    left_over(tmp_path, (9, 59))
    before = (tmp_path / "pairs.json").read_bytes()
    tracker = FakeTracker()
    interrupted = keeper(tracker, tmp_path)
    interrupted.batch_begins(1)
    tracker.run((99, 99))
    interrupted.close()
    interrupted.batch_ends(1)
    assert (tmp_path / "pairs.json").read_bytes() == before


# Where Spark is another


def fails() -> FakeTracker:
    raise TypeError("'JavaPackage' object is not callable")


def of_other_nodes() -> FakeTracker:
    return FakeTracker()


@pytest.mark.parametrize(
    ("opened", "reason"),
    [
        (fails, "'JavaPackage' object is not callable"),
        (of_other_nodes, "watermarks of 2 nodes of the plan expected"),
    ],
)
def test_a_spark_that_cannot_be_asked_is_told_once_and_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, opened: Callable[[], FakeTracker], reason: str
) -> None:
    kept = WatermarkKeeper("pairs", new_nodes(_LEFT, _RIGHT), tmp_path / "pairs.json", opened)
    with caplog.at_level(logging.WARNING):
        for batch in range(3):
            kept.batch_begins(batch)
            kept.batch_ends(batch)
    assert [reason in record.getMessage() for record in caplog.records] == [True]
    assert not (tmp_path / "pairs.json").exists()


def test_a_plan_that_cannot_be_looked_at_is_told_and_the_query_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    anything: Any = object()
    assert keeper_of(anything, "pairs", anything, tmp_path / "pairs.json") is None
    assert "'pairs': the watermarks of its inputs cannot be kept" in caplog.text
    assert "after a restart they move on once each input has brought a record" in caplog.text


# All of it


_MARK = st.none() | st.integers(-5, 1_800_000_000_000)
_BATCH = st.tuples(st.tuples(_MARK, _MARK), st.lists(st.sampled_from(["begun", "run", "kept"]), max_size=2))


@given(batches=st.lists(st.tuples(_BATCH, st.sampled_from(["go on", "restart", "move state"])), max_size=8))
def test_with_restarts_and_kills_anywhere_it_is_as_if_it_had_never_stopped(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[tuple[tuple[Marks, list[str]], str]],
) -> None:
    folder = tmp_path_factory.mktemp("watermarks")
    never_stopped, number = (None, None), 0
    tracker = FakeTracker()
    kept = keeper(tracker, folder)
    for (brought, kills), then in batches:
        for killed_when in kills:  # before it commits: the batch is run again by the next run
            kept.batch_begins(number)
            if killed_when != "begun":
                tracker.run(brought)
            if killed_when == "kept":
                kept.batch_ends(number)
            tracker = FakeTracker()
            kept = keeper(tracker, folder)
        run_batch(tracker, kept, number, brought)
        never_stopped = later(never_stopped, brought)
        assert tracker.in_order() == never_stopped
        number += 2 if then == "move state" else 1
        if then != "go on":
            tracker = FakeTracker()
            kept = keeper(tracker, folder)
