"""Nodes in what is written down: snapshots, recordings, the manager's store and scenarios."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pools import line

from elastream.dataflow import Plan
from elastream.engines.simulated.scenario import read_scenario
from elastream.errors import InvalidInput
from elastream.manager.decision import Decision
from elastream.manager.events import Decided, event_from_json, event_to_json
from elastream.manager.state import ManagerState
from elastream.manager.store import Store
from elastream.measurement import Snapshot
from elastream.measurement.recording import RecordingWriter, read_recording
from elastream.measurement.snapshot_format import snapshot_from_json, snapshot_to_json
from elastream.policies.knowledge import NOTHING_KNOWN
from elastream.policies.mst.mst_model import Sustained
from elastream.testing import alike, chain, snapshot_of

POOL = line(slots=2, costs={"b": 2.0}, a=0, b=10, c=40).with_node("c", available=False)


def snapshot() -> Snapshot:
    plain = snapshot_of(edges=chain("s", "map"), source_rates={"s": 1}, readings=alike("map", instances=2))
    return replace(plain, nodes=POOL, placement={"map": ("a", "b")})


def test_a_snapshot_with_nodes_is_written_and_read_again() -> None:
    written = json.loads(json.dumps(snapshot_to_json(snapshot())))
    assert snapshot_from_json(written, place="here") == snapshot()
    assert "nodes" not in snapshot_to_json(replace(snapshot(), nodes=None, placement={}))


def test_a_recording_keeps_the_nodes(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    with RecordingWriter(path) as recording:
        recording.snapshot(snapshot())
    assert read_recording(path).snapshots == (snapshot(),)


DECISION = Decision(
    number=1, at_s=1.0, before=Plan({"map": 2}), after=Plan({"map": 3}), nodes={"map": ("a", "b", "a")}
)


def test_a_decision_that_names_nodes_survives_the_store(tmp_path: Path) -> None:
    point = Sustained(instances=2, delay_s=0.01, records_per_s=100.0)
    knowledge = replace(NOTHING_KNOWN, sustained={"map": (point,)})
    state = ManagerState(under_way=DECISION, knowledge=knowledge)
    with Store(tmp_path / "manager.db") as store:
        store.save(state)
        assert store.load() == state


def test_events_of_before_there_were_nodes_are_still_read() -> None:
    written = event_to_json(Decided(at_s=1.0, decision=DECISION))
    del written["decision"]["nodes"]
    found = event_from_json(written)
    assert isinstance(found, Decided)
    assert found.decision.nodes == {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"placement": {"map": ["a"]}}, "placement: 'map' has 2 instances, but 1 nodes"),
        ({"placement": {"map": ["a", "z"]}}, "placement: 'map': unknown node 'z'"),
        ({"placement": {"mop": ["a"]}}, "placement: unknown operator 'mop'"),
        ({"nodes": None}, "placement: 'map' runs on nodes, but no nodes are given"),
        (
            {"nodes": {"nodes": [{"name": "a"}], "delays_s": [[0, 1]]}},
            "the row of 'a': expected 1 delays, found 2",
        ),
    ],
)
def test_a_snapshot_whose_nodes_do_not_fit_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        snapshot_from_json({**snapshot_to_json(snapshot()), **change}, place="here")


SCENARIO = """
name: three nodes
duration: 10 min
nodes:
  names: [a, b, c]
  delays: [[0, 20 ms, 300 ms], [20 ms, 0, 280 ms], [300 ms, 280 ms, 0]]
  cost: {b: 2}
  slots: {a: 4}
operators:
  source: {source: true, load: 10, replay_speed: 1}
  map: {reads: source, capacity: {per_instance: 100, delay_cost: 50}, parallelism: 2, nodes: [a, c]}
"""


def test_a_scenario_may_have_nodes(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(SCENARIO)
    model = read_scenario(path).model
    assert model.nodes is not None
    assert model.nodes.largest_delay_s(("a", "c")) == 0.3
    assert (model.nodes["a"].slots, model.nodes["b"].cost) == (4, 2.0)
    assert model.initial_nodes == {"map": ("a", "c")}
    assert model.sources["source"].replay_speed == 1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[20 ms, 0, 280 ms]", "[20 ms, 0]", "nodes: delays: the row of 'b': expected 3 delays, found 2"),
        ("{b: 2}", "{z: 2}", "nodes: cost: unknown node 'z'"),
        ("{a: 4}", "{a: 0}", "node 'a': slots must be at least 1, found 0"),
        ("nodes: [a, c]", "nodes: [a, z]", "unknown node 'z'"),
        ("0, 20 ms, 300 ms", "0, -20 ms, 300 ms", "-20 ms"),
    ],
)
def test_a_scenario_whose_nodes_do_not_fit_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(SCENARIO.replace(old, new))
    with pytest.raises(InvalidInput, match=message):
        read_scenario(path)
