"""The fewest executors for a load, and in which words it is told what bounds it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from attached_batches import load_of

from elastream.attached.bounds import BoundKind, bound_of
from elastream.attached.load import QueryLoad, latency_of
from elastream.attached.sizing import Size, Wanted, fewest, planned

WANTED = Wanted(target_utilization=0.8, catch_up_s=60.0)


def size(
    loads: Sequence[QueryLoad], *, cores: int = 1, least: int = 1, most: int = 20, steady: bool = False
) -> Size:
    return fewest(loads, WANTED, cores=cores, least=least, most=most, steady=steady)


def test_it_is_the_smallest_that_keeps_the_latency() -> None:
    """10,000 rows a batch, two stages of 10.2 s of work each: with the driver's half second within 8 s."""
    load = load_of(rate=1000.0, tasks=(40, 40))
    found = size([load])
    assert found.executors == 3
    assert found.predicted_s["counts"] <= 8.0
    assert load.model is not None
    assert load.model.duration_s(10_000, 2) > 8.0
    assert found.late == ()


def test_executors_of_several_cores_are_fewer() -> None:
    assert size([load_of(rate=1000.0, tasks=(40, 40))], cores=4).executors == 1


def test_never_more_than_its_tasks_can_use() -> None:
    found = size([load_of(rate=5000.0, tasks=(2, 4))])
    assert found.executors == found.useful == 4
    assert found.late == ("counts",)


def test_what_waits_is_worked_off_and_left_out_where_nothing_but_the_load_counts() -> None:
    load = load_of(rate=1000.0, waiting=120_000.0, tasks=(40, 40))
    assert planned(load, WANTED).rows_per_s == pytest.approx(3000.0)
    assert size([load]).executors > 2 * size([load], steady=True).executors
    assert size([load], steady=True) == size([load_of(rate=1000.0, tasks=(40, 40))])


def test_a_load_that_grows_is_sized_for_when_executors_come() -> None:
    load = load_of(rate=1000.0, growth_per_s2=20.0)
    assert planned(load, Wanted(ahead_s=30.0)).rows_per_s == pytest.approx(1600.0)
    assert planned(load, Wanted(ahead_s=30.0), steady=True).rows_per_s == pytest.approx(1000.0)


def test_queries_that_share_executors_need_more_together_but_less_than_alone() -> None:
    loads = [load_of(name, rate=600.0, tasks=(20, 20)) for name in ("a", "b", "c")]
    alone = size(loads[:1]).executors
    together = size(loads).executors
    assert alone < together <= 3 * alone
    assert set(size(loads).predicted_s) == {"a", "b", "c"}


def test_a_batch_has_the_rows_of_its_interval_or_of_its_latency() -> None:
    assert planned(load_of(rate=100.0, latency_s=10.0, interval_s=60.0), WANTED).rows == pytest.approx(6000.0)
    assert planned(load_of(rate=100.0, latency_s=10.0, interval_s=1.0), WANTED).rows == pytest.approx(1000.0)


def test_a_limit_of_the_source_asks_for_the_rate() -> None:
    plan = planned(load_of(rate=1000.0, latency_s=10.0, limit_rows=2000.0), WANTED)
    assert (plan.rows, plan.allowed_s) == (2000.0, pytest.approx(2.0))


def test_scatter_takes_room() -> None:
    from dataclasses import replace

    load = load_of()
    assert load.model is not None
    noisy = replace(load, model=replace(load.model, scatter=0.2))
    assert planned(noisy, WANTED).usable_s < planned(load, WANTED).usable_s


def test_the_latency_is_what_was_asked_else_the_interval_else_ten_seconds() -> None:
    assert (latency_of(3.0, 60.0), latency_of(None, 60.0), latency_of(None, 0.0)) == (3.0, 60.0, 10.0)


@pytest.mark.parametrize(
    ("load", "kind", "words"),
    [
        (load_of(tasks=(2, 40), rate=5000.0), BoundKind.PARTITIONS, "minPartitions"),
        (load_of(tasks=(40, 2), rate=5000.0), BoundKind.PARTITIONS, "spark.sql.shuffle.partitions"),
        (load_of(shape=(0.5, 0.6, 0.7, 0.8, 5.0), tasks=(8,)), BoundKind.SKEW, "5.0 times the mean of 8"),
        (load_of(driver_s=9.0, rate=10.0), BoundKind.DRIVER, "the driver alone takes 9 s"),
        (load_of(tasks=(40, 4), cpu=0.1, rate=3000.0), BoundKind.SINK, "compute only 10%"),
        (load_of(limit_rows=500.0, interval_s=10.0), BoundKind.LIMIT, "maxOffsetsPerTrigger"),
    ],
    ids=lambda value: value.value if isinstance(value, BoundKind) else "",
)
def test_what_bounds_it_is_told_with_what_to_change(load: QueryLoad, kind: BoundKind, words: str) -> None:
    found = bound_of(load, planned(load, WANTED))
    assert found is not None
    assert found.kind is kind
    assert words in found.text
    assert str(found).startswith("counts: ")


def test_without_a_model_nothing_is_said() -> None:
    unknown = QueryLoad(name="new", rows_per_s=1.0, latency_s=1.0)
    assert bound_of(unknown, planned(unknown, WANTED)) is None
