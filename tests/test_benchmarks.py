"""The benchmarks at a reduced size: that they run, and that nothing grows out of proportion."""

from __future__ import annotations

import json

import pytest
from benchmarks import __main__ as command
from benchmarks import decision_time, node_choice, simulated_day
from benchmarks.measure import Benchmark, Measure, median_cpu_s
from benchmarks.random_pipeline import random_snapshot

from elastream.policies.catalog import create
from elastream.policies.proposal import ReasonKind

GENEROUS = 25.0  # a mistake that makes it quadratic gives a hundred; a busy machine does not


def test_ten_times_the_pipeline_takes_about_ten_times_as_long() -> None:
    growths = [measure for measure in decision_time.run(operators=100, repeats=2) if measure.unit == "times"]
    assert len(growths) == 3
    for growth in growths:
        assert growth.value < GENEROUS, growth


def test_simulated_time_passes_faster_than_ours() -> None:
    duration_s = 1800.0
    managed, *_ = simulated_day.run(duration_s=duration_s, repeats=1)
    assert managed.value < duration_s / 100


def test_a_random_pipeline_is_the_same_for_the_same_seed() -> None:
    one, again, other = (random_snapshot(operators=50, instances=2, seed=seed) for seed in (1, 1, 2))
    assert one == again
    assert one != other


def test_a_random_pipeline_is_asked_to_grow_and_its_bottlenecks_cannot() -> None:
    snapshot = random_snapshot(operators=50, instances=4, bottlenecks=3)
    assert snapshot.is_complete
    proposal = create("ds2")(snapshot)
    assert 1 <= len(proposal.names(ReasonKind.BOTTLENECK)) <= 3
    free = create("ds2")(random_snapshot(operators=50, instances=4))
    assert all(wanted > 4 for wanted in free.parallelism.values())


def test_each_repeat_is_prepared_afresh() -> None:
    made: list[int] = []

    def prepare() -> int:
        made.append(len(made))
        return made[-1]

    assert median_cpu_s(lambda number: number, prepare=prepare, repeats=3) >= 0
    assert made == [0, 1, 2]


@pytest.mark.parametrize(("value", "status", "verdict"), [(2.0, 0, "holds"), (4.0, 1, "DOES NOT HOLD")])
def test_the_command_says_whether_bounds_hold(
    value: float,
    status: int,
    verdict: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    measure = Measure(what="something", value=value, unit="times", at_most=3.0)
    benchmark = Benchmark(name="quick", question="Is it?", run=lambda: (measure,))
    monkeypatch.setattr(command, "BENCHMARKS", (benchmark,))
    assert command.main([]) == status
    assert f"at most 3: {verdict}" in capsys.readouterr().out
    assert command.main(["quick", "--json"]) == status
    assert json.loads(capsys.readouterr().out)["quick"][0]["holds"] == (status == 0)


def test_choosing_nodes_takes_milliseconds_and_more_nodes_not_much_longer() -> None:
    measures = node_choice.run(nodes=30, repeats=2)
    assert [measure.unit for measure in measures] == ["ms", "ms", "times"] * 2
    assert all(measure.value < 1_000 for measure in measures if measure.unit == "ms")
