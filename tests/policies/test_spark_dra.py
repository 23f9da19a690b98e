"""Dynamic allocation of executors and SPARK-24815's, look by look; every number is worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from elastream.dataflow import Dataflow, Operator, Plan
from elastream.measurement import Snapshot
from elastream.measurement.whole_job import TasksNow, WholeJob
from elastream.policies.catalog import create, info
from elastream.policies.executors_memory import AllocationMemory
from elastream.policies.knowledge import NOTHING_KNOWN
from elastream.policies.proposal import ReasonKind
from elastream.policies.spark_dra import SparkDynamicAllocation
from elastream.testing import alike, chain, snapshot_of

DRA = SparkDynamicAllocation()
PULL_REQUEST = SparkDynamicAllocation(by_job=True)


def now(running: int = 0, pending: int = 0, *, to_come: int = 0, idle_s: Sequence[float] = ()) -> TasksNow:
    return TasksNow(running=running, pending=pending, to_come=to_come, idle_s=tuple(idle_s), slots=2)


BUSY = now(8, 24)  # 32 tasks are 16 executors


def over(
    policy: SparkDynamicAllocation, looks: Sequence[tuple[float, TasksNow]], *, executors: int = 4
) -> list[int]:
    """How many there are to be after each look; what is asked for is there at once."""
    memory, found = AllocationMemory(), []
    for at_s, tasks in looks:
        memory, executors = policy.look(memory, tasks, now_s=at_s, executors=executors)
        found.append(executors)
    return found


def test_tasks_that_wait_for_a_second_add_one_then_two_then_four() -> None:
    looks = [(s / 2, BUSY) for s in range(0, 13)]
    # the target begins at 0: 1 after 1 s, 3 after 2 s, 7 after 3 s, 15 after 4 s, and 16 are needed
    assert over(DRA, looks, executors=0) == [0, 0, 1, 1, 3, 3, 7, 7, 15, 15, 16, 16, 16]


def test_a_wait_shorter_than_a_second_adds_none() -> None:
    assert over(DRA, [(0.0, BUSY), (0.9, BUSY), (1.0, now(8, 0)), (1.1, BUSY), (2.0, BUSY)]) == [4] * 5


def test_what_was_doubled_begins_at_one_again_when_none_waits() -> None:
    looks = [(0, BUSY), (1, BUSY), (2, BUSY), (2.5, now(32, 0)), (3, BUSY), (4, BUSY)]
    # 1, 3; then one more, and not four; the wait begins at 3 s
    assert over(DRA, looks, executors=0) == [0, 1, 3, 3, 3, 4]


def test_it_grows_from_what_is_there() -> None:
    # the target is 0, as nothing was needed; of 4 that are there it makes 5, and then 6 and 8
    assert over(DRA, [(float(s), BUSY) for s in range(4)]) == [4, 5, 6, 8]


def test_no_more_than_the_tasks_need_and_than_may_be() -> None:
    few = [(float(s), now(2, 3)) for s in range(6)]  # 5 tasks: 3 executors
    assert over(DRA, few, executors=0) == [0, 1, 3, 3, 3, 3]
    most = SparkDynamicAllocation(max_executors=2)
    assert over(most, [(float(s), BUSY) for s in range(6)], executors=0)[-1] == 2


def test_the_allocation_ratio_asks_for_fewer() -> None:
    assert SparkDynamicAllocation(allocation_ratio=0.5).needed(BUSY) == 8


@pytest.mark.parametrize(("idle_s", "left"), [((59.9,) * 4, 4), ((60.0,) * 3 + (10.0,), 1), ((61.0,) * 4, 0)])
def test_an_executor_goes_when_it_was_idle_for_a_minute(idle_s: tuple[float, ...], left: int) -> None:
    assert over(DRA, [(100.0, now(idle_s=idle_s))]) == [left]


def test_the_least_stay() -> None:
    assert over(SparkDynamicAllocation(min_executors=2), [(100.0, now(idle_s=(61.0,) * 4))]) == [2]


def test_what_works_is_not_taken_when_less_is_needed() -> None:
    # 3 tasks need 2 executors; of 4 none was idle for a minute
    assert over(DRA, [(0.0, now(3, 0, idle_s=(5.0,)))]) == [4]


# --- what the pull request changes ------------------------------------------------------------------------


def test_stages_to_come_count() -> None:
    between = now(4, 0, to_come=32)
    assert DRA.needed(between) == 2
    assert PULL_REQUEST.needed(between) == 18


def test_its_backlog_timer_goes_on_while_a_stage_is_to_come() -> None:
    looks = [(0.0, BUSY), (0.5, now(4, 0, to_come=32)), (1.0, BUSY)]
    assert over(DRA, looks, executors=0) == [0, 0, 0]
    assert over(PULL_REQUEST, looks, executors=0) == [0, 0, 1]


def test_the_first_look_at_idle_executors_only_arms_a_timer() -> None:
    looks = [(float(s), now(idle_s=(61.0,) * 4)) for s in (100, 130, 159, 160)]
    assert over(PULL_REQUEST, looks) == [4, 4, 4, 0]


def test_a_share_of_the_idle_ones_goes_each_time() -> None:
    half = SparkDynamicAllocation(by_job=True, deallocation_ratio=0.5, deallocation_timeout_s=10)
    memory, left = AllocationMemory(), 5
    found = []
    for at_s in (100, 105, 110, 115, 120, 130):
        memory, left = half.look(memory, now(idle_s=(61.0,) * left), now_s=at_s, executors=left)
        found.append(left)
    assert found == [5, 5, 2, 2, 1, 0]  # ceil(5 / 2) = 3, ceil(2 / 2) = 1, 1


# --- as policies ------------------------------------------------------------------------------------------


def whole_job(tasks: TasksNow | None, executors: int = 4) -> Snapshot:
    return Snapshot(
        dataflow=Dataflow.of(
            [Operator(name="job", source=True), Operator(name="executors")], [("job", "executors")]
        ),
        plan=Plan({"executors": executors}),
        source_rates={"job": 1.0},
        readings=(),
        job=WholeJob(tasks=tasks),
    )


def test_asked_as_a_policy_it_says_the_same() -> None:
    knowledge = NOTHING_KNOWN
    for _ in range(4):
        knowledge = DRA.remember(whole_job(BUSY), knowledge.watched(1.0, Plan({"executors": 4})))
    proposal = DRA(whole_job(BUSY), knowledge)
    assert proposal.parallelism == {"executors": 8}  # from 4: 5, 6 and 8 after 2, 3 and 4 s


def test_where_nobody_looks_at_tasks_it_says_so() -> None:
    proposal = DRA(whole_job(None), DRA.remember(whole_job(None), NOTHING_KNOWN))
    assert proposal.parallelism == {}
    assert "which only Spark itself does" in str(proposal.reasons[0])


@pytest.mark.parametrize("name", ["spark-dra", "spark-24815", "elastic-scaling"])
def test_of_a_pipeline_it_says_that_it_is_for_whole_jobs(name: str) -> None:
    snapshot = snapshot_of(
        edges=chain("source", "map", "silent"), source_rates={"source": 1.0}, readings=alike("map")
    )
    policy = create(name)
    proposal = policy(snapshot, policy.remember(snapshot, NOTHING_KNOWN))  # type: ignore[attr-defined]
    assert (proposal.policy, proposal.parallelism) == (name, {})
    assert set(proposal.names(ReasonKind.NO_DATA)) == {"map", "silent"}
    assert str(proposal.reasons[0]).startswith("for whole jobs only")
    assert info(name).whole_jobs
    assert not info("flink").whole_jobs


def test_the_names_differ_by_their_presets() -> None:
    assert create("spark-24815") == PULL_REQUEST == replace(DRA, by_job=True)
