"""The experiments of the SEEP thesis on Spark, without one: what they look for is found, and nothing else.

They take minutes each and are run by their names; the query itself is tested in tests/spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from elastream.dataflow import Dataflow, Operator, Plan
from elastream.manager.decision import Decision
from elastream.manager.events import Decided
from elastream.measurement import Reading, Snapshot
from elastream.policies.rules.files import read_rules
from examples.paper_workloads.google_query import CLUSTER
from examples.paper_workloads.google_trace import EXTRACT
from experiments import frame, seep_google_trace, seep_spark, seep_static
from experiments.on_spark import SparkRun, Task, cpu_by_instance
from experiments.seep_cases import FIRST, OPERATOR, PERIOD_S, SECOND, TROUGH_S, followed
from experiments.seep_spark import Found
from experiments.seep_static import SIZES, THESIS_MEDIANS_PER_S, Timed
from experiments.workloads.google_with_pandas import expected_results

NAMES = (OPERATOR, FIRST, SECOND)
GRAPH = Dataflow.of(
    (Operator(name="source", source=True), *(Operator(name=name) for name in NAMES)),
    [("source", name) for name in NAMES],
)


def snapshot(at_s: float, size: int, queue: float) -> Snapshot:
    its = [
        Reading(
            operator=name,
            instance=index,
            window_s=5,
            useful_s=5,
            records_in=25,
            records_out=25,
            overdue=queue / size,
        )
        for name in NAMES
        for index in range(size)
    ]
    return Snapshot(
        dataflow=GRAPH,
        plan=Plan(dict.fromkeys(NAMES, size)),
        source_rates={"source": 10},
        readings=tuple(its),
        at_s=at_s,
    )


def found(queue: Sequence[tuple[float, float]], *changes: tuple[float, int, int]) -> Found:
    return found_of(OPERATOR, queue, *changes)


def found_of(name: str, queue: Sequence[tuple[float, float]], *changes: tuple[float, int, int]) -> Found:
    """A run that began at second 1,000, with these readings of all operators and actions of one."""
    sizes = [(0.0, 1), *((at_s, after) for at_s, _, after in changes)]
    snapshots = [
        snapshot(1000 + at_s, next(size for since_s, size in reversed(sizes) if since_s <= at_s), length)
        for at_s, length in queue
    ]
    decisions = [
        Decided(
            at_s=1000 + at_s,
            decision=Decision(number=1, at_s=1000 + at_s, before=Plan({name: before}), after=Plan({name: after})),
        )
        for at_s, before, after in changes
    ]
    run = SparkRun(operator=name, snapshots=tuple(snapshots), events=tuple(decisions), began_s=1000)
    return Found(run=run, written=2000, kept=2000)


def grows_until(acts_s: float, *, then_per_s: float, ends_s: float = 200) -> list[tuple[float, float]]:
    """Five records a second more, looked at every 5 s, and after the action another slope."""
    times_s = [5.0 * number for number in range(int(ends_s / 5) + 1)]
    return [(t, max(0.0, 5 * min(t, acts_s) + then_per_s * max(0.0, t - acts_s))) for t in times_s]


def holds(checks: Sequence[frame.Check]) -> list[bool]:
    return [check.holds for check in checks]


def test_the_shape_of_one_more_instance_is_known() -> None:
    as_it_should = found(grows_until(95, then_per_s=0), (95, 1, 2))
    assert holds(list(seep_spark._one_more(as_it_should))) == [True, True, True]
    still_grows = found(grows_until(95, then_per_s=2), (95, 1, 2))
    assert holds(list(seep_spark._one_more(still_grows))) == [True, True, False]
    too_early = found(grows_until(70, then_per_s=0), (70, 1, 2))
    assert holds(list(seep_spark._one_more(too_early))) == [True, False, True]
    nothing_happens = found([(5.0 * number, 0.0) for number in range(40)])
    assert holds(list(seep_spark._one_more(nothing_happens))) == [False, False, False]


def test_the_shape_of_two_more_instances_is_known() -> None:
    drains = found(grows_until(95, then_per_s=-5, ends_s=240), (95, 1, 3))
    assert holds(list(seep_spark._two_more(drains))) == [True, True]
    level = found(grows_until(95, then_per_s=0, ends_s=240), (95, 1, 3))
    assert holds(list(seep_spark._two_more(level))) == [True, False]


def test_of_two_operators_only_the_slow_one_may_act() -> None:
    both = found_of(SECOND, grows_until(95, then_per_s=-5, ends_s=240), (95, 1, 3))
    assert holds(list(seep_spark._two_operators(both))) == [True, True, True]
    wrong = found_of(FIRST, grows_until(95, then_per_s=-5, ends_s=240), (95, 1, 3))
    assert holds(list(seep_spark._two_operators(wrong)))[0] is False


def test_short_peaks_are_to_queue_up_and_to_change_nothing() -> None:
    queue = [(5.0 * number, 50.0 if number > 9 else 0.0) for number in range(60)]
    assert holds(list(seep_spark._short_peaks(found(queue)))) == [True, True]
    assert holds(list(seep_spark._short_peaks(found(queue, (100, 1, 3))))) == [True, False]
    assert holds(list(seep_spark._short_peaks(found([(5.0, 0.0)])))) == [True, False], "there were no peaks"


def test_with_a_guard_time_a_scale_in_comes_after_it() -> None:
    queue = [(5.0 * number, 0.0) for number in range(92)]
    assert holds(list(seep_spark._hysteresis(found(queue, (57, 1, 3), (385, 3, 1))))) == [True, True]
    assert holds(list(seep_spark._hysteresis(found(queue, (57, 1, 3), (85, 3, 1))))) == [False, False]
    assert holds(list(seep_spark._hysteresis(found(queue, (70, 1, 3), (385, 3, 1))))) == [False, True], "too late"
    assert holds(list(seep_spark._hysteresis(found(queue)))) == [False, False]


def test_a_peak_is_followed_out_and_in_before_the_next() -> None:
    turns = [TROUGH_S + number * PERIOD_S for number in range(3)]
    every = [change for at in turns for change in ((at + 17, 1, 3), (at + 40, 3, 1))]
    assert followed(every, 3) == 3
    assert followed(every[:-1], 3) == 2, "the last one is not scaled in"
    assert followed([(at + 30, *sizes) for at, *sizes in every], 3) == 0, "always too late"
    documented = [(67, 1, 3), (88, 3, 1), (119, 1, 3), (135, 3, 1), (182, 1, 3), (198, 3, 1)]
    assert followed(documented, 3) == 1, "the first and the last came when their peak was over"


@pytest.mark.parametrize(
    ("series", "crossed_s"),
    [([(0, 0), (5, 50), (10, 150)], 7.5), ([(0, 0), (5, 90)], None), ([], None), ([(3, 200)], 3.0)],
)
def test_when_a_value_is_crossed_lies_between_two_readings(
    series: list[tuple[float, float]], crossed_s: float | None
) -> None:
    assert seep_spark.first_above(series, 100) == crossed_s


def timed(size: int, per_s: float, *, machines_busy: float = 0.9, cluster_busy: float = 0.2) -> Timed:
    return Timed(
        size=size,
        took_s=60,
        events=round(60 * per_s),
        rates_per_s=(per_s, per_s),
        machines_busy=machines_busy,
        cluster_busy=cluster_busy,
        path="",
    )


def like_the_thesis() -> dict[int, Timed]:
    found = {size: timed(size, THESIS_MEDIANS_PER_S[size] / 1000) for size in SIZES}
    drawn = {what: {"machines": [(0.0, 1.0), (4.0, 2.0)]} for what in seep_static._DRAWN}
    found[1] = replace(found[1], series=drawn)
    found[8] = replace(found[8], cpu_by_instance={0: [(0.0, 40.0), (4.0, 50.0)]})
    return {**found, 16: replace(found[16], machines_busy=0.3, cluster_busy=0.95)}


def test_the_static_test_knows_the_shape_of_the_thesis_and_others() -> None:
    assert holds(list(seep_static._bounds(like_the_thesis()))) == [True, True, True]
    still_grows = {**like_the_thesis(), 16: timed(16, 250)}
    assert holds(list(seep_static._bounds(still_grows))) == [True, False, False]
    stuck = {**like_the_thesis(), 8: timed(8, 50)}
    assert holds(list(seep_static._bounds(stuck)))[0] is False
    assert all(check.holds for check in seep_static._checks(like_the_thesis()))


def test_the_rules_of_the_example_are_those_of_the_experiment() -> None:
    example = Path(__file__).parents[2] / "examples" / "google_trace_rules.yaml"
    assert read_rules(example) == seep_google_trace.scaling_rules()


def test_what_a_core_computed_for_an_instance_counts_up_to_its_next_batch() -> None:
    batches = [
        [Task(instance=number, began_s=at_s, cpu_s=(number + 1) / 10) for number in range(2)]
        for at_s in (4.0, 14.0, 10.0)
    ]
    alone = [Task(instance=0, began_s=11.0, cpu_s=9.0)]  # of a stage that is no batch of both
    assert cpu_by_instance([*batches, alone], 2, 5.0) == {0: [(5.0, 2.5)], 1: [(5.0, 5.0)]}
    assert cpu_by_instance([], 2, 5.0) == {}


def test_a_rate_is_averaged_over_the_minute_before() -> None:
    series = [(0.0, 3.0), (30.0, 5.0), (60.0, 7.0), (200.0, 9.0)]
    averages = [(0.0, 3.0), (30.0, 4.0), (60.0, 6.0), (200.0, 9.0)]
    assert seep_google_trace.averaged(series, 60.0) == averages


def test_plots_are_drawn(tmp_path: Path) -> None:
    one = found(grows_until(95, then_per_s=0), (95, 1, 2))
    seep_spark._plot({"5.2.2": one}, tmp_path / "a.png")
    seep_static._plot(like_the_thesis(), tmp_path / "b.png")
    seep_google_trace._plot(one.run, expected_results(EXTRACT, 2700), tmp_path / "c.png")
    assert all((tmp_path / f"{name}.png").stat().st_size > 1000 for name in "abc")


def test_they_are_not_among_those_that_are_run_together() -> None:
    assert not {"seep-spark", "seep-spark-peaks", "seep-static", "seep-google-trace"} & set(frame.short_ones())
    assert "seep-simulated" in frame.short_ones()


def test_the_check_of_the_results_sees_one_that_is_off() -> None:
    run = found([(0.0, 0.0), (5.0, 0.0)], (5, 1, 2)).run
    expected = expected_results(EXTRACT, 2700)
    snapshots = tuple(
        replace(one, dataflow=_with_cluster(), plan=Plan({**one.plan, CLUSTER: 1})) for one in run.snapshots
    )
    run = replace(run, snapshots=snapshots)
    checks = list(seep_google_trace._checks(run, expected, expected))
    assert holds(checks) == [True, True, False, True, True], "it was never scaled in"
    assert "0 differ" in checks[0].ours
    off = expected.assign(disk=expected["disk"] * 1.01)
    for wrong in (off, expected.iloc[:0]):
        assert not next(seep_google_trace._checks(run, wrong, expected)).holds


def _with_cluster() -> Dataflow:
    edges = [*(("source", name) for name in NAMES), (OPERATOR, CLUSTER)]
    return Dataflow.of((*GRAPH.operators, Operator(name=CLUSTER, fixed=True)), edges)


@pytest.mark.parametrize("size", SIZES)
def test_there_is_a_rule_for_every_size_but_one(size: int) -> None:
    found = seep_static.scaling_rule(size).rules
    assert [rule.target(1, original=1) for rule in found] == ([] if size == 1 else [size])
