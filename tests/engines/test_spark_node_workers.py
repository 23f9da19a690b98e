"""Nodes that join, leave, do not come and are lost, with a cluster that is only pretended."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from elastream.engines.spark.on_nodes import OnNodes
from elastream.errors import ElastreamError
from elastream.measurement.executor import ExecutorReading
from elastream.nodes import Node, NodePool
from elastream.nodes.files import WorkerNodes
from elastream.nodes.places import NoNodeLeftError
from elastream.nodes.roster import AWAY_S

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
        self._asked = 0
        self._number = 0

    def take_over(self) -> None:
        pass

    def request(self, total: int) -> None:
        self._asked = total
        for node in self.workers:
            if node not in self.executors and self._taking() < self._asked:
                self.executors[node] = str(self._number)
                self._number += 1

    def hosts(self) -> dict[str, str]:
        return {executor: NODES.hosts.get(node, node) for node, executor in self.executors.items()}

    def executor_readings(self) -> tuple[ExecutorReading, ...]:
        return tuple(
            ExecutorReading(id=executor, host=host, cores=4, active_tasks=0)
            for executor, host in self.hosts().items()
        )

    def decommission_hosts(self, hosts: Sequence[str]) -> None:
        self.leaving |= {node for node in self.workers if NODES.hosts[node] in hosts}

    def finish(self, node: str) -> None:
        del self.executors[node]

    def start(self, node: str) -> None:
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

    def _taking(self) -> int:
        return len(self.executors.keys() - self.leaving)


class Run:
    """What the engine does with an allocation, without the queries."""

    def __init__(self, *broken: str) -> None:
        self.cluster = PretendedCluster()
        self.cluster.broken |= set(broken)
        self.now_s = 0.0
        self.on_nodes = OnNodes(
            NODES, operator="map", executors=self.cluster, workers=self.cluster, clock=lambda: self.now_s
        )

    def begin(self) -> str | None:
        self.on_nodes.choose({"map": 1}, {})
        return self.on_nodes.begin(1)

    def rescale(self, instances: int, *nodes: str) -> list[str]:
        told = [self.on_nodes.choose({"map": instances}, {"map": nodes} if nodes else {})]
        told.append(self.on_nodes.make_room(instances) or "")
        told.append(self.on_nodes.release(instances, dict) or "")
        return [text for text in told if text]

    @property
    def placement(self) -> tuple[str, ...]:
        return self.on_nodes.nodes()[1]["map"]


def running(*broken: str) -> Run:
    run = Run(*broken)
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
    run.cluster.executors["elsewhere"] = "9"
    with pytest.raises(ElastreamError, match="an executor runs on elsewhere, which is no host of the file"):
        run.begin()


def test_an_executor_is_told_with_the_name_of_its_node() -> None:
    run = running()
    run.rescale(2)
    found = {executor.node: executor.host for executor in run.on_nodes.executor_readings()}
    assert found == {"a": "host-a", "b": "host-b"}
