"""The benchmarks at a reduced size: that they run, and that nothing grows out of proportion."""

from __future__ import annotations

import json

import pytest

from benchmarks import __main__ as command
from benchmarks import decentralized_steps, decision_time, monitoring_master, node_choice, simulated_day, wire_fuzz
from benchmarks.measure import Benchmark, Measure, Report, median_cpu_s
from benchmarks.random_pipeline import random_snapshot
from elastream.policies.catalog import create
from elastream.policies.proposal import ReasonKind

GENEROUS = 25.0  # a mistake that makes it quadratic gives a hundred; a busy machine does not


def test_ten_times_the_pipeline_takes_about_ten_times_as_long() -> None:
    growths = [
        measure for measure in decision_time.run(operators=100, repeats=2).measures if measure.unit == "times"
    ]
    assert len(growths) == 3
    for growth in growths:
        assert growth.value < GENEROUS, growth


def test_simulated_time_passes_faster_than_ours() -> None:
    duration_s = 1800.0
    managed, *_ = simulated_day.run(duration_s=duration_s, repeats=1).measures
    assert managed.value < duration_s / 100


def test_a_message_between_instances_that_scale_themselves_stays_cheap_with_more_of_them() -> None:
    *shown, growth = decentralized_steps.run(few=25, many=100, steps=10, repeats=1).measures
    assert all(measure.value > 0 for measure in shown)
    assert growth.value < GENEROUS


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
    report = Report(measures=(measure,), notes=("on this machine",))
    benchmark = Benchmark(name="quick", question="Is it?", run=lambda: report, quick=lambda: report)
    monkeypatch.setattr(command, "BENCHMARKS", (benchmark,))
    assert command.main([]) == status
    printed = capsys.readouterr().out
    assert f"at most 3: {verdict}" in printed
    assert "on this machine" in printed
    assert command.main(["quick", "--json"]) == status
    assert json.loads(capsys.readouterr().out)["quick"]["measures"][0]["holds"] == (status == 0)


def test_long_ones_run_only_when_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def benchmark(name: str, minutes: float) -> Benchmark:
        def run(how: str) -> Report:
            ran.append(f"{name}, {how}")
            return Report(measures=(Measure(what="it", value=1, unit="s"),))

        return Benchmark(
            name=name, question="?", run=lambda: run("whole"), quick=lambda: run("quick"), minutes=minutes
        )

    monkeypatch.setattr(command, "BENCHMARKS", (benchmark("short", 1), benchmark("long", 20)))
    command.main([])
    command.main(["long", "--quick"])
    assert ran == ["short, whole", "long, quick"]


def test_choosing_nodes_takes_milliseconds_and_more_nodes_not_much_longer() -> None:
    measures = node_choice.run(nodes=30, repeats=2).measures
    assert [measure.unit for measure in measures] == ["ms", "ms", "times"] * 2
    assert all(measure.value < 1_000 for measure in measures if measure.unit == "ms")


def test_a_master_loses_no_reading_of_its_agents() -> None:
    seen = monitoring_master.observe("rules", agents=10, duration_s=1.0)
    assert len(seen.master["latencies_s"]) >= 10
    # on a machine that does other things, too, one may come so late that the next has taken its place
    assert seen.taken == seen.master["readings"]
    assert seen.taken == seen.master["evaluated"]


def test_random_frames_are_all_accounted_for() -> None:
    frames, growth, _ = wire_fuzz.run(frames=2_000).measures
    assert frames.holds
    assert growth.holds
