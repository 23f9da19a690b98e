"""Nodes that join, leave, do not come and are lost, with a cluster that is only pretended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import cast

import pytest
from pyspark.sql import DataFrame

from elastream.dataflow import Dataflow, Operator
from elastream.engines.spark.on_nodes import OnNodes
from elastream.engines.spark.profiles import Hosted
from elastream.errors import ElastreamError
from elastream.measurement.executor import ExecutorReading
from elastream.nodes import Node, NodePool
from elastream.nodes.files import WorkerNodes
from elastream.nodes.places import NoNodeLeftError
from elastream.nodes.roster import AWAY_S

GRAPH = ("in", "map", "sum")
PLACES_MS = {"a": 0.0, "b": 10.0, "c": 40.0, "far": 300.0}
NODES = WorkerNodes(
    pool=NodePool(
        nodes=tuple(Node(name=name) for name in PLACES_MS),
        delays_s=tuple(tuple(abs(x - y) / 1000 for y in PLACES_MS.values()) for x in PLACES_MS.values()),
    ),
    hosts={name: f"host-{name}" for name in PLACES_MS},
    records_per_fetch=20,
)


class PretendedCluster:
    """An executor on every worker, as far as they were asked for; it stays until it has finished what it has."""

    def __init__(self) -> None:
        self.workers: list[str] = []
        self.executors: dict[str, str] = {}
        self.broken: set[str] = set()
        self.leaving: set[str] = set()
        self.operators: dict[str, str] = {}
        self.owned: list[str] = []
        self._number = 0

    def take_over(self) -> None:
        pass

    def request_each(self, totals: Mapping[str, int]) -> None:
        for name, total in totals.items():
            for node in self.workers:
                if node not in self.executors and self._taking(name) < total:
                    self.run(node, name)

    def run(self, node: str, operator: str) -> None:
        """As Spark's master does: on any worker that has room, whoever it was started for."""
        self.executors[node] = str(self._number)
        self.operators[node] = operator
        self._number += 1

    def hosted(self) -> list[Hosted]:
        return [
            Hosted(executor=executor, host=NODES.hosts.get(node, node), operator=self.operators.get(node))
            for node, executor in self.executors.items()
        ]

    def own_batch(self, operator: str, frame: object) -> None:
        self.owned.append(operator)

    def executor_readings(self) -> tuple[ExecutorReading, ...]:
        return tuple(
            ExecutorReading(id=found.executor, host=found.host, cores=4, active_tasks=0) for found in self.hosted()
        )

    def decommission_hosts(self, hosts: Sequence[str]) -> None:
        self.leaving |= {node for node in self.workers if NODES.hosts[node] in hosts}

    def finish(self, node: str) -> None:
        del self.executors[node]

    def start(self, node: str, operator: str) -> None:
        if node not in self.broken:
            self.workers.append(node)

    def stop(self, node: str) -> None:
        assert node not in self.executors or node not in self.leaving, "it has not finished"
        self.lose(node)

    def lose(self, node: str) -> None:
        if node in self.workers:
            self.workers.remove(node)
        self.executors.pop(node, None)
        self.leaving.discard(node)

    def is_alive(self, node: str) -> bool:
        return node in self.workers

    def how_ended(self, node: str) -> str:
        return f"the worker {node} has ended"

    def _taking(self, operator: str) -> int:
        return sum(self.operators[node] == operator for node in self.executors.keys() - self.leaving)


class Run:
    """What the engine does with an allocation, without the queries."""

    def __init__(self, *broken: str, operators: tuple[str, ...] = ("map",)) -> None:
        self.cluster = PretendedCluster()
        self.cluster.broken |= set(broken)
        self.now_s = 0.0
        self.on_nodes = OnNodes(
            NODES,
            graph=Dataflow.of((Operator(name=name, source=name == "in") for name in GRAPH), list(pairwise(GRAPH))),
            operators=operators,
            executors=self.cluster,
            workers=self.cluster,
            clock=lambda: self.now_s,
        )
        self.plan = dict.fromkeys(operators, 1)

    def begin(self) -> str | None:
        self.on_nodes.choose(self.plan, {})
        return self.on_nodes.begin(1)

    def rescale(self, instances: int, *nodes: str) -> list[str]:
        return self.rescale_all({"map": instances}, {"map": nodes} if nodes else {})

    def rescale_all(self, plan: dict[str, int], nodes: Mapping[str, tuple[str, ...]]) -> list[str]:
        self.plan |= plan
        told = [self.on_nodes.choose(self.plan, nodes)]
        told.append(self.on_nodes.make_room(1) or "")
        told.append(self.on_nodes.release(1, dict) or "")
        return [text for text in told if text]

    @property
    def placement(self) -> tuple[str, ...]:
        return self.on_nodes.nodes()[1]["map"]

    @property
    def placements(self) -> Mapping[str, tuple[str, ...]]:
        return self.on_nodes.nodes()[1]


def running(*broken: str, operators: tuple[str, ...] = ("map",)) -> Run:
    run = Run(*broken, operators=operators)
    run.begin()
    return run


def test_workers_and_executors_follow_the_chosen_nodes() -> None:
    run = running()
    assert (run.placement, run.cluster.workers) == (("b",), ["b"]), "in the middle"
    assert run.rescale(3) == ["map on b (executor 0), a (executor 1), c (executor 2)"]
    assert run.rescale(4, "b", "a", "c", "far") == [
        "map on b (executor 0), a (executor 1), c (executor 2), far (executor 3)"
    ]
    assert run.on_nodes.fetches()["map"].round_trips_s == {"a": 0.3, "b": 0.29, "c": 0.26, "far": 0.3}
    assert run.on_nodes.tend() == []


def test_a_worker_is_stopped_when_its_executor_has_finished_and_its_node_is_free_only_then() -> None:
    run = running()
    run.rescale(2, "b", "far")
    assert run.rescale(1, "b") == ["map on b (executor 0); far to leave"]
    assert run.on_nodes.tend() == []
    assert run.cluster.workers == ["b", "far"]
    pool, _ = run.on_nodes.nodes()
    assert pool is not None
    assert not pool["far"].available
    run.cluster.finish("far")
    run.on_nodes.tend()
    assert run.cluster.workers == ["b"]
    assert run.rescale(2, "b", "far") == ["map on b (executor 0), far (executor 2)"]


def test_another_node_is_chosen_for_one_on_which_no_worker_starts() -> None:
    run = Run("b")
    assert run.begin() == "the worker b has ended; map: b is gone, c in its place"
    assert run.placement == ("c",)
    told = run.rescale(3, "c", "b", "a")
    assert told[0] == "map: b cannot be used any more, chosen again"
    assert set(run.placement) == {"c", "a", "far"}


def test_where_no_node_is_left_what_runs_stays_as_it_is() -> None:
    run = running("c", "far")
    with pytest.raises(NoNodeLeftError, match="no node is left: the worker c has ended"):
        run.rescale(3)
    assert run.placement == ("b",)
    assert run.cluster.leaving == {"a"}, "it had joined already"
    with pytest.raises(NoNodeLeftError, match="'map' was to have 3, and there are nodes for 1"):
        run.rescale(3)


def test_a_node_that_is_lost_is_replaced_with_the_next_window() -> None:
    run = running()
    run.rescale(2)
    run.cluster.lose("a")
    assert run.on_nodes.tend() == ["the worker a has ended", "map: a is gone, c in its place"]
    assert run.placement == ("b", "c")
    assert set(run.cluster.executors) == {"b", "c"}
    assert run.on_nodes.tend() == []


def test_without_another_the_node_is_taken_up_again_when_it_returns() -> None:
    run = running("c", "far")
    run.rescale(2)
    run.cluster.broken.add("a")
    run.cluster.lose("a")
    told = "; ".join(run.on_nodes.tend() + run.on_nodes.tend() + run.on_nodes.tend())
    assert told.startswith("the worker a has ended")
    assert "no other node is left: it has 1 fewer until one returns" in told
    assert (len(run.placement), run.cluster.workers) == (2, ["b"]), "what runs goes on"
    run.cluster.broken.clear()
    run.now_s += AWAY_S
    assert len(run.on_nodes.tend()) == 1
    assert run.placement == ("b", "a"), "of all that have returned the nearest"
    assert run.cluster.workers == ["b", "a"]
    assert set(run.cluster.executors) == {"b", "a"}


def test_an_executor_on_a_host_that_is_no_node_is_refused() -> None:
    run = Run()
    run.cluster.run("elsewhere", "map")
    with pytest.raises(ElastreamError, match="an executor runs on elsewhere, which is no host of the file"):
        run.begin()


def test_an_executor_is_told_with_the_name_of_its_node() -> None:
    run = running()
    run.rescale(2)
    found = {executor.node: executor.host for executor in run.on_nodes.executor_readings()}
    assert found == {"a": "host-a", "b": "host-b"}


# --- several operators ------------------------------------------------------------------------------------------

BOTH = ("map", "sum")


def test_each_operator_has_nodes_and_executors_of_its_own_near_to_those_that_feed_it() -> None:
    run = running(operators=BOTH)
    assert run.placements == {"map": ("b",), "sum": ("a",)}, "in the middle, and the nearest to it"
    told = run.rescale_all({"sum": 2}, {})
    assert told == ["map on b (executor 0); sum on a (executor 1), c (executor 2)"]
    assert run.cluster.operators == {"b": "map", "a": "sum", "c": "sum"}
    assert run.on_nodes.tend() == []


def test_a_task_waits_for_the_nodes_before_its_own_as_well() -> None:
    run = running(operators=BOTH)
    run.rescale_all({"sum": 2}, {"sum": ("a", "far")})
    trips = {name: dict(found.round_trips_s) for name, found in run.on_nodes.fetches().items()}
    assert trips == {"map": {"b": 0.0}, "sum": {"a": 0.3, "far": 0.3}}
    run.rescale_all({"sum": 1}, {"sum": ("far",)})
    assert run.on_nodes.fetches()["sum"].round_trips_s == {"far": pytest.approx(0.29)}, "map is on b"


def test_a_node_is_not_another_operators_before_its_executor_has_gone() -> None:
    run = running(operators=BOTH)
    run.rescale_all({"map": 2}, {"map": ("b", "c")})
    told = run.rescale_all({"map": 1, "sum": 2}, {"map": ("b",), "sum": ("a", "c")})
    assert "sum: c cannot be used any more, chosen again" in told[0]
    assert run.placements == {"map": ("b",), "sum": ("a", "far")}
    run.cluster.finish("c")
    run.on_nodes.tend()
    run.rescale_all({"sum": 3}, {"sum": ("a", "far", "c")})
    assert run.cluster.operators["c"] == "sum"


def test_executors_that_came_back_on_each_others_nodes_are_given_up() -> None:
    """Two that die at once are both started again, and the master puts either on either worker."""
    run = running(operators=BOTH)
    run.cluster.run("b", "sum")
    run.cluster.run("a", "map")
    told = run.on_nodes.tend()
    assert "a is sum's, and has executor 3 of map" in told
    assert "b is map's, and has executor 2 of sum" in told
    assert {node: run.cluster.operators[node] for node in run.cluster.workers} == {
        node: name for name, nodes in run.placements.items() for node in nodes
    }
    assert run.on_nodes.tend() == []


def test_a_batch_is_bound_to_the_executors_of_an_operator_that_is_placed() -> None:
    run, frame = running(operators=BOTH), cast("DataFrame", object())
    for name in ("in", "map", "sum"):
        run.on_nodes.own_batch(name, frame)
    assert run.cluster.owned == ["map", "sum"]
