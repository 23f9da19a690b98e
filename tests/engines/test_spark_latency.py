"""How long a batch may take for the latency that is asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastream import InvalidInput, Pipeline
from elastream.engines.spark.kind import Spark
from elastream.engines.spark.latency import latency_kept_s, longest_batch_s, of_step_s, out_of_reach
from elastream.measurement.batch_cost import BatchCost
from elastream.policies.catalog import create, keeping
from elastream.policies.ds2 import DS2

COST = BatchCost(
    per_record_s=0.001,
    per_task_s=0.1,
    per_state_partition_s=0.0,
    state_partitions=0,
    driver_s=0.2,
    balance=1.0,
    longest_batch_s=3.0,
)


def diamond(**options: object) -> Pipeline:
    """A source, two ways of different length, and a sink."""
    pipeline = Pipeline("diamond", **options)  # type: ignore[arg-type]
    pipeline.source(lambda_named("source"))
    for name, reads in (("short", "source"), ("long", "source"), ("longer", "long")):
        pipeline.operator(reads=reads)(lambda_named(name))
    pipeline.operator(reads=["short", "longer"])(lambda_named("join"))
    return pipeline


def lambda_named(name: str):  # type: ignore[no-untyped-def]
    def function(*frames: object) -> object:
        return frames[0]

    function.__name__ = name
    return function


def test_the_longest_path_counts_and_a_feed_does_not() -> None:
    assert latency_kept_s(diamond(), 1.0) == 2 * 4
    fed = Pipeline("fed")
    fed.feed("lines", schema="line string")
    fed.operator(reads="lines")(lambda_named("words"))
    assert latency_kept_s(fed, 1.0) == 2


def test_each_step_has_its_part_of_the_latency_twice() -> None:
    assert longest_batch_s(diamond(), 8.0) == pytest.approx(1.0)


def with_trigger(trigger: str) -> Pipeline:
    pipeline = Pipeline("triggered")
    pipeline.source(lambda_named("source"))
    pipeline.operator(reads="source", trigger=trigger)(lambda_named("slow"))
    pipeline.operator(reads="slow")(lambda_named("last"))
    return pipeline


def test_a_longer_trigger_takes_its_part_and_the_others_share_the_rest() -> None:
    pipeline = with_trigger("4 s")
    assert longest_batch_s(pipeline, 12.0) == pytest.approx((12 - 2 * 4) / 2 / 2)
    assert of_step_s(pipeline["slow"], 1.0) == 4.0
    assert of_step_s(pipeline["last"], 1.0) == 1.0
    assert longest_batch_s(with_trigger("100 ms"), 12.0) == pytest.approx(2.0), "a shorter one takes nothing"


def test_triggers_that_a_latency_does_not_allow_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"latency of 6 s cannot be kept .* a record may wait for 8 s"):
        longest_batch_s(with_trigger("4 s"), 6.0)


def test_a_batch_that_may_take_as_long_as_its_trigger_is_not_out_of_reach() -> None:
    costs = {"slow": replace(COST, longest_batch_s=4.0), "last": replace(COST, longest_batch_s=1.0)}
    assert out_of_reach(with_trigger("4 s"), 12.0, costs) == ()
    (told,) = out_of_reach(with_trigger("4 s"), 12.0, {**costs, "last": replace(COST, longest_batch_s=2.0)})
    assert told.endswith("16 s can be kept")


def test_a_longer_latency_needs_no_more_instances() -> None:
    needs = [replace(COST, longest_batch_s=longest_batch_s(diamond(), s)).needed(5_000) for s in (5, 20, 60)]
    assert needs == sorted(needs, reverse=True)
    assert needs[0] > needs[-1]


def test_what_no_plan_can_keep_is_told_with_the_best_that_can() -> None:
    asked = longest_batch_s(diamond(), 2.0)
    cost = replace(COST, longest_batch_s=asked).with_room()
    assert cost.needed(1_000) < 10, "as many instances as the least batch needs, and not infinitely many"
    (told,) = out_of_reach(diamond(), 2.0, {"join": cost})
    assert told.startswith("a latency of 2 s cannot be kept: a batch of join takes 0.3 s before its first record")
    assert told.endswith("4.8 s can be kept")
    assert out_of_reach(diamond(), 20.0, {"join": replace(COST, longest_batch_s=2.5).with_room()}) == ()


@pytest.mark.parametrize("written", [0, -1, "soon", float("nan"), float("inf")])
def test_a_latency_that_is_none_is_refused(written: object) -> None:
    with pytest.raises(InvalidInput, match="pipeline 'diamond': latency"):
        diamond(latency=written)


def test_the_command_counts_before_the_file_and_a_longest_batch_before_both() -> None:
    pipeline = diamond(latency="10 s")
    assert Spark().read(pipeline).latency_s == 10.0
    assert Spark(latency_s=5.0).read(pipeline).latency_s == 5.0
    assert Spark(longest_batch_s=2.0).read(pipeline).latency_s is None
    with pytest.raises(InvalidInput, match="--latency and --longest-batch"):
        Spark(latency_s=5.0, longest_batch_s=2.0)


def test_a_backlog_is_gone_as_soon_as_the_latency_asks_for() -> None:
    assert keeping(DS2(), 10.0) == DS2(catch_up_s=10.0)
    assert keeping(DS2(), None) == DS2()
    assert keeping(create("ds2-paper"), 10.0) == create("ds2-paper")
    assert keeping(create("threshold"), 10.0) == create("threshold")
