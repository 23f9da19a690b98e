"""What is told of a watermark: far ahead of the clock, held back by an input that is silent, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from elastream.engines.spark.watermark_watch import WatermarkWatch

_NOW_S = 1_767_225_600.0  # 2026-01-01


def at(text: str | None) -> dict[str, Any]:
    return {"eventTime": {} if text is None else {"watermark": text}}


def notes(watch: WatermarkWatch, now_s: float = 0.0) -> list[str]:
    return watch.notes(clock_s=_NOW_S + now_s, now_s=now_s)


def test_a_watermark_in_the_far_future_is_told() -> None:
    watch = WatermarkWatch("counts")
    watch.progress([at("2025-12-31T23:59:50.000Z"), at("2099-01-01T00:00:00.000Z")])
    (note,) = notes(watch)
    assert note.startswith("counts: its watermark stands at 2099-01-01T00:00:00Z, ahead of this machine's clock")


def test_a_year_of_five_digits_is_told_too() -> None:
    watch = WatermarkWatch("counts")
    watch.progress([at("+12026-01-01T00:00:00.000Z")])
    assert "a year beyond 9999" in notes(watch)[0]


@pytest.mark.parametrize("text", ["1970-01-01T00:00:00.000Z", "2026-01-01T00:20:00.000Z", None])
def test_one_that_is_behind_the_clock_or_little_ahead_of_it_is_not(text: str | None) -> None:
    watch = WatermarkWatch("counts")
    watch.progress([at(text)])
    assert notes(watch) == []


def test_a_silent_input_is_named_while_another_brings_records() -> None:
    watch = WatermarkWatch("joined")
    watch.progress([at("2025-12-31T23:00:00.000Z")])
    for second in range(0, 60, 10):
        watch.inputs({"bids": second, "auctions": 7}, now_s=float(second))
        told = notes(watch, float(second))
        assert bool(told) == (second >= 30)
    assert told == [
        "joined: 'auctions' has brought nothing since 2026-01-01T00:00:00Z, which holds the watermark at "
        "2025-12-31T23:00:00Z: results that wait for it, and state, pile up"
    ]
    watch.inputs({"bids": 60, "auctions": 8}, now_s=60.0)
    assert notes(watch, 60.0) == []


def test_nothing_is_told_where_all_inputs_are_silent_or_there_is_one() -> None:
    for inputs in ({"bids": 1}, {"bids": 1, "auctions": 1}):
        watch = WatermarkWatch("counts")
        watch.inputs(inputs, now_s=0.0)
        watch.inputs(inputs, now_s=1000.0)
        assert notes(watch, 1000.0) == []
