"""The catalog, and what holds for every policy in it."""

from __future__ import annotations

import pytest

from elastream.errors import InvalidInput
from elastream.options import describe
from elastream.policies.catalog import catalog, create, info
from elastream.policies.proposal import ReasonKind
from elastream.testing import alike, chain, snapshot_of


def test_every_policy_is_found_with_its_description() -> None:
    assert {"dhalion", "lag", "threshold"} <= set(catalog())
    assert list(catalog()) == sorted(catalog())
    for name, entry in catalog().items():
        assert entry.name == name
        assert all((entry.summary, entry.needs, entry.good_for))
        assert all(option.meaning for option in describe(entry.options_class))


def test_dhalion_comes_with_the_knobs_of_heron() -> None:
    its_own = {"interval_s": 60, "warm_up_intervals": 2, "activation_intervals": 1, "scale_down_delay_s": 0}
    assert info("dhalion").knobs == its_own


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("dhallion", {}, r"unknown policy 'dhallion' \(did you mean 'dhalion'\?\)"),
        ("threshold", {"uper": 0.8}, r"policy threshold: unknown option 'uper' \(did you mean 'upper'\?\)"),
        ("threshold", {"upper": float("nan")}, "policy threshold: upper must be a number, found NaN"),
        ("threshold", {"upper": 1.5}, "policy threshold: upper must be from 0 to 1, found 1.5"),
        ("threshold", {"lower": 0.95}, r"policy threshold: upper \(0.9\) must be above lower \(0.95\)"),
        ("lag", {"lag_per_instance": 0}, "policy lag: lag_per_instance must be at least 1, found 0"),
        ("lag", {"lag_per_instance": "many"}, "policy lag: lag_per_instance: .* found 'many'"),
        ("dhalion", {"noise_floor": -0.1}, "policy dhalion: noise_floor must be from 0 to 1, found -0.1"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        create(name, options)


def test_numbers_may_come_as_text() -> None:
    assert create("lag", {"lag_per_instance": "2e3"}) == create("lag", {"lag_per_instance": 2_000})


@pytest.mark.parametrize("name", ["dhalion", "lag", "threshold"])
def test_every_operator_gets_advice_and_what_was_measured(name: str) -> None:
    snapshot = snapshot_of(
        edges=chain("source", "map", "silent", "sink"),
        source_rates={"source": 1_000},
        readings=[
            *alike("source", wait_out_share=0.1),
            *alike("map", instances=2, useful_share=0.5, backlog=30_000, wait_out_share=0.0),
            *alike("sink", backlog=0),
        ],
        parallelism={"silent": 3},
    )
    proposal = create(name)(snapshot)
    assert proposal.policy == name
    assert list(proposal.advice) == ["map", "silent", "sink"]
    assert proposal.advice["silent"].parallelism is None
    assert "silent" in proposal.names(ReasonKind.NO_DATA)
    measured = proposal.advice["map"]
    assert (measured.current, measured.observed_per_s, measured.true_per_s) == (2, 200.0, 400.0)
    assert (measured.true_per_instance_per_s, measured.utilization, measured.backlog) == (200.0, 0.5, 60_000.0)
    assert measured.names(ReasonKind.MEASURED)
