"""The events of Nexmark: by their numbers alone, in the proportions and with the hot keys of the benchmark."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastream.errors import InvalidInput
from elastream.workloads.nexmark import AUCTIONS, BIDS, OF, PERSONS, SCHEMAS, Nexmark, evenly, place_after

DUE = evenly(events_per_s=10_000, begin_ms=1_700_000_000_000)
PLAIN = Nexmark(seed=3)


def column(table: pa.Table, name: str) -> np.ndarray:
    found = table.column(name)
    kind = found.type
    return (found.cast(pa.int64()) if pa.types.is_timestamp(kind) else found).to_numpy()


@given(
    st.sampled_from(list(SCHEMAS)),
    st.integers(1, 700),
    st.lists(st.integers(0, 3_000), min_size=2, max_size=4).map(sorted),
)
def test_any_range_of_events_can_be_made_by_itself(stream: str, group: int, edges: list[int]) -> None:
    nexmark = Nexmark(seed=1, group=group, delayed=0.1)
    whole = nexmark.table(stream, edges[0], edges[-1], DUE)
    parts = [nexmark.table(stream, first, last, DUE) for first, last in pairwise(edges)]
    assert pa.concat_tables(parts).equals(whole)


@given(st.sampled_from(list(SCHEMAS)), st.integers(1, 700), st.integers(0, 5_000))
def test_a_stream_goes_on_where_it_stopped(stream: str, group: int, records: int) -> None:
    nexmark = Nexmark(group=group)
    place = place_after(nexmark, stream, records)
    assert nexmark.before(stream, place) == len(nexmark.numbers(stream, 0, place)) == records


def test_of_50_events_one_is_a_person_three_are_auctions_and_46_bids() -> None:
    counts = {stream: len(Nexmark(group=300).table(stream, 0, 600, DUE)) for stream in SCHEMAS}
    assert counts == {PERSONS: 12, AUCTIONS: 36, BIDS: 552}


def test_columns_are_those_of_the_schemas() -> None:
    for stream, schema in SCHEMAS.items():
        names = [field.split()[0] for field in schema.split(", ")]
        assert PLAIN.table(stream, 0, OF, DUE).column_names == names


def test_the_seed_decides() -> None:
    tables = [Nexmark(seed=seed).table(BIDS, 0, 500, DUE) for seed in (1, 1, 2)]
    assert tables[0].equals(tables[1])
    assert not tables[0].equals(tables[2])


def test_persons_and_auctions_are_numbered_from_1000() -> None:
    for stream, count in ((PERSONS, 20), (AUCTIONS, 60)):
        table = Nexmark(group=7).table(stream, 0, 1_001 // 7 * 7, DUE)
        assert sorted(column(table, "id").tolist()) == list(range(1000, 1000 + len(table)))
        assert len(table) == pytest.approx(count, abs=1)


@pytest.mark.parametrize(("ratio", "share"), [(2.0, 0.5), (20.0, 0.95), (1.0, 0.0)])
def test_the_hot_auction_has_its_share_of_the_bids(ratio: float, share: float) -> None:
    """100 auctions come with 1,667 events: the first of the newest hundred is the hot one meanwhile."""
    bids = Nexmark(hot_auctions=ratio).table(BIDS, 500_000, 700_000, DUE)
    hot = column(bids, "auction") % 100 == 0
    assert hot.mean() == pytest.approx(share + (1 - share) / 100, abs=0.01)


def test_most_are_sold_by_the_first_of_a_hundred_and_bid_for_by_the_second() -> None:
    auctions, bids = (Nexmark().table(stream, 500_000, 700_000, DUE) for stream in (AUCTIONS, BIDS))
    assert (column(auctions, "seller") % 100 == 0).mean() == pytest.approx(0.75, abs=0.02)
    assert (column(bids, "bidder") % 100 == 1).mean() == pytest.approx(0.75, abs=0.01)


def test_others_are_of_the_last_thousand_persons_and_hundred_auctions() -> None:
    nexmark = Nexmark(hot_auctions=1, hot_bidders=1, hot_sellers=1)
    numbers = nexmark.numbers(BIDS, 500_000, 600_000)
    bids = nexmark.table(BIDS, 500_000, 600_000, DUE)
    persons = column(bids, "bidder") - 1000 - numbers // OF
    auctions = column(bids, "auction") - 1000 - (numbers // OF * 3 + 2)
    assert (persons.min(), persons.max()) == (-999, 10)
    assert (auctions.min(), auctions.max()) == (-100, 10)


def test_prices_are_as_often_of_each_power_of_ten() -> None:
    prices = column(PLAIN.table(BIDS, 0, 100_000, DUE), "price")
    powers = Counter(np.floor(np.log10(prices)).astype(int).tolist())
    assert all(powers[power] / len(prices) == pytest.approx(1 / 6, abs=0.01) for power in range(2, 8))
    auctions = PLAIN.table(AUCTIONS, 0, 100_000, DUE)
    assert (column(auctions, "reserve") > column(auctions, "initial_bid")).all()
    assert set(column(auctions, "category").tolist()) == {10, 11, 12, 13, 14}


def test_an_auction_lasts_for_up_to_twice_as_long_as_a_hundred_take() -> None:
    auctions = PLAIN.table(AUCTIONS, 0, 100_000, DUE)
    lasts_ms = (column(auctions, "expires") - column(auctions, "at")) / 1000
    assert lasts_ms.min() >= 1
    assert 320 < lasts_ms.max() <= 1 + 2 * 166.7


def test_events_come_out_of_order_within_groups_only() -> None:
    at_ms = column(Nexmark(group=500).table(BIDS, 0, 20_000, DUE), "at") / 1000
    behind_ms = np.maximum.accumulate(at_ms) - at_ms
    assert 40 < behind_ms.max() < 50  # 500 events are 50 ms
    assert sorted(at_ms) == sorted(column(Nexmark().table(BIDS, 0, 20_000, DUE), "at") / 1000)


def test_a_share_of_the_events_is_late_by_up_to_the_delay() -> None:
    late = Nexmark(delayed=0.1, delay_s=3).table(BIDS, 0, 50_000, DUE)
    by_ms = (column(PLAIN.table(BIDS, 0, 50_000, DUE), "at") - column(late, "at")) / 1000
    assert (by_ms > 0).mean() == pytest.approx(0.1, abs=0.01)
    assert 2_900 < by_ms.max() < 3_000


@pytest.mark.parametrize(
    ("options", "found"),
    [({"group": 953}, "group"), ({"hot_sellers": 0.5}, "hot_sellers"), ({"delayed": 2}, "share")],
)
def test_what_cannot_be_is_refused(options: dict[str, float], found: str) -> None:
    with pytest.raises(InvalidInput, match=found):
        Nexmark(**options)
