"""The short form: one seed, three hours, one window; and what the one on Spark says of runs, without any."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from elastream.dataflow import Dataflow, Operator, Plan
from elastream.measurement import Reading, Snapshot
from experiments import frame
from experiments.calm import calm, needs_of
from experiments.calm_spark import Kept, latency_checks, skew_checks
from experiments.on_spark import SparkRun
from experiments.workloads.uneven_keys import HOT, HOT_SHARE, UNEVEN_RECORDS, key_of


def test_it_is_calm_by_default() -> None:
    report = calm(lambda what, share: None, seeds=1, hours=2.5, windows=[(60.0, 1, 30.0), (31.0, 4, 30.0)])
    late = [check for check in report.checks if "short" not in check.what and "too few" not in check.what]
    assert [check for check in late if not check.holds] == []
    assert len(report.data["days"]) == 3


def test_it_is_in_the_list() -> None:
    assert frame.find("calm").minutes > 0


def test_needs_are_drawn_from_the_seed() -> None:
    assert needs_of(1) == needs_of(1) != needs_of(2)


# --- on Spark ---------------------------------------------------------------------------------------------------

GRAPH = Dataflow.of((Operator(name="records", source=True), Operator(name="counts")), [("records", "counts")])
OF_A_WINDOW = UNEVEN_RECORDS // 4


def window(number: int, size: int, *, backlog: float = 0.0, latency_s: float = 1.0) -> Snapshot:
    reading = Reading(
        operator="counts",
        instances=size,
        window_s=10,
        useful_s=5,
        records_in=OF_A_WINDOW,
        records_out=0,
        backlog=backlog,
        overdue=backlog,
        latency_s=latency_s,
    )
    plan, rates = Plan({"counts": size}), {"records": OF_A_WINDOW / 10}
    return Snapshot(dataflow=GRAPH, plan=plan, source_rates=rates, readings=(reading,), at_s=10.0 * (number + 1))


def run_of(windows: Sequence[Snapshot]) -> SparkRun:
    return SparkRun(operator="counts", snapshots=tuple(windows), events=(), began_s=0.0)


def held(checks: Sequence[frame.Check]) -> list[bool]:
    return [check.holds for check in checks]


def test_so_many_records_have_the_hot_key_until_none_has() -> None:
    hot = [key_of(number) == HOT for number in range(UNEVEN_RECORDS)]
    assert sum(hot) == pytest.approx(HOT_SHARE * UNEVEN_RECORDS)
    assert HOT not in {key_of(number) for number in range(UNEVEN_RECORDS, UNEVEN_RECORDS + 5_000)}


@pytest.mark.parametrize(
    ("sizes", "stops", "follows"),
    [((1, 5, 5, 5, 12), True, True), ((1, 5, 8, 12, 12), False, False), ((1, 5, 5, 5, 5), True, False)],
)
def test_growing_with_a_hot_key_and_not_after_it_are_seen(
    sizes: Sequence[int], stops: bool, follows: bool
) -> None:
    found = held(list(skew_checks(run_of([window(i, size) for i, size in enumerate(sizes)]))))
    assert (found[0], found[-1]) == (stops, follows)


def test_a_latency_counts_from_where_the_first_action_is_worked_off() -> None:
    def kept(target_s: float, size: int, last_s: float) -> Kept:
        begins = [window(0, 1, latency_s=60), window(1, size, backlog=99, latency_s=60)]
        late = [window(i, size, latency_s=30, backlog=99) for i in range(2, 4)]
        settled = [window(i, size, latency_s=2) for i in range(4, 8)]
        return Kept(target_s=target_s, run=run_of([*begins, *late, *settled, window(8, size, latency_s=last_s)]))

    assert held(list(latency_checks([kept(5, 4, 2), kept(20, 2, 2)]))) == [True, True, True]
    assert held(list(latency_checks([kept(5, 4, 6), kept(20, 4, 2)]))) == [False, True, False]
