"""Amadeus' Elastic-Scaling: the smoothed share of the interval that batches take, and what follows from it."""

from __future__ import annotations

import pytest

from elastream.dataflow import Dataflow, Operator, Plan
from elastream.errors import InvalidInput
from elastream.measurement import Snapshot
from elastream.measurement.whole_job import EndedBatch, WholeJob
from elastream.policies.catalog import create
from elastream.policies.elastic_scaling import ElasticScaling
from elastream.policies.knowledge import NOTHING_KNOWN
from elastream.policies.proposal import Proposal

POLICY = ElasticScaling()


def window(*took_s: float, interval_s: float = 10.0, executors: int = 4) -> Snapshot:
    return Snapshot(
        dataflow=Dataflow.of(
            [Operator(name="job", source=True), Operator(name="executors")], [("job", "executors")]
        ),
        plan=Plan({"executors": executors}),
        source_rates={"job": 1.0},
        readings=(),
        job=WholeJob(batches=tuple(EndedBatch(query="job", took_s=s, interval_s=interval_s) for s in took_s)),
    )


def asked(*windows: Snapshot) -> Proposal:
    knowledge = NOTHING_KNOWN
    for one in windows:
        knowledge = POLICY.remember(one, knowledge)
    return POLICY(windows[-1], knowledge)


@pytest.mark.parametrize(
    ("took_s", "executors", "wanted"),
    [
        # both sums begin at 1: (0.6 + r) / 1.6
        ((10.0,), 4, 4),  # 1.0
        ((11.0,), 4, 5),  # 1.0625: 4.25
        ((6.1,), 4, 4),  # 0.756
        ((5.0,), 4, 3),  # 0.6875: 2.75
        ((20.0,), 4, 7),  # 1.625: 6.5
        ((60.0,), 4, 10),  # 4.125: 16.5, at most 10
        ((0.1,), 1, 1),  # 0.38: never less than 1
        ((20.0, 2.0), 4, 4),  # (0.6 · 2.6 + 0.2) / (0.6 · 1.6 + 1) = 1.76 / 1.96 = 0.898
        ((2.0, 2.0, 2.0), 4, 2),  # (0.8, 1.6), (0.68, 1.96), (0.608, 2.176): 0.279, so 1.12
    ],
)
def test_executors_follow_the_smoothed_share(took_s: tuple[float, ...], executors: int, wanted: int) -> None:
    assert asked(window(*took_s, executors=executors)).parallelism == {"executors": wanted}


def test_every_batch_counts_in_whichever_window_it_ended() -> None:
    assert asked(window(20.0), window(2.0)) == asked(window(20.0, 2.0))


def test_of_a_single_executor_the_share_decides_alone() -> None:
    # ceil(1 · 0.5) is 1: nothing to give back
    assert asked(window(2.0, 2.0, executors=1)).parallelism == {"executors": 1}


def test_without_a_trigger_interval_there_is_no_share() -> None:
    proposal = asked(window(5.0, interval_s=0.0))
    assert proposal.parallelism == {}
    assert "no batch of a query with a trigger interval" in str(proposal.reasons[0])


@pytest.mark.parametrize("options", [{"threshold_low": 1.1}, {"min_executors": 11}])
def test_bounds_that_cross_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match="must be at most"):
        create("elastic-scaling", options)
