from __future__ import annotations

from dataclasses import replace

import pytest

from elastream.dataflow import Operator
from elastream.errors import InvalidInput
from elastream.measurement import Snapshot
from elastream.policies.proposal import ReasonKind
from elastream.policies.threshold import Threshold
from elastream.testing import alike, chain, snapshot_of


def one(
    useful_share: float, *, instances: int = 4, cpu: float | None = None, operator: Operator | None = None
) -> Snapshot:
    return snapshot_of(
        edges=chain("source", "map"),
        source_rates={"source": 1_000},
        readings=alike("map", instances=instances, useful_share=useful_share, cpu_utilization=cpu),
        operators=[operator] if operator else [],
    )


@pytest.mark.parametrize(
    ("useful_share", "wanted"),
    [(0.95, 5), (0.9, 4), (0.7, 4), (0.5, 4), (0.4, 3), (0.0, 3)],
)
def test_one_instance_up_or_down_outside_of_the_thresholds(useful_share: float, wanted: int) -> None:
    assert Threshold()(one(useful_share)).parallelism == {"map": wanted}


def test_cpu_counts_before_useful_time() -> None:
    proposal = Threshold()(one(0.2, cpu=0.95))
    assert proposal.parallelism == {"map": 5}
    assert str(proposal.advice["map"].reasons[-1]) == "CPU utilization 95 % is above 90 %: one more"


def test_cpu_is_the_mean_of_those_that_report_it() -> None:
    snapshot = one(0.2, instances=3)
    busy, busier, silent = snapshot.readings
    readings = (replace(busy, cpu_utilization=0.85), replace(busier, cpu_utilization=0.97), silent)
    # (0.85 + 0.97) / 2 = 0.91
    assert Threshold()(replace(snapshot, readings=readings)).parallelism == {"map": 4}


def test_the_least_is_never_undercut() -> None:
    advice = Threshold()(one(0.1, instances=1)).advice["map"]
    assert advice.parallelism == 1
    assert str(advice.reasons[-1]) == "0 wanted, but it has at least 1 (min_parallelism)"


def test_a_fixed_operator_stays_and_says_so() -> None:
    advice = Threshold()(one(0.95, operator=Operator(name="map", fixed=True))).advice["map"]
    assert advice.parallelism == 4
    assert advice.names(ReasonKind.CLAMPED)


def test_no_readings_no_opinion() -> None:
    snapshot = snapshot_of(edges=chain("source", "map"), source_rates={"source": 1})
    proposal = Threshold()(snapshot)
    assert proposal.parallelism == {}
    assert proposal.names(ReasonKind.NO_DATA) == ("map",)


def pipeline(**useful_shares: float) -> Snapshot:
    return snapshot_of(
        edges=chain("source", *useful_shares),
        source_rates={"source": 1_000},
        readings=[
            reading
            for name, share in useful_shares.items()
            for reading in alike(name, instances=4, useful_share=share)
        ],
        operators=[Operator(name="full", max_parallelism=4)],
    )


def test_all_at_once_or_only_the_most_urgent() -> None:
    snapshot = pipeline(idle=0.1, busy=0.92, busier=0.95, full=1.0)
    assert Threshold()(snapshot).parallelism == {"idle": 3, "busy": 5, "busier": 5, "full": 4}
    proposal = Threshold(all_at_once=False)(snapshot)
    # `full` is the busiest, but has all that it may have
    assert proposal.parallelism == {"idle": 4, "busy": 4, "busier": 5, "full": 4}
    assert proposal.names(ReasonKind.HELD) == ("idle", "busy")


def test_one_at_a_time_shrinks_the_idlest_when_nothing_grows() -> None:
    proposal = Threshold(all_at_once=False)(pipeline(idle=0.1, idler=0.05, full=0.6))
    assert proposal.parallelism == {"idle": 4, "idler": 3, "full": 4}


@pytest.mark.parametrize(("upper", "lower"), [(0.5, 0.5), (0.4, 0.6)])
def test_the_thresholds_must_be_in_order(upper: float, lower: float) -> None:
    with pytest.raises(InvalidInput, match=r"upper \(0\.[45]\) must be above lower \(0\.[56]\)"):
        Threshold(upper=upper, lower=lower)
