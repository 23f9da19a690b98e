"""A machine whose cores are all in use: instances beyond them only wait in line, and the manager must see that.

The machine is a model: instances share its cores evenly, a record takes 10 ms of a core, a batch lasts 2 s, of
which the driver takes a tenth. What is measured is what is measured on Spark.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from elastream.dataflow import Dataflow, Operator, Plan
from elastream.manager.decision import Decision
from elastream.manager.engine import RescaleOutcome
from elastream.manager.events import Event, Proposed
from elastream.manager.knobs import Knobs
from elastream.manager.loop import Manager
from elastream.measurement import Reading, Snapshot
from elastream.measurement.batch_cost import BatchCost
from elastream.policies.catalog import create
from elastream.policies.proposal import ReasonKind

RECORD_S = 0.01
BATCH_S, DRIVER_S = 2.0, 0.2
WINDOW_S = 30.0


class Machine:
    def __init__(self, *, cores: int, records_per_s: float, instances: int) -> None:
        self.cores = cores
        self.records_per_s = records_per_s
        self.instances = instances
        self._backlog = 0.0
        self._at_s = 0.0
        feed, hashed = Operator(name="feed", source=True), Operator(name="hashed", max_parallelism=16)
        self._graph = Dataflow.of([feed, hashed], [("feed", "hashed")])

    def now(self) -> float:
        return self._at_s

    def steady(self) -> float:
        return self.now()

    def wait(self, seconds: float) -> None:
        self._at_s += seconds

    def graph(self) -> Dataflow:
        return self._graph

    def plan(self) -> Plan:
        return Plan({"hashed": self.instances})

    def rescale(self, decision: Decision) -> RescaleOutcome:
        self.instances = decision.after["hashed"]
        return RescaleOutcome(plan=self.plan(), succeeded=True, took_s=0.0)

    def measure(self) -> Snapshot:
        busy = min(self.instances, self.cores)
        arrived = self.records_per_s * WINDOW_S
        most = busy * WINDOW_S * (1 - DRIVER_S / BATCH_S) / RECORD_S
        done = min(most, arrived + self._backlog)
        self._backlog += arrived - done
        useful_s = done * RECORD_S / self.instances
        reading = {"window_s": WINDOW_S, "records_in": done / self.instances, "records_out": 0.0}
        readings = [
            Reading(
                operator="hashed",
                instance=instance,
                useful_s=useful_s,
                wait_core_s=useful_s * (self.instances / busy - 1),
                backlog=self._backlog / self.instances,
                wait_out_s=0.0,
                **reading,
            )
            for instance in range(self.instances)
        ]
        feed = Reading(operator="feed", window_s=WINDOW_S, useful_s=0, records_in=arrived, records_out=arrived)
        return Snapshot(
            dataflow=self._graph,
            plan=self.plan(),
            source_rates={"feed": self.records_per_s},
            readings=(feed, *readings),
            at_s=self._at_s,
            batch_costs={"hashed": _COST},
        )


_COST = BatchCost(
    per_record_s=RECORD_S,
    per_task_s=0.01,
    per_state_partition_s=0.0,
    state_partitions=0,
    driver_s=DRIVER_S,
    balance=1.0,
    longest_batch_s=BATCH_S,
)


def managed(machine: Machine, policy: str, *, windows: int = 40) -> tuple[list[int], list[Event]]:
    seen: list[int] = []
    events: list[Event] = []
    Manager(
        engine=machine,
        policy=create(policy),
        knobs=Knobs(interval_s=WINDOW_S, scale_down_delay_s=0),
        clock=machine,
        on_snapshot=lambda snapshot: seen.append(snapshot.plan["hashed"]),
        on_event=events.append,
    ).run(until_s=windows * WINDOW_S)
    return seen, events


@pytest.mark.parametrize("policy", ["ds2", "ds2-learned"])
@pytest.mark.parametrize("cores", [2, 3, 6])
@pytest.mark.parametrize("load", [1.3, 2.0, 5.0])
@pytest.mark.parametrize("instances", [1, 8, 16])
def test_it_settles_near_the_cores_whatever_is_asked(policy: str, cores: int, load: float, instances: int) -> None:
    machine = Machine(cores=cores, records_per_s=load * cores / RECORD_S, instances=instances)
    seen, events = managed(machine, policy)
    settled = seen[6:]
    assert set(settled) == {settled[-1]}, seen
    assert cores <= settled[-1] <= max(cores + 1, 4 / 3 * cores), seen
    assert sum(before != after for before, after in pairwise(seen)) <= 2
    last = [event for event in events if isinstance(event, Proposed)][-1]
    (reason,) = (r for r in last.proposal.advice["hashed"].reasons if r.kind is ReasonKind.NO_CORES)
    assert f"so more than {settled[-1]} do not help" in str(reason)


def test_cores_that_suffice_change_nothing() -> None:
    machine = Machine(cores=8, records_per_s=350, instances=1)
    seen, events = managed(machine, "ds2")
    assert seen[-1] == 4
    assert not any(event.proposal.names(ReasonKind.NO_CORES) for event in events if isinstance(event, Proposed))


def test_a_load_that_falls_is_followed_though_instances_get_in_each_others_way() -> None:
    machine = Machine(cores=2, records_per_s=400, instances=1)
    managed(machine, "ds2")
    machine.records_per_s = 40
    seen, _ = managed(machine, "ds2", windows=160)  # what has waited is worked off first, at 140/s
    assert max(seen) <= 3
    assert seen[-1] == 1
