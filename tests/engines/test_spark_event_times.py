"""Which readers follow event time, and by which column a source may be cut: from what the plans say."""

from __future__ import annotations

import pytest
from pyspark.sql.types import IntegerType, StructField, StructType, TimestampNTZType, TimestampType

from elastream.engines.spark.event_time import EventTimes, Needed, StepEventTime
from elastream.errors import InvalidInput

_BIDS = StructType(
    [
        StructField("at", TimestampType()),
        StructField("when", TimestampNTZType()),
        StructField("auction", IntegerType()),
    ]
)
_SOURCE = StepEventTime()
_SINK = StepEventTime()


def follows(column: str | None, read: str) -> StepEventTime:
    return StepEventTime(followed={read: frozenset({Needed(column=column)})})


def passes(read: str, **columns: str) -> StepEventTime:
    return StepEventTime(passed_on={read: columns})


def test_all_that_lies_before_a_watermark_follows_it_and_nothing_else_does() -> None:
    steps = {
        "bids": _SOURCE,
        "dear": passes("bids", at="at"),
        "counts": follows("at", "dear"),
        "kept": _SINK,
        "all": _SINK,
    }
    reads = {"bids": (), "dear": ("bids",), "counts": ("dear",), "kept": ("counts",), "all": ("bids",)}
    found = EventTimes.of(steps, reads)
    assert found.follows("dear", "bids")
    assert found.follows("counts", "dear")
    assert not found.follows("kept", "counts")
    assert not found.follows("all", "bids")
    assert found.column_to_cut_by("bids", _BIDS) == "at"
    assert found.column_to_cut_by("counts", _BIDS) is None
    found.check()


def test_a_column_is_followed_through_another_name() -> None:
    steps = {"bids": _SOURCE, "renamed": passes("bids", time="at"), "counts": follows("time", "renamed")}
    reads = {"bids": (), "renamed": ("bids",), "counts": ("renamed",)}
    assert EventTimes.of(steps, reads).column_to_cut_by("bids", _BIDS) == "at"


def test_what_is_computed_on_the_way_is_read_whole() -> None:
    steps = {"bids": _SOURCE, "shifted": passes("bids", auction="auction"), "counts": follows("at", "shifted")}
    reads = {"bids": (), "shifted": ("bids",), "counts": ("shifted",)}
    found = EventTimes.of(steps, reads)
    assert found.follows("shifted", "bids")
    assert found.column_to_cut_by("bids", _BIDS) is None


def test_readers_of_two_event_times_are_given_it_whole() -> None:
    steps = {"bids": _SOURCE, "by_at": follows("at", "bids"), "by_when": follows("when", "bids")}
    reads = {"bids": (), "by_at": ("bids",), "by_when": ("bids",)}
    assert EventTimes.of(steps, reads).column_to_cut_by("bids", _BIDS) is None


def test_only_a_column_of_moments_is_cut_by() -> None:
    steps = {"bids": _SOURCE, "counts": follows("auction", "bids")}
    assert EventTimes.of(steps, {"bids": (), "counts": ("bids",)}).column_to_cut_by("bids", _BIDS) is None


def test_inputs_that_are_put_together_before_the_watermark_are_refused() -> None:
    steps = {
        "a": _SOURCE,
        "b": _SOURCE,
        "both": StepEventTime(passed_on={"a": {"at": "at"}, "b": {"at": "at"}}),
        "counts": follows("at", "both"),
    }
    found = EventTimes.of(steps, {"a": (), "b": (), "both": ("a", "b"), "counts": ("both",)})
    with pytest.raises(InvalidInput, match="'both' puts a and b together, each read at its own pace"):
        found.check()
    assert found.column_to_cut_by("a", _BIDS) == found.column_to_cut_by("b", _BIDS) == "at"


def test_what_nobody_follows_may_be_put_together_anywhere() -> None:
    both = StepEventTime(passed_on={"a": {"at": "at"}, "b": {"at": "at"}})
    reads = {"a": (), "b": (), "both": ("a", "b"), "kept": ("both",)}
    found = EventTimes.of({"a": _SOURCE, "b": _SOURCE, "both": both, "kept": _SINK}, reads)
    found.check()  # refuses nothing
    assert [found.column_to_cut_by(name, _BIDS) for name in ("a", "b", "both")] == [None] * 3


def test_a_watermark_above_a_union_is_declared_on_each_input() -> None:
    both = StepEventTime(
        followed={"a": frozenset({Needed(column="at")}), "b": frozenset({Needed(column="time")})},
        shared={"a": {"at": 10_000}, "b": {"time": 10_000}},
    )
    found = EventTimes.of({"a": _SOURCE, "b": _SOURCE, "counts": both}, {"a": (), "b": (), "counts": ("a", "b")})
    assert found.shared_by("counts") == {"a": {"at": 10_000}, "b": {"time": 10_000}}
    assert found.shared_by("a") == found.shared_by("nobody") == {}
    found.check()
