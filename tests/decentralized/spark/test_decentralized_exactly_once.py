"""Instances that scale and are killed at every rename: each record is in the sink once, and everybody comes to
rest.

All that an instance has on disk gets there by a rename, so a kill at any moment is a kill at one of them. Here
the protocol, the outbox and the inbox run as they do in processes; the data job is a plain one that keeps its
positions as Spark does (planned before a batch, committed after it), messages are carried by hand, and a seeded
scheduler says what happens next and who is killed. With each kind of locks neighbouring operators take turns, too,
and never have more instances than they may.

Copies also die for good, at any rename, and are suspected, rightly or not: then the keeper of their operator takes
over what they held.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elastream.dataflow import Dataflow, Operator
from elastream.decentralized.errors import IllegalEvent
from elastream.decentralized.locks import LOCKS, LockKind
from elastream.decentralized.protocol.control import Controller, control_from_json
from elastream.decentralized.protocol.instance import InstancePhase, Place
from elastream.decentralized.protocol.link import Stale
from elastream.decentralized.protocol.messages import Create, Effect, operator_of
from elastream.decentralized.protocol.neighbour_locks import BUSY
from elastream.decentralized.spark.folders import InstanceFolder, RunFolder, read_whole, write_whole
from elastream.decentralized.spark.inbox import InstanceInbox, Lanes
from elastream.decentralized.spark.living_protocol import LivingProtocol
from elastream.decentralized.spark.outbox import Outbox
from elastream.decentralized.spark.settings import RunSettings
from elastream.decentralized.spark.takeover import take_over
from elastream.engines.spark.channels.files import FileChannel
from elastream.testing import chain

MOST_INSTANCES = 4
FLOW = Dataflow.of(
    (Operator(name=name, source=name == "a", max_parallelism=MOST_INSTANCES) for name in "abcd"), chain(*"abcd")
)
SCALES = ("b", "c")
RECORDS, IN_A_BATCH, MOST_IN_A_BATCH = 160, 8, 12
PROCESSING = (InstancePhase.RUNNING, InstancePhase.DUPLICATING, InstancePhase.LEAVING, InstancePhase.DRAINING)


class Killed(BaseException):
    pass


class Node:
    """A living instance. Everything that it needs after a kill is in its folder."""

    def __init__(
        self, run: RunFolder, me: str, carry_out: Callable[[Effect], None], locks: LockKind = LockKind.NONE
    ) -> None:
        self.me, self.run, self.folder = me, run, run.instance(me)
        outbox = Outbox(self.folder.outbox, lambda successor: run.instance(successor).lane(me))
        settings = RunSettings(pipeline=Path("p.py"), locks=locks)
        controller = Controller(Place.of(me, FLOW, keeper=me.endswith("/0")), settings.neighbour_locks(FLOW))
        self.refused: list[str] = []
        self.protocol = LivingProtocol(controller, self.folder, outbox, carry_out=carry_out, record=self._record)
        self.protocol.begin()
        self.inbox = InstanceInbox([self.folder.inbox / name for name in FLOW.upstream(operator_of(me))])

    @property
    def phase(self) -> InstancePhase:
        return self.protocol.state.phase

    @property
    def halted(self) -> bool:
        return self.me in self.protocol.state.dead

    def batch(self) -> bool:
        """Plan a batch, or the one that a kill left open; run it; commit it. Whether there was one."""
        plan, commit = self.folder.path / "plan.json", self.folder.path / "commit.json"
        done = read_whole(commit) or {"batch": -1, "offset": {}}
        planned = read_whole(plan)
        if planned is None or planned["batch"] <= done["batch"]:
            end = self._end(done["offset"])
            if end == done["offset"]:
                return False
            planned = {"batch": done["batch"] + 1, "start": done["offset"], "offset": end}
            write_whole(plan, planned)
        self._run(planned)
        write_whole(commit, {"batch": planned["batch"], "offset": planned["offset"]})
        return True

    def _end(self, start: dict[str, Any]) -> dict[str, Any]:
        if operator_of(self.me) == "a":
            return {"read": min(RECORDS, start.get("read", 0) + IN_A_BATCH)}
        return self._lanes.latest(start, MOST_IN_A_BATCH)

    def _run(self, planned: dict[str, Any]) -> None:
        if operator_of(self.me) == "a":
            numbers = range(planned["start"].get("read", 0), planned["offset"]["read"])
        else:
            numbers = [number for part in self._parts(planned) for number in part]
        records = pa.table({"id": pa.array(numbers, pa.int64())})
        if operator_of(self.me) == "d":
            sink = FileChannel(self.run.path / "kept")
            sink.create()
            sink.append(records, batch=planned["batch"])
        else:
            self.protocol.send_records(planned["batch"], records, came_s=0.0)

    def _parts(self, planned: dict[str, Any]) -> list[list[int]]:
        slices = [one for part in self._lanes.parts(planned["start"], planned["offset"], 2) for one in part]
        found = [(pq.read_table(self._upstream / one.path, partitioning=None), one) for one in slices]
        return [table["id"].to_pylist()[one.first : one.last] for table, one in found]

    @property
    def _upstream(self) -> Path:
        (before,) = FLOW.upstream(operator_of(self.me))
        return self.folder.inbox / before

    @property
    def _lanes(self) -> Lanes:
        return Lanes(self._upstream, self.run.path / "instances" / self._upstream.name)

    def _record(self, event: str, **told: Any) -> None:
        if event == "refused":
            self.refused.append(told["why"])


def processed(folder: InstanceFolder, done: int) -> dict[str, Any]:
    """Up to where an instance had come, from its folder."""
    planned = read_whole(folder.path / "plan.json")
    if planned is None:
        return {}
    (before,) = FLOW.upstream(operator_of(folder.me))
    return {before: planned["offset" if planned["batch"] <= done else "start"]}


class World:
    def __init__(self, folder: Path, seed: int, locks: LockKind = LockKind.NONE, *, mortal: bool = False) -> None:
        self.run = RunFolder(folder)
        self.mortal = mortal
        self.gone: set[str] = set()
        """Who died for good."""
        self.suspicions: set[tuple[str, str]] = set()
        self.locks = locks
        self.rng = random.Random(seed)
        self.nodes: dict[str, Node] = {}
        self.dead: set[str] = set()
        self.kills = 0
        self.created: set[str] = set()
        self._renames_left: int | None = None
        for first in ("a/0", "b/0", "c/0", "d/0"):
            self._start(first)

    # The disk

    def rename(self, really: Callable[..., None], *paths: Any) -> None:
        if self._renames_left is not None:
            self._renames_left -= 1
            if self._renames_left < 0:
                raise Killed
        really(*paths)

    def _perhaps_killed(self, me: str, act: Callable[[], Any]) -> Any:
        """Do something as this instance, which may be killed at the next rename, or the one after it, ..."""
        if self.rng.random() < 0.15:
            self._renames_left = self.rng.randrange(8)
        try:
            return act()
        except Killed:
            self.kills += 1
            self.nodes.pop(me, None)
            for_good = self.mortal and not me.endswith("/0") and self.rng.random() < 0.5
            (self.gone if for_good else self.dead).add(me)
        finally:
            self._renames_left = None
        return None

    # What happens

    def happen(self) -> None:
        what = self.rng.choice(
            ("batch", "batch", "batch", "message", "message", "scale", "end", "come back", "tell")
        )
        match what:
            case "batch":
                self._batch(self.rng.choice(sorted(self.nodes) or [""]))
            case "message":
                self._message()
            case "scale":
                self._scale()
            case "end":
                self.look_after()
            case "come back" if self.dead:
                self._start(self.rng.choice(sorted(self.dead)))
            case "tell" if self.mortal and self.rng.random() < 0.3:
                self._suspect(at_random=True)
            case "tell" if self.nodes:
                self._look_after_neighbours(self.rng.choice(sorted(self.nodes)))

    def settle(self) -> None:
        """Without more kills or decisions everything is processed and everybody has been told everything."""
        self.rng = random.Random(0)
        self.rng.random = lambda: 1.0  # type: ignore[method-assign]
        for _ in range(2_000):
            for me in sorted(self.dead):
                self._start(me)
            self._suspect(at_random=False)
            busy = [self._batch(me) for me in sorted(self.nodes)]
            busy += [self._message(), self.look_after()]
            if not any(busy):
                return
        raise AssertionError("does not come to rest")

    def die_for_good(self) -> None:
        """A copy, if there is one."""
        if copies := [me for me in self.nodes if not me.endswith("/0")]:
            me = self.rng.choice(sorted(copies))
            del self.nodes[me]
            self.gone.add(me)

    def _suspect(self, *, at_random: bool) -> None:
        """Those that are gone by everybody who watches them; at random somebody that may well live."""
        watched = {one for node in self.nodes.values() for one in node.protocol.watched()}
        suspects = {self.rng.choice(sorted(watched))} if at_random and watched else self.gone
        for me, node in sorted(self.nodes.items()):
            for one in sorted(node.protocol.watched() & suspects):
                if (me, one) not in self.suspicions and me in self.nodes:
                    self.suspicions.add((me, one))
                    self._perhaps_killed(me, lambda node=node, one=one: node.protocol.suspect(one))

    def _take_over(self, heir: Node, dead: str) -> None:
        self.nodes.pop(dead, None)  # it sees that its place is closed
        self.dead.discard(dead)
        left = self.run.instance(dead)
        done = Outbox(left.outbox, left.lane).done()
        if take_over(self.run, heir.me, dead, processed(left, done)):
            heir.protocol.taken_over(dead)

    def _start(self, me: str) -> None:
        if self.run.instance(me).is_closed:
            self.dead.discard(me)
            return

        def begin() -> None:
            self.nodes[me] = Node(self.run, me, self._carry_out, self.locks)

        self.dead.discard(me)
        self._perhaps_killed(me, begin)

    def _carry_out(self, effect: Effect) -> None:
        there = {*self.nodes, *self.dead, *self.gone}
        if isinstance(effect, Create) and effect.instance not in there:
            self.dead.add(effect.instance)  # it is there, and not yet up
            self.created.add(effect.instance)

    def _batch(self, me: str) -> bool:
        node = self.nodes.get(me)
        if node is None or node.phase not in PROCESSING:
            return False
        return bool(self._perhaps_killed(me, node.batch))

    def _message(self) -> bool:
        """The first that waits on some link; the acknowledgement may be lost."""
        links = [
            (node, receiver, waiting[0])
            for _, node in sorted(self.nodes.items())
            for receiver, waiting in sorted(node.protocol.waiting().items())
            if receiver in self.nodes or self.run.instance(receiver).has_ended
        ]
        if not links:
            return False
        sender, receiver, envelope = self.rng.choice(links)
        if self.run.instance(receiver).has_ended:
            sender.protocol.given_up(receiver)
            return True
        incarnation, to = sender.protocol.incarnation, self.nodes[receiver].protocol

        def take() -> bool:
            try:
                taken = to.greeted(sender.me, receiver, incarnation)
            except Stale:  # it was declared dead: the sender stops
                del self.nodes[sender.me]
                return False
            if envelope.number > taken:
                to.received(sender.me, incarnation, envelope.number, envelope.body)
            return True

        if self._perhaps_killed(receiver, take) and self.rng.random() > 0.1:
            sender.protocol.acknowledged(receiver, envelope.number)
        return True

    def _look_after_neighbours(self, me: str) -> None:
        protocol, inbox = self.nodes[me].protocol, self.nodes[me].inbox
        until_s = inbox.quiet_until_s()
        self._perhaps_killed(me, lambda: protocol.forget_ended(lambda one: self.run.instance(one).has_ended))
        if until_s is not None:
            self._perhaps_killed(me, lambda: protocol.tell_quiet(until_s))

    def _scale(self) -> None:
        free = [me for me, node in self.nodes.items() if operator_of(me) in SCALES and node.protocol.may_decide]
        if not free:
            return
        me = self.rng.choice(sorted(free))
        has_room = self.locks is not LockKind.NONE or self.living(operator_of(me)) < MOST_INSTANCES
        node = self.nodes[me]
        if self.rng.random() < 0.5 and has_room:
            self._perhaps_killed(me, lambda: node.protocol.duplicate(self.rng.choice((1, 1, 2))))
        elif not me.endswith("/0"):
            self._perhaps_killed(me, node.protocol.leave)

    def living(self, operator: str) -> int:
        return sum(operator_of(me) == operator for me in {*self.nodes, *self.dead})

    def busy(self) -> set[str]:
        """The operators of which an instance, living or killed, is in the middle of a change."""
        folders = [folder for folder in self.run.instances() if not folder.has_ended]
        journals = {folder.me: read_whole(folder.journal) for folder in folders}
        states = {me: control_from_json(found).instance for me, found in journals.items() if found is not None}
        return {operator_of(me) for me, state in states.items() if state.phase in BUSY}

    def look_after(self) -> bool:
        """What the main loop of a process does: see whether it is drained, or may end."""
        changed = False
        for me, node in sorted(self.nodes.items()):
            if node.halted or node.folder.is_closed:
                changed = True
                self.nodes.pop(me, None)
                continue
            for dead in node.protocol.left_behind():
                changed = True
                self._perhaps_killed(me, lambda node=node, dead=dead: self._take_over(node, dead))
            if me not in self.nodes:
                continue
            if node.phase is InstancePhase.DRAINING and node.inbox.pending() == 0:
                changed = True
                self._perhaps_killed(me, node.protocol.drained)
            elif node.phase is InstancePhase.ENDED and node.protocol.has_said_all:
                changed = True
                node.folder.mark_ended()
                del self.nodes[me]
                for left in (node.folder.inbox, node.folder.outbox):
                    shutil.rmtree(left, ignore_errors=True)
        return changed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("locks", "seed"),
    [*((LockKind.NONE, seed) for seed in range(6)), *((kind, seed) for kind in LOCKS for seed in range(2))],
)
def test_every_record_once_whoever_is_killed_wherever(
    tmp_path: Path, locks: LockKind, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = os.replace
    world = World(tmp_path, seed, locks)
    monkeypatch.setattr(os, "replace", lambda *paths: world.rename(really, *paths))
    for _ in range(300):
        world.happen()
        if locks is not LockKind.NONE:
            assert not world.busy() >= set(SCALES), "neighbours take turns"
            assert max(map(world.living, SCALES)) <= MOST_INSTANCES
    world.settle()
    kept = sorted(
        number for table in FileChannel(tmp_path / "kept").tables() for number in table["id"].to_pylist()
    )
    assert kept == list(range(RECORDS))
    assert world.kills > 3
    assert {operator_of(me) for me in world.created} == set(SCALES)
    living = {operator: {me for me in world.nodes if operator_of(me) == operator} for operator in SCALES}
    assert world.nodes["a/0"].protocol.state.successors == living["b"]
    for me in living["b"]:
        assert world.nodes[me].protocol.state.successors == living["c"]
    assert world.nodes["d/0"].protocol.state.predecessors == living["c"]
    assert {node.phase for node in world.nodes.values()} == {InstancePhase.RUNNING}
    assert not [why for node in world.nodes.values() for why in node.refused]
    for node in world.nodes.values():
        node.protocol.forget_ended(lambda one: world.run.instance(one).has_ended)
        journal = control_from_json(read_whole(node.folder.journal) or {})
        assert {*journal.outgoing, *journal.incoming} <= world.nodes.keys(), "of who ended nothing is kept"


@pytest.mark.parametrize("seed", range(3))
def test_every_record_once_though_copies_die_for_good_and_some_are_only_thought_dead(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = os.replace
    world = World(tmp_path, seed, mortal=True)
    monkeypatch.setattr(os, "replace", lambda *paths: world.rename(really, *paths))
    for number in range(250):
        world.happen()
        if number % 40 == 39:
            world.die_for_good()
    world.settle()
    kept = sorted(
        number for table in FileChannel(tmp_path / "kept").tables() for number in table["id"].to_pylist()
    )
    assert kept == list(range(RECORDS))
    living = {operator: {me for me in world.nodes if operator_of(me) == operator} for operator in SCALES}
    assert world.nodes["a/0"].protocol.state.successors == living["b"]
    for me in living["b"]:
        assert world.nodes[me].protocol.state.successors == living["c"]
    assert {node.phase for node in world.nodes.values()} == {InstancePhase.RUNNING}
    closed = {folder.me for folder in world.run.instances() if folder.is_closed}
    assert closed >= world.gone - {folder.me for folder in world.run.instances() if not folder.journal.exists()}
    assert closed, "somebody was taken over"


def test_an_instance_that_has_ended_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path, seed=0)
    world.rng.random = lambda: 1.0  # type: ignore[method-assign]
    world.nodes["b/0"].protocol.duplicate(1)
    world.settle()
    world.nodes["b/0.1"].protocol.leave()
    world.settle()
    assert "b/0.1" not in world.nodes
    with pytest.raises(IllegalEvent, match="has ended: its place was given up"):
        Node(world.run, "b/0.1", lambda _: None)
