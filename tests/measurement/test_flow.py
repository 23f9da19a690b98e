"""Equation 8: what every operator must process for the sources' rates to be sustained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from elastream.measurement import Snapshot
from elastream.measurement.batch_cost import BatchCost
from elastream.measurement.flow import (
    achieved_share,
    channel_selectivity,
    flow,
    flow_at,
    gain_to,
    is_at_its_limit,
    is_saturated,
    shares,
    slowest,
    throughput,
)
from elastream.testing import alike, chain, snapshot_of

DIAMOND = [("source", "left"), ("source", "right"), ("left", "join"), ("right", "join")]


def required(snapshot: Snapshot) -> Mapping[str, float]:
    return flow(snapshot).required_per_s


# --- everything was measured ------------------------------------------------------------------------------------


def test_along_a_chain_the_rate_is_multiplied_by_each_selectivity() -> None:
    snapshot = snapshot_of(
        edges=chain("source", "split", "filter", "sink"),
        source_rates={"source": 100.0},
        readings=[*alike("split", selectivity=20.0), *alike("filter", selectivity=0.5), *alike("sink")],
    )

    assert required(snapshot) == pytest.approx({"source": 100, "split": 100, "filter": 2_000, "sink": 1_000})
    assert flow(snapshot).inferred == frozenset()


def test_a_join_receives_the_sum_of_its_branches() -> None:
    snapshot = snapshot_of(
        edges=DIAMOND,
        source_rates={"source": 100.0},
        readings=[*alike("left", selectivity=2.0), *alike("right", selectivity=0.25), *alike("join")],
    )

    assert required(snapshot)["join"] == pytest.approx(225.0)


def test_each_edge_has_its_own_selectivity() -> None:
    snapshot = snapshot_of(
        edges=[("source", "route"), ("route", "rare"), ("route", "common")],
        source_rates={"source": 100.0},
        readings=[
            *alike("route", selectivity={"rare": 0.1, "common": 3.0}),
            *alike("rare"),
            *alike("common"),
        ],
    )

    assert required(snapshot)["rare"] == pytest.approx(10.0)
    assert required(snapshot)["common"] == pytest.approx(300.0)


def test_several_sources_add_up() -> None:
    snapshot = snapshot_of(
        edges=[("a", "join"), ("b", "join")], source_rates={"a": 30.0, "b": 12.0}, readings=alike("join")
    )

    assert required(snapshot)["join"] == pytest.approx(42.0)


def test_what_is_required_does_not_depend_on_how_much_was_observed() -> None:
    held_back = snapshot_of(
        edges=chain("source", "map", "sink"),
        source_rates={"source": 1_000.0},
        readings=[*alike("map", records_per_s=10, selectivity=3.0), *alike("sink", records_per_s=30)],
    )

    assert required(held_back)["sink"] == pytest.approx(3_000.0)


def test_a_source_with_readings_passes_on_what_it_was_seen_to_pass_on() -> None:
    snapshot = snapshot_of(
        edges=[("source", "all"), ("source", "sample")],
        source_rates={"source": 100.0},
        readings=[
            *alike("source", records_per_s=40, selectivity={"all": 1.0, "sample": 0.01}),
            *alike("all"),
            *alike("sample"),
        ],
    )

    assert required(snapshot)["all"] == pytest.approx(100.0)
    assert required(snapshot)["sample"] == pytest.approx(1.0)


def test_a_source_that_counted_nothing_yet_passes_on_all_of_its_rate() -> None:
    snapshot = snapshot_of(
        edges=chain("source", "map"),
        source_rates={"source": 100.0},
        readings=[*alike("source", records_per_s=0), *alike("map")],
    )

    assert channel_selectivity(snapshot, "source", "map") == 1.0
    assert required(snapshot)["map"] == 100.0


def test_nothing_arriving_means_nothing_required_even_of_idle_operators() -> None:
    snapshot = snapshot_of(
        edges=chain("source", "map", "sink"),
        source_rates={"source": 0.0},
        readings=[*alike("map", records_per_s=0, useful_share=0), *alike("sink", records_per_s=0, useful_share=0)],
    )

    assert required(snapshot) == {"source": 0.0, "map": 0.0, "sink": 0.0}


# --- extra load and limits --------------------------------------------------------------------------------------


def test_extra_load_is_asked_of_an_operator_and_of_those_behind_it() -> None:
    snapshot = snapshot_of(
        edges=chain("source", "map", "sink"),
        source_rates={"source": 100.0},
        readings=[*alike("map", selectivity=2.0), *alike("sink")],
    )

    flow = flow_at(snapshot, extra_per_s={"map": 10.0}).required_per_s

    assert flow == pytest.approx({"source": 100.0, "map": 110.0, "sink": 220.0})


def test_nothing_is_asked_above_a_limit_nor_behind_it() -> None:
    snapshot = snapshot_of(
        edges=chain("source", "map", "sink"),
        source_rates={"source": 100.0},
        readings=[*alike("map", selectivity=2.0), *alike("sink")],
    )

    flow = flow_at(snapshot, limit_per_s={"map": 30.0}).required_per_s

    assert flow == pytest.approx({"source": 100.0, "map": 30.0, "sink": 60.0})


# --- operators that are silent ----------------------------------------------------------------------------------


def test_behind_a_silent_operator_the_counts_of_the_next_one_stand_in() -> None:
    """The silent one received 50/s of the 100/s that it should have, so what came out of it will double."""
    snapshot = snapshot_of(
        edges=chain("source", "map", "silent", "sink"),
        source_rates={"source": 100.0},
        readings=[*alike("map", records_per_s=50), *alike("sink", records_per_s=150)],
    )

    found = flow(snapshot)

    assert found.required_per_s["silent"] == pytest.approx(100.0)
    assert found.required_per_s["sink"] == pytest.approx(300.0)
    assert found.inferred == {("silent", "sink")}


def test_what_other_producers_explain_is_not_credited_to_the_silent_one() -> None:
    snapshot = snapshot_of(
        edges=[("source", "map"), ("map", "silent"), ("map", "join"), ("silent", "join")],
        source_rates={"source": 100.0},
        readings=[*alike("map", records_per_s=100), *alike("join", records_per_s=130)],
    )

    assert required(snapshot)["join"] == pytest.approx(130.0)


def test_two_silent_operators_in_a_row_leave_only_what_was_counted() -> None:
    snapshot = snapshot_of(
        edges=chain("source", "one", "two", "sink"), source_rates={"source": 100.0}, readings=alike("sink")
    )

    assert required(snapshot)["sink"] == pytest.approx(100.0)
    assert "two" not in required(snapshot)


def test_nothing_is_made_up_where_neither_side_was_measured() -> None:
    snapshot = snapshot_of(
        edges=chain("source", "one", "two"), source_rates={"source": 100.0}, readings=alike("one", records_per_s=0)
    )

    assert set(required(snapshot)) == {"source", "one"}


def test_an_idle_operator_does_not_make_the_load_behind_it_zero() -> None:
    """It has load to come but was not seen at work, so what it will put out is not known."""
    snapshot = snapshot_of(
        edges=chain("source", "idle", "map", "sink"),
        source_rates={"source": 100.0},
        readings=[
            *alike("idle", records_per_s=0, useful_share=0),
            *alike("map", records_per_s=0, useful_share=0),
            *alike("sink", records_per_s=5),
        ],
    )

    assert required(snapshot) == {"source": 100.0, "idle": 100.0}


def test_an_operator_too_quick_for_the_clock_passes_on_what_it_counted() -> None:
    snapshot = snapshot_of(
        edges=chain("source", "quick", "sink"),
        source_rates={"source": 100.0},
        readings=[
            *alike("quick", records_per_s=50, useful_share=0, selectivity=3.0),
            *alike("sink", records_per_s=150),
        ],
    )

    assert required(snapshot)["sink"] == pytest.approx(300.0)


# --- gains ------------------------------------------------------------------------------------------------------


def test_the_gain_to_an_operator_sums_over_all_paths() -> None:
    snapshot = snapshot_of(
        edges=[*DIAMOND, ("join", "sink")],
        source_rates={"source": 100.0},
        readings=[
            *alike("left", selectivity=2.0),
            *alike("right", selectivity=3.0),
            *alike("join", selectivity=7.0),
            *alike("sink"),
        ],
    )

    gain = gain_to(snapshot, "join", lambda a, b: channel_selectivity(snapshot, a, b))

    assert gain == pytest.approx({"join": 1.0, "left": 2.0, "right": 3.0, "source": 5.0})


# --- achieved share ---------------------------------------------------------------------------------------------


def word_count(load: float, *, words_per_s: float, counts_per_s: float, window_s: float = 60.0) -> Snapshot:
    """Sentences of five words."""
    return snapshot_of(
        edges=chain("sentences", "words", "counts"),
        source_rates={"sentences": load},
        readings=[
            *alike("sentences", records_per_s=load),  # a durable channel takes in all that comes
            *alike("words", records_per_s=words_per_s, selectivity=5.0, window_s=window_s),
            *alike("counts", records_per_s=counts_per_s, window_s=window_s),
        ],
    )


@pytest.mark.parametrize(
    ("snapshot", "through"),
    [
        (word_count(350, words_per_s=350, counts_per_s=1_750), 350.0),
        (word_count(350, words_per_s=350, counts_per_s=1_000), 200.0),
        (word_count(350, words_per_s=100, counts_per_s=500), 100.0),
        (word_count(350, words_per_s=400, counts_per_s=2_500), 400.0),
        (word_count(0, words_per_s=400, counts_per_s=2_500), 400.0),
    ],
    ids=["keeps up", "the second is slow", "the first is slow", "works off a backlog", "nothing arrives any more"],
)
def test_what_gets_through_is_what_the_slowest_operator_did_in_records_of_the_source(
    snapshot: Snapshot, through: float
) -> None:
    assert throughput(snapshot) == pytest.approx({"sentences": through})


def test_each_source_goes_at_the_pace_of_what_is_behind_it() -> None:
    snapshot = snapshot_of(
        edges=[("clicks", "parse"), ("parse", "join"), ("orders", "join"), ("logs", "keep"), ("quiet", "unseen")],
        source_rates={"clicks": 100.0, "orders": 100.0, "logs": 100.0, "quiet": 100.0},
        readings=[
            *alike("parse", records_per_s=50),
            *alike("join", records_per_s=160),
            *alike("keep", records_per_s=90),
        ],
    )
    found = throughput(snapshot)
    assert found == pytest.approx({"clicks": 50.0, "orders": 80.0, "logs": 90.0}), "of the fourth nothing is known"


def test_a_handful_of_records_does_not_say_what_gets_through() -> None:
    assert throughput(word_count(1, words_per_s=1, counts_per_s=0, window_s=10)) == pytest.approx(
        {"sentences": 0.0}
    )
    assert throughput(word_count(1, words_per_s=1, counts_per_s=0, window_s=5)) == {}


def test_the_achieved_share_is_that_of_the_slowest_operator() -> None:
    snapshot = snapshot_of(
        edges=chain("source", "map", "sink"),
        source_rates={"source": 100.0},
        readings=[*alike("map", records_per_s=90), *alike("sink", records_per_s=50)],
    )

    assert achieved_share(snapshot) == pytest.approx(0.5)


def test_working_off_a_backlog_does_not_count_as_more_than_all() -> None:
    snapshot = snapshot_of(
        edges=chain("source", "map"), source_rates={"source": 100.0}, readings=alike("map", records_per_s=150)
    )

    assert achieved_share(snapshot) == 1.0


def test_a_source_may_count_only_what_it_puts_out() -> None:
    snapshot = snapshot_of(
        edges=chain("source", "map"),
        source_rates={"source": 100.0},
        readings=[*alike("map", records_per_s=80), *alike("source", records_per_s=0)],
    )
    assert achieved_share(snapshot) == 0.0  # neither in nor out

    counting = snapshot_of(
        edges=chain("source", "map"),
        source_rates={"source": 100.0},
        readings=[*alike("map", records_per_s=80), *alike("source", records_per_s=90)],
    )
    assert achieved_share(counting) == pytest.approx(0.8)


def test_a_handful_of_records_says_nothing_about_throughput() -> None:
    snapshot = snapshot_of(
        edges=chain("source", "map"), source_rates={"source": 0.1}, readings=alike("map", records_per_s=0)
    )

    assert achieved_share(snapshot) is None


COST = BatchCost(
    per_record_s=0.01,
    per_task_s=0.0,
    per_state_partition_s=0.0,
    state_partitions=0,
    driver_s=0.6,
    balance=0.9,
    longest_batch_s=3.0,
)


def between_two_batches(*, overdue: float, longest_batch_s: float) -> Snapshot:
    """A window of 10 s without a batch of `seldom`, for which all that came waits."""
    waiting = [
        replace(one, overdue=overdue) for one in alike("seldom", records_per_s=0, backlog=1_000, window_s=10)
    ]
    snapshot = snapshot_of(edges=chain("source", "seldom"), source_rates={"source": 100.0}, readings=waiting)
    return replace(snapshot, batch_costs={"seldom": replace(COST, longest_batch_s=longest_batch_s)})


def test_of_an_operator_whose_trigger_is_longer_than_the_window_only_what_is_overdue_is_missing() -> None:
    assert achieved_share(between_two_batches(overdue=0, longest_batch_s=60.0)) == 1.0
    assert achieved_share(between_two_batches(overdue=500, longest_batch_s=60.0)) == pytest.approx(0.5)
    assert achieved_share(between_two_batches(overdue=0, longest_batch_s=3.0)) == 0.0, "it should have had some"


def test_an_operator_that_fails_says_nothing_of_the_plan() -> None:
    snapshot = word_count(350, words_per_s=175, counts_per_s=0)
    assert slowest(snapshot) == ("counts", 0.0)
    failing = replace(snapshot, failing={"counts": "it is out of order"})
    assert slowest(failing) is None
    assert shares(failing, {"words": 350.0, "counts": 1_750.0}) == pytest.approx({"words": 0.5})


# --- saturation -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("useful_share", "backlog", "wait_out_share", "saturated"),
    [
        (1.0, 1e6, None, True),
        (1.0, 1e6, 0.0, True),
        (0.5, 1e6, None, False),  # it had time left
        (1.0, 0.0, None, False),  # nothing waited for it
        (1.0, None, None, False),  # not known whether anything waited
        (1.0, 1e6, 0.5, False),  # it was held back itself
    ],
)
def test_saturated_is_busy_with_records_waiting_and_nothing_holding_it_back(
    useful_share: float, backlog: float | None, wait_out_share: float | None, saturated: bool
) -> None:
    readings = alike("map", useful_share=useful_share, backlog=backlog, wait_out_share=wait_out_share)
    snapshot = snapshot_of(edges=chain("source", "map"), source_rates={"source": 100.0}, readings=readings)

    assert is_saturated(snapshot, "map") is saturated


def test_an_operator_that_holds_back_the_one_before_it_is_saturated() -> None:
    snapshot = snapshot_of(
        edges=chain("source", "map", "sink"),
        source_rates={"source": 100.0},
        readings=[*alike("map", useful_share=0.2, wait_out_share=0.8), *alike("sink")],
    )

    assert is_saturated(snapshot, "sink")
    assert not is_saturated(snapshot, "map")


@pytest.mark.parametrize(
    ("useful_share", "backlog", "wait_out_share", "at_its_limit"),
    [
        (0.65, 1e6, None, True),  # of at most 0.72
        (0.60, 1e6, None, False),  # its batches could still grow
        (0.65, 250.0, None, False),  # no more than a batch of 3 s at 100/s waits
        (0.65, 1e6, 0.5, False),
    ],
)
def test_in_micro_batches_the_limit_is_what_the_driver_and_the_balance_leave(
    useful_share: float, backlog: float, wait_out_share: float | None, at_its_limit: bool
) -> None:
    """A batch of 3 s: 0.6 s of it are the driver's, and tasks are busy for 0.9 of the rest."""
    readings = alike("map", useful_share=useful_share, backlog=backlog, wait_out_share=wait_out_share)
    snapshot = snapshot_of(edges=chain("source", "map"), source_rates={"source": 100.0}, readings=readings)

    assert is_at_its_limit(replace(snapshot, batch_costs={"map": COST}), "map") is at_its_limit
    assert not is_at_its_limit(snapshot, "map")
