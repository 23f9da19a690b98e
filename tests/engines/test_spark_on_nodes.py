"""What is known of nodes on Spark before anything is started: who is placed, and what a task waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elastream.engines.spark.channels.control import Control, read_control, write_control
from elastream.engines.spark.channels.emulated_delays import Fetches
from elastream.engines.spark.executors import ExecutorOptions
from elastream.engines.spark.on_nodes import check_placeable, delays_text, executors_on, placed_operators
from elastream.engines.spark.options import SparkOptions
from elastream.engines.spark.pipeline import Pipeline
from elastream.errors import InvalidInput
from elastream.nodes import Node, NodePool
from elastream.nodes.files import WorkerNodes


def nodes(*, slots: int = 1, records_per_fetch: int = 20) -> WorkerNodes:
    pool = NodePool(
        nodes=(Node(name="a", slots=slots), Node(name="b", slots=slots)), delays_s=((0, 0.1), (0.1, 0))
    )
    return WorkerNodes(pool=pool, hosts={"a": "one", "b": "two"}, records_per_fetch=records_per_fetch)


def pipeline(*, second: bool = False, fixed: bool = False) -> Pipeline:
    found = Pipeline("p")
    found.feed("numbers", schema="id bigint")

    @found.operator(reads="numbers", max_parallelism=8)
    def first(numbers: Any) -> Any: ...

    if second:

        @found.operator(reads="first", fixed=fixed)
        def after(first: Any) -> Any: ...

    found.keep("kept", reads="first", folder=Path("kept"), parallelism=2)
    return found


def test_operators_are_placed_unless_they_are_fixed_and_each_needs_nodes_of_its_own() -> None:
    assert placed_operators(pipeline()) == ("first",)
    assert placed_operators(pipeline(second=True, fixed=True)) == ("first",)
    assert placed_operators(pipeline(second=True)) == ("first", "after")
    check_placeable(nodes(), pipeline(second=True))
    check_placeable(nodes(slots=2), pipeline())
    with pytest.raises(InvalidInput, match=r"slots: .* \(first, after\) a node has one slot, found 2"):
        check_placeable(nodes(slots=2), pipeline(second=True))
    one = WorkerNodes(pool=NodePool(nodes=(Node(name="a"),), delays_s=((0,),)), hosts={"a": "one"})
    check_placeable(one, pipeline())
    with pytest.raises(InvalidInput, match=r"2 operators to be placed \(first, after\), and there are 1 nodes"):
        check_placeable(one, pipeline(second=True))
    nothing = Pipeline("p")
    nothing.feed("numbers", schema="id bigint")
    with pytest.raises(InvalidInput, match="places operators that can be scaled, and 'p' has none"):
        check_placeable(nodes(), nothing)


def test_an_executor_has_the_slots_of_its_node_and_cores_for_what_runs_beside_them() -> None:
    assert executors_on(nodes(slots=2), pipeline(), ExecutorOptions(memory="512m")) == ExecutorOptions(
        cores=2 + 2, memory="512m"
    )
    assert executors_on(nodes(), pipeline(second=True, fixed=True), ExecutorOptions()).cores == 1 + 1 + 2
    assert executors_on(nodes(), pipeline(second=True), ExecutorOptions()).cores == 1 + 2


@pytest.mark.parametrize(
    ("records", "node", "wait_s"),
    [(1, "a", 0.1), (20, "a", 0.1), (21, "a", 0.2), (100, "b", 1.5), (0, "a", 0.0), (100, "c", 0.0), (9, None, 0)],
)
def test_a_task_waits_a_round_trip_for_each_fetch(records: int, node: str | None, wait_s: float) -> None:
    fetches = Fetches(records=20, round_trips_s={"a": 0.1, "b": 0.3})
    assert fetches.wait_s(records, node) == pytest.approx(wait_s)
    assert Fetches().wait_s(records, node) == 0


def test_what_tasks_wait_for_is_in_the_control_and_an_older_control_is_still_read(tmp_path: Path) -> None:
    path = tmp_path / "control.json"
    control = Control(parallelism=2, fetches=Fetches(records=20, round_trips_s={"a": 0.1}))
    write_control(path, control)
    assert read_control(path) == control
    path.write_text('{"parallelism": 3, "most_records": 500}', encoding="utf-8")
    assert read_control(path) == Control(parallelism=3, most_records=500)


def test_it_is_said_plainly_whether_delays_are_emulated() -> None:
    emulated = "emulated: a task waits a round trip to the farthest node for every 20 records"
    assert emulated in delays_text(nodes())
    assert "nothing is emulated" in delays_text(nodes(records_per_fetch=0))


def test_nodes_need_a_standalone_cluster_or_one_of_their_own() -> None:
    def options(master: str) -> SparkOptions:
        return SparkOptions(master=master, nodes=nodes())

    assert options("local[32]").nodes == options("spark://127.0.0.1:7077").nodes == nodes()
    with pytest.raises(InvalidInput, match="--nodes starts workers of a standalone cluster, found --master yarn"):
        options("yarn")
