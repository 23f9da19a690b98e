"""How many executors a plan needs and which may go, without Spark."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastream.engines.spark.executors import (
    Executor,
    ExecutorCount,
    ExecutorOptions,
    fitting_executors,
    is_local,
    local_shortage,
    local_slots,
    memory_mib,
    session_settings,
    shortage,
    size_for,
    starting_slots,
    to_release,
)
from elastream.engines.spark.pipeline import Pipeline
from elastream.errors import InvalidInput

# --- how many ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slots", "options", "size"),
    [
        (4, {"cores": 4}, (1, 1)),
        (5, {"cores": 4}, (2, 2)),
        (16, {"cores": 4}, (4, 4)),
        (5, {"cores": 4, "spare": 2}, (2, 4)),
        (5, {"cores": 4, "spare": 2, "most": 3}, (2, 3)),
        (99, {"cores": 4, "spare": 2, "most": 3}, (3, 3)),
        (1, {"cores": 4, "least": 3}, (1, 3)),
        (1, {"cores": 4, "least": 3, "spare": 1}, (1, 3)),  # two of the three are spare already
        (9, {"cores": 4, "least": 3, "spare": 1}, (3, 4)),
    ],
)
def test_the_size_for_a_number_of_slots(slots: int, options: dict[str, Any], size: tuple[int, int]) -> None:
    needed, target = size
    assert size_for(slots, ExecutorOptions(**options)) == ExecutorCount(needed=needed, target=target)


sizes = st.builds(
    ExecutorOptions,
    cores=st.integers(1, 64),
    spare=st.integers(0, 5),
    least=st.integers(1, 5),
    most=st.none() | st.integers(5, 50),
)


@settings(deadline=None)
@given(slots=st.integers(1, 5_000), options=sizes)
def test_there_is_room_for_every_slot_unless_the_most_forbids_it(slots: int, options: ExecutorOptions) -> None:
    size = size_for(slots, options)
    assert 1 <= size.needed <= size.target
    assert size.target >= options.least
    if options.most is None:
        assert size.target >= size.needed + options.spare
    else:
        assert size.target <= options.most
    if size.needed != options.most:
        assert (size.needed - 1) * options.cores < slots <= size.needed * options.cores


@settings(deadline=None)
@given(slots=st.integers(1, 500), more=st.integers(0, 500), options=sizes)
def test_more_slots_never_have_fewer_executors(slots: int, more: int, options: ExecutorOptions) -> None:
    few, many = size_for(slots, options), size_for(slots + more, options)
    assert few.needed <= many.needed
    assert few.target <= many.target


def test_the_slots_of_a_pipeline_are_those_of_its_queries() -> None:
    pipeline = Pipeline("p")
    pipeline.feed("others", schema="id bigint")  # no query: another process writes it

    @pipeline.source
    def numbers(spark: Any) -> Any: ...

    @pipeline.operator(reads=("numbers", "others"), parallelism=5)
    def joined(first: Any, second: Any) -> Any: ...

    @pipeline.sink(reads="joined", parallelism=2)
    def shown(batch: Any, batch_id: int) -> None: ...

    assert starting_slots(pipeline) == 1 + 5 + 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cores": 0}, "--executor-cores must be at least 1, found 0"),
        ({"spare": -1}, "--spare-executors must be at least 0, found -1"),
        ({"least": 0}, "--min-executors must be at least 1, found 0"),
        ({"least": 3, "most": 2}, "--max-executors must be at least 3, found 2"),
        ({"memory": "lots"}, "memory is written like 512m or 2g, found 'lots'"),
        ({"memory": "0g"}, "memory is written like 512m or 2g, found '0g'"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        ExecutorOptions(**options)


@pytest.mark.parametrize(
    ("text", "mib"), [("512m", 512), ("2g", 2048), ("1G", 1024), ("2048k", 2), ("1tb", 2**20)]
)
def test_amounts_of_memory(text: str, mib: float) -> None:
    assert memory_mib(text) == mib


def test_a_session_starts_with_what_the_plan_needs_and_the_spares() -> None:
    found = session_settings(ExecutorOptions(cores=2, memory="3g", spare=1), slots=7)
    assert found["spark.dynamicAllocation.initialExecutors"] == "5"
    assert found["spark.executor.cores"] == "2"
    assert found["spark.executor.memory"] == "3g"


# --- which may go -----------------------------------------------------------------------------------------------


def test_idle_ones_go_first_then_those_with_less_state_then_the_newest() -> None:
    executors = [
        Executor(id="0"),
        Executor(id="1", active_tasks=2),
        Executor(id="2", state_tasks=3),
        Executor(id="3", active_tasks=1),
        Executor(id="10"),
        Executor(id="4", active_tasks=1, state_tasks=1),
    ]
    assert to_release(executors, keep=0) == ("10", "0", "2", "3", "1", "4")
    assert to_release(executors, keep=4) == ("10", "0")
    assert to_release(executors, keep=6) == ()


@settings(deadline=None)
@given(
    executors=st.lists(
        st.builds(
            Executor,
            id=st.integers(0, 10_000).map(str),
            active_tasks=st.integers(0, 3),
            state_tasks=st.integers(0, 3),
        ),
        unique_by=lambda executor: executor.id,
    ),
    keep=st.integers(1, 20),
)
def test_as_many_are_kept_and_a_better_one_never_goes_instead(executors: list[Executor], keep: int) -> None:
    leaving = set(to_release(executors, keep=keep))
    assert len(leaving) == max(0, len(executors) - keep)
    stay = [executor for executor in executors if executor.id not in leaving]
    go = [executor for executor in executors if executor.id in leaving]
    assert not any(a.active_tasks > 0 and b.active_tasks == 0 for a in go for b in stay), "a busy one goes"
    idle_stay = [executor.state_tasks for executor in stay if not executor.active_tasks]
    idle_go = [executor.state_tasks for executor in go if not executor.active_tasks]
    assert max(idle_go, default=0) <= min(idle_stay, default=3), "an idle one with more state goes"


# --- what is missing --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("master", "slots"),
    [
        ("local", 1),
        ("local[1]", 1),
        ("local[32]", 32),
        ("local[8, 3]", 8),
        ("local[*]", os.cpu_count()),
        ("spark://127.0.0.1:7077", None),
        ("local-cluster[2,1,1024]", None),
        ("yarn", None),
    ],
)
def test_the_slots_of_a_local_master(master: str, slots: int | None) -> None:
    assert local_slots(master) == slots
    assert is_local(master) == (slots is not None)


def test_a_plan_above_a_local_master_is_told() -> None:
    assert local_shortage(32, "local[32]") is None
    assert local_shortage(33, "local[32]") == (
        "the plan has 33 slots and local[32] offers 32: tasks wait for each other; "
        "offer more with --master 'local[33]'"
    )


@pytest.mark.parametrize(
    ("up", "most", "fitting", "why"),
    [
        (3, None, 3, "3 executors with 12 are there (the workers have room for 3 of 4 cores and 1g)"),
        (1, 1, None, "1 executor with 4 are there (--max-executors is 1)"),
        (3, None, None, "3 executors with 12 are there (2 more were asked for and may still come)"),
        (3, None, 9, "3 executors with 12 are there (2 more were asked for and may still come)"),
    ],
)
def test_a_plan_above_a_cluster_is_told_with_what_there_is(
    up: int, most: int | None, fitting: int | None, why: str
) -> None:
    found = shortage(17, up=up, options=ExecutorOptions(cores=4, most=most), fitting=fitting)
    assert found == f"the plan has 17 slots and {why}: tasks wait for each other"
    assert shortage(up * 4, up=up, options=ExecutorOptions(cores=4, most=most), fitting=fitting) is None


def worker(*, cores_free: int, memory_free: int = 4096, state: str = "ALIVE") -> dict[str, Any]:
    return {"coresfree": cores_free, "memoryfree": memory_free, "state": state}


def test_the_room_of_a_cluster_is_what_is_free_on_its_workers_and_what_one_has() -> None:
    master = {
        "activeapps": [{"id": "mine", "cores": 8}, {"id": "another", "cores": 4}],
        "workers": [
            worker(cores_free=9),
            worker(cores_free=3),  # too few for one executor
            worker(cores_free=16, memory_free=1500),  # memory for one only
            worker(cores_free=16, state="DEAD"),
        ],
    }
    assert fitting_executors(master, "mine", ExecutorOptions(cores=4, memory="1g")) == 2 + 2 + 0 + 1
    assert fitting_executors(master, "new", ExecutorOptions(cores=4, memory="1g")) == 3
