"""Executors on chosen nodes: a node is a worker of a standalone cluster, with one executor on it.

Choosing a node starts the worker on it, and Spark's master, which has nowhere else to put it, starts an executor
there. A node that leaves is decommissioned: its executor takes no more tasks, finishes those that it has and goes,
and then the worker is stopped. Nothing of this restarts a query.

Which executor runs on which node, and for which operator, is read back from Spark, by the host and the resource
profile that each tells. Spark spreads tasks over all executors of a profile, so each placed operator has one of
its own (`profiles.py`), and a node is one operator's at a time. What runs beside them (sources, sinks, fixed
operators) finds cores of its own on every node of the first one.

The master puts an executor on any worker that has room, whatever its profile. So the workers of one operator join
before those of the next are started, and one with an executor of another operator, as may be when two die at the
same moment, is given up for another.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from elastream.dataflow import Dataflow
from elastream.engines.spark.channels.emulated_delays import Fetches
from elastream.engines.spark.daemons import Daemons
from elastream.engines.spark.executors import ExecutorOptions, session_settings
from elastream.engines.spark.pipeline import Kind, Pipeline
from elastream.engines.spark.profiles import Hosted, ProfiledExecutors
from elastream.engines.spark.rest import RestApi
from elastream.errors import ElastreamError, InvalidInput
from elastream.measurement.executor import ExecutorReading
from elastream.nodes import NodePool
from elastream.nodes.files import WorkerNodes
from elastream.nodes.places import Chosen, NoNodeLeftError, Placement, Places, fed_from
from elastream.nodes.roster import Roster, round_trips_s

_JOIN_TIMEOUT_S = 120.0
_POLL_S = 0.2


def placed_operators(pipeline: Pipeline) -> tuple[str, ...]:
    """The operators whose instances are placed on nodes."""
    return tuple(step.name for step in pipeline.steps if step.kind is Kind.OPERATOR and not step.fixed)


def check_placeable(nodes: WorkerNodes, pipeline: Pipeline) -> None:
    placed = placed_operators(pipeline)
    if not placed:
        raise InvalidInput(f"--nodes places operators that can be scaled, and {pipeline.name!r} has none")
    if len(placed) > len(nodes.pool.nodes):
        raise InvalidInput(
            f"--nodes: {pipeline.name!r} has {len(placed)} operators to be placed ({', '.join(placed)}), and "
            f"there are {len(nodes.pool.nodes)} nodes: a node is one operator's at a time"
        )
    if len(placed) > 1 and nodes.slots > 1:
        raise InvalidInput(
            f"slots: with several operators that are placed ({', '.join(placed)}) a node has one slot, found "
            f"{nodes.slots}: a node is one operator's at a time"
        )


def delays_text(nodes: WorkerNodes) -> str:
    """Whether the delays between the nodes are real."""
    if nodes.records_per_fetch:
        wait = f"a task waits a round trip to the farthest node for every {nodes.records_per_fetch} records"
        return f"the delays between nodes are emulated: {wait}"
    return "the delays between nodes are taken to be real: nothing is emulated"


def executors_on(nodes: WorkerNodes, pipeline: Pipeline, options: ExecutorOptions) -> ExecutorOptions:
    """What an executor of the first operator is: the slots of its node, and a core for each of the tasks that run
    beside them. Those of others have the slots alone."""
    placed = placed_operators(pipeline)
    beside = sum(
        step.parallelism for step in pipeline.steps if step.kind is not Kind.FEED and step.name not in placed
    )
    return replace(options, cores=nodes.slots + beside, spare=0, least=1, most=None)


def settings_on(nodes: WorkerNodes, pipeline: Pipeline, options: ExecutorOptions) -> dict[str, str]:
    """What the session starts with."""
    return {
        **session_settings(executors_on(nodes, pipeline, options), slots=1),
        # a task whose state is open on a node that is busy goes to a free one at once: by default it waits for
        # three seconds, which is longer than a batch takes, and a node that joins would have nothing to do
        "spark.locality.wait": "0s",
    }


@dataclass(frozen=True, kw_only=True)
class OnWorkers:
    """Nodes whose workers are started and stopped, and who keeps their processes."""

    nodes: WorkerNodes
    daemons: Daemons


class HostedExecutors(Protocol):
    """The executors of the application, by their hosts and operators."""

    def take_over(self) -> None: ...

    def request_each(self, totals: Mapping[str, int]) -> None: ...

    def hosted(self) -> Sequence[Hosted]: ...

    def own_batch(self, operator: str, frame: DataFrame) -> None: ...

    def executor_readings(self) -> tuple[ExecutorReading, ...]: ...

    def decommission_hosts(self, hosts: Sequence[str]) -> None: ...


class NodeWorkers(Protocol):
    """A worker on each node: a process."""

    def start(self, node: str, operator: str) -> None: ...

    def stop(self, node: str) -> None: ...

    def is_alive(self, node: str) -> bool: ...

    def how_ended(self, node: str) -> str: ...


def on_nodes(
    spark: SparkSession, api: RestApi, pipeline: Pipeline, options: ExecutorOptions, workers: OnWorkers
) -> OnNodes:
    first = executors_on(workers.nodes, pipeline, options)
    operators = placed_operators(pipeline)
    others = replace(first, cores=workers.nodes.slots)
    of = {name: first if name == operators[0] else others for name in operators}
    return OnNodes(
        workers.nodes,
        graph=pipeline.graph(),
        operators=operators,
        executors=ProfiledExecutors(spark, api, of),
        workers=_Processes(workers, master=str(spark.sparkContext.master), options=of),
    )


class OnNodes:
    def __init__(
        self,
        nodes: WorkerNodes,
        *,
        graph: Dataflow,
        operators: Sequence[str],
        executors: HostedExecutors,
        workers: NodeWorkers,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._nodes = nodes
        self._node_of = {host: node for node, host in nodes.hosts.items()}
        self._clock = clock
        self._graph = graph
        self._executors = executors
        self._workers = workers
        self._roster = Roster(pool=nodes.pool)
        self._placement: Placement = dict.fromkeys(operators, ())
        self._next: Placement = self._placement
        """Of the action under way; where there is none, the one in force."""
        self._operator_on: dict[str, str] = {}
        """Of each node with a worker: whose it is."""

    # The allocation

    def choose(self, plan: Mapping[str, int], wanted: Placement) -> str:
        """Where the instances of this plan will run; what had to be chosen again, as text."""
        chosen = self._places(self._placement).for_plan({name: plan[name] for name in self._placement}, wanted)
        self._next = chosen.placement
        return chosen.told

    def begin(self, slots: int) -> str | None:
        """Take over from Spark, and start the first workers."""
        self._executors.take_over()
        told = self.make_room(slots)
        self._placement = self._next
        return told

    def make_room(self, slots: int) -> str | None:
        """Start the workers of the chosen nodes. Another is chosen for one that does not come; where there is no
        other, nothing is changed."""
        told = []
        while joining := self._startable():
            failed = self._join(joining)
            chosen = self._chosen_again()
            told += [*failed, chosen.told]
            if failed and chosen.missing:
                self._next = self._placement
                self.release(slots, dict)
                raise NoNodeLeftError(f"no node is left: {'; '.join(filter(None, told))}")
        return "; ".join(filter(None, told)) or None

    def release(self, slots: int, state_tasks: Callable[[], Mapping[str, int]]) -> str | None:
        """Let the nodes go that no instance needs any more."""
        self._placement = self._next
        leaving = self._roster.to_stop(self._placement)
        if leaving:
            try:
                self._request(self._roster.up - {*leaving})  # first, or others would replace them
                self._executors.decommission_hosts([self._nodes.hosts[node] for node in leaving])
            except ElastreamError as error:  # the operators have their new size, so the action has not failed
                return f"nodes that are too many stay for now: {error}"
        for node in leaving:
            self._roster = self._roster.stopping(node)
        return f"{self._where()}; {', '.join(leaving)} to leave" if leaving else self._where()

    def tend(self) -> list[str]:
        """Stop workers that have finished and replace nodes that are gone; what spoils a measurement, as text."""
        on = self._executors_on()
        for node in sorted(self._roster.leaving):
            if node not in on or not self._workers.is_alive(node):
                self._workers.stop(node)
                self._roster = self._roster.stopped(node)
                self._operator_on.pop(node, None)
        mixed = self._with_others(on)
        told = [
            self._lost(node, mixed.get(node))
            for node in sorted(self._roster.up)
            if node in mixed or not self._workers.is_alive(node)
        ]
        chosen = self._chosen_again()
        while joining := self._startable():
            told += [chosen.told, *self._join(joining)]
            chosen = self._chosen_again()
        if told and chosen.missing:
            told.append(chosen.told)
        self._placement = self._next
        return list(filter(None, told)) or [f"{node}: its executor is not there" for node in self._up_without(on)]

    def nodes(self) -> tuple[NodePool | None, Placement]:
        return self._roster.at(self._clock()), self._placement

    def executor_readings(self) -> tuple[ExecutorReading, ...]:
        return tuple(
            replace(found, node=self._node_of.get(found.host)) for found in self._executors.executor_readings()
        )

    def fetches(self) -> Mapping[str, Fetches]:
        """What the tasks of the operators wait for, where delays are emulated."""
        records = self._nodes.records_per_fetch
        return {
            name: Fetches(
                records=records,
                round_trips_s=round_trips_s(self._nodes.pool, nodes, fed_from(self._graph, self._placement, name))
                if records
                else {},
            )
            for name, nodes in self._placement.items()
        }

    def own_batch(self, operator: str, frame: DataFrame) -> None:
        if operator in self._placement:
            self._executors.own_batch(operator, frame)

    # Workers

    def _places(self, placement: Placement) -> Places:
        return Places(
            pool=self._roster.at(self._clock()), placement=placement, graph=self._graph, held=self._operator_on
        )

    def _chosen_again(self) -> Chosen:
        """Others for those of the chosen nodes that are gone."""
        chosen = self._places(self._next).without_gone(up=self._roster.up)
        self._next = chosen.placement
        return chosen

    def _startable(self) -> list[str]:
        """Of the nodes that are chosen and have no worker those that are not known to be away."""
        pool = self._roster.at(self._clock())
        return [node for node in self._roster.to_start(self._next) if pool[node].available]

    def _join(self, nodes: Sequence[str]) -> list[str]:
        """Start workers, and return when an executor is up on each; what became of those that did not come."""
        told = []
        for name, own in self._next.items():
            told += self._join_one([node for node in nodes if node in own], name)
        return told

    def _join_one(self, nodes: Sequence[str], operator: str) -> list[str]:
        for node in nodes:
            self._operator_on[node] = operator
            self._workers.start(node, operator)
        missing, told = set(nodes), []
        self._request(self._roster.up | missing)
        deadline_s = self._clock() + _JOIN_TIMEOUT_S
        while missing:
            on = self._executors_on()
            self._check_hosts(on)
            for node in sorted(missing):
                if node in on:
                    missing.remove(node)
                    self._roster = self._roster.started(node)
                elif not self._workers.is_alive(node) or self._clock() > deadline_s:
                    missing.remove(node)
                    told.append(self._lost(node, joining=frozenset(missing)))
            time.sleep(_POLL_S if missing else 0.0)
        return told

    def _request(self, nodes: Set[str]) -> None:
        """An executor for each of the nodes that have a worker."""
        asked = Counter(self._operator_on[node] for node in nodes)
        self._executors.request_each({name: asked[name] for name in self._placement})

    def _lost(self, node: str, why: str | None = None, *, joining: frozenset[str] = frozenset()) -> str:
        """It is left alone for a while; why, as text. Others are about to join."""
        if why is None:
            alive = self._workers.is_alive(node)
            why = f"no executor came up on {node}" if alive else self._workers.how_ended(node)
        self._roster = self._roster.lost(node, self._clock())
        # first, or the master would try again and again on a worker that ends, and give the application up
        self._request(self._roster.up | joining)
        self._workers.stop(node)
        self._operator_on.pop(node, None)
        return why

    # Read back from Spark

    def _executors_on(self) -> dict[str, list[Hosted]]:
        """Of each node with executors which they are, by the hosts that Spark knows."""
        found: dict[str, list[Hosted]] = {}
        for hosted in self._executors.hosted():
            found.setdefault(self._node_of.get(hosted.host, hosted.host), []).append(hosted)
        return found

    def _with_others(self, on: Mapping[str, Sequence[Hosted]]) -> dict[str, str]:
        """Nodes with an executor that is another operator's than the node."""
        return {
            node: f"{node} is {own}'s, and has executor {hosted.executor} of {hosted.operator}"
            for node, own in self._operator_on.items()
            for hosted in on.get(node, ())
            if hosted.operator != own
        }

    def _up_without(self, on: Mapping[str, Sequence[Hosted]]) -> list[str]:
        return [node for node in sorted(self._roster.up) if node not in on]

    def _where(self) -> str:
        on = self._executors_on()
        return "; ".join(f"{name} on {_nodes_text(nodes, on)}" for name, nodes in self._placement.items())

    def _check_hosts(self, on: Mapping[str, Sequence[Hosted]]) -> None:
        unknown = [name for name in on if name not in self._nodes.pool]
        if unknown:
            raise ElastreamError(
                f"an executor runs on {unknown[0]}, which is no host of the file of nodes; the "
                "cluster must have no other workers than those that this run starts"
            )


class _Processes:
    """Of this machine, or of the command that the file of nodes gives."""

    def __init__(self, workers: OnWorkers, *, master: str, options: Mapping[str, ExecutorOptions]) -> None:
        """`options` are those of each operator's executors: a worker has room for one."""
        self._nodes = workers.nodes
        self._daemons = workers.daemons
        self._master = master
        self._options = options

    def start(self, node: str, operator: str) -> None:
        options = self._options[operator]
        of_worker = {"master": self._master, "cores": options.cores, "memory": options.memory}
        command = self._nodes.command(node, **of_worker)
        if command is not None:
            self._daemons.start_command(_name(node), command, node=node)
            return
        self._daemons.start_worker(
            _name(node),
            master=self._master,
            host=self._nodes.hosts[node],
            cores=options.cores,
            memory=options.memory,
            node=node,
        )

    def stop(self, node: str) -> None:
        self._daemons.stop([_name(node)])

    def is_alive(self, node: str) -> bool:
        return self._daemons.is_alive(_name(node))

    def how_ended(self, node: str) -> str:
        return self._daemons.how_ended(_name(node))


def _nodes_text(nodes: Sequence[str], on: Mapping[str, Sequence[Hosted]]) -> str:
    executors = {node: ", ".join(found.executor for found in on.get(node, ())) or "none yet" for node in nodes}
    return ", ".join(f"{node} (executor {which})" for node, which in executors.items())


def _name(node: str) -> str:
    return f"worker {node}"
