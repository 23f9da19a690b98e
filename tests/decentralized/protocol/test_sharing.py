"""Who gets which records of a batch, and what an instance makes of what arrives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastream.decentralized.protocol.load_meter import Arrived, LoadMeter
from elastream.decentralized.protocol.sharing import shares

INSTANCES = st.integers(1, 8).map(lambda count: [f"b/{number}" for number in range(count)])


@given(st.integers(0, 100), INSTANCES, st.integers(0, 50))
def test_every_record_goes_to_one_instance_of_each_successor_and_fairly(
    records: int, instances: list[str], batch: int
) -> None:
    found = shares(records, [*instances, "other/0"], batch)
    for operator, among in (("b/", instances), ("other/", ["other/0"])):
        parts = [part for part in found if part.receiver.startswith(operator)]
        assert sorted(number for part in parts for number in range(part.first, part.last)) == list(range(records))
        sizes = [part.last - part.first for part in parts] + [0] * (len(among) - len(parts))
        assert max(sizes) - min(sizes) <= 1
    assert shares(records, ["other/0", *reversed(instances)], batch) == found, "the order of the view is no matter"


def test_the_records_that_are_over_go_around() -> None:
    got = dict.fromkeys(("b/0", "b/1", "b/2"), 0)
    for batch in range(6):
        for part in shares(4, got, batch):
            got[part.receiver] += part.last - part.first
    assert got == {"b/0": 8, "b/1": 8, "b/2": 8}


def test_the_load_is_right_however_the_window_lies_to_the_lumps() -> None:
    """50 a second in lumps of 150: a count over ten seconds would give 45 or 60."""
    meter, total = LoadMeter(), 0
    for at_s in range(0, 31, 3):
        total += 150
        meter.observe(at_s, {"a/0": _by_our_clock(total, at_s)})
    for since_s in (10.0, 11.9, 12.0, 17.0):
        assert meter.per_s(since_s) == pytest.approx(50.0)


def test_senders_come_and_go() -> None:
    meter = LoadMeter()
    meter.observe(0.0, {"a/0": _by_our_clock(10, 0.0)})
    meter.observe(1.0, {"a/0": _by_our_clock(20, 1.0), "a/0.1": _by_our_clock(5, 1.0)})
    meter.observe(2.0, {"a/0": _by_our_clock(30, 2.0), "a/0.1": _by_our_clock(15, 2.0)})
    assert meter.per_s(0.0) == pytest.approx(10 + 10)
    meter.observe(3.0, {"a/0.1": _by_our_clock(40, 3.0)})  # the other's lane was deleted
    assert meter.total == 70
    assert meter.per_s(2.0) == pytest.approx(25)


def test_a_sender_that_was_away_brings_no_more_load_than_there_is() -> None:
    """50 a second come into the pipeline; the sender is away for a minute, then brings 10 s of them a second."""
    meter = LoadMeter()
    for at_s in range(0, 10):
        meter.observe(at_s, {"a/0": Arrived(records=50 * at_s, came_s=at_s)})
    for number, at_s in enumerate(range(70, 76)):
        came_s = 20 + 10 * number
        meter.observe(at_s, {"a/0": Arrived(records=50 * came_s, came_s=came_s)})
    assert meter.per_s(69.0) == pytest.approx(50.0)
    assert meter.per_s(75.0) == pytest.approx(50.0), "also from one lump and the one before it"


def test_a_clock_that_goes_back_says_nothing() -> None:
    meter = LoadMeter()
    meter.observe(1.0, {"a/0": Arrived(records=10, came_s=100.0)})
    meter.observe(2.0, {"a/0": Arrived(records=20, came_s=90.0)})
    assert meter.per_s(0.0) is None


def test_too_little_is_no_load() -> None:
    meter = LoadMeter()
    assert meter.per_s(0.0) is None
    meter.observe(5.0, {"a/0": _by_our_clock(10, 5.0)})
    assert meter.per_s(0.0) is None, "one lump says nothing about a rate"
    assert meter.per_s(6.0) is None


def _by_our_clock(records: int, at_s: float) -> Arrived:
    """From a source that nothing holds up."""
    return Arrived(records=records, came_s=at_s)


def test_no_load_is_told_from_no_news() -> None:
    """50 a second, then nothing, which the sender says until it is killed."""
    meter = LoadMeter()
    for at_s in range(1, 11):
        meter.observe(at_s, {"a/0": Arrived(records=50 * at_s, came_s=at_s)})
    for at_s in range(11, 31):
        meter.observe(at_s, {"a/0": Arrived(records=500, came_s=at_s)})
    assert meter.per_s(20.0) == 0
    assert meter.per_s(6.0) == pytest.approx((500 - 300) / 24), "the mean of both"
    for at_s in range(31, 41):
        meter.observe(at_s, {"a/0": Arrived(records=500, came_s=30)})
    assert meter.per_s(35.0) is None
    assert meter.total == 500


def test_a_sender_that_never_had_anything_to_bring_is_no_load() -> None:
    meter = LoadMeter()
    for at_s in range(10, 20):
        meter.observe(at_s, {"a/0": Arrived(records=0, came_s=at_s)})
    assert meter.per_s(12.0) == 0
    meter.observe(20.0, {"a/0": Arrived(records=30, came_s=20.0)})
    assert meter.per_s(18.0) == pytest.approx(30 / 2)


def test_an_empty_lane_says_nothing() -> None:
    meter = LoadMeter()
    for at_s in range(10, 20):
        meter.observe(at_s, {"a/0": Arrived(records=0, came_s=0.0)})
    assert meter.per_s(10.0) is None
