"""The control sides of living instances in one process, over any transport, and who speaks to them from
outside."""

from __future__ import annotations

import json
import socket
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from elastream.dataflow import Dataflow, Operator
from elastream.decentralized.protocol.control import Controller, ControlState
from elastream.decentralized.protocol.instance import InstancePhase, Place
from elastream.decentralized.protocol.link import Body
from elastream.decentralized.protocol.messages import Create, Effect, operator_of
from elastream.decentralized.spark.folders import RunFolder, read_whole
from elastream.decentralized.spark.living_protocol import LivingProtocol
from elastream.decentralized.spark.outbox import Outbox
from elastream.decentralized.spark.run_key import RunKey
from elastream.decentralized.spark.settings import RunSettings
from elastream.decentralized.spark.takeover import take_over
from elastream.decentralized.spark.topic_names import control_topic
from elastream.decentralized.spark.transports import transport_of
from elastream.testing import chain
from tests.patience import PATIENCE_S, wait_until

FLOW = Dataflow.of((Operator(name=name, source=name == "a") for name in "abc"), chain("a", "b", "c"))
FIRST = ("a/0", "b/0", "c/0")
OVER_TCP = RunSettings(pipeline=Path("p.py"))

Link = tuple[str, str]
"""Sender and receiver."""


def over_kafka(servers: str) -> RunSettings:
    return replace(OVER_TCP, control="kafka", kafka_servers=servers, topics=f"tests-{uuid.uuid4().hex}")


@dataclass
class Notes:
    """What was said and heard on each link, as it got to the disk."""

    said: dict[Link, list[tuple[int, Body]]] = field(default_factory=lambda: defaultdict(list))
    heard: dict[Link, list[tuple[int, Body]]] = field(default_factory=lambda: defaultdict(list))

    def changed(self, me: str, before: ControlState, after: ControlState, body: Body) -> None:
        for receiver, link in after.outgoing.items():
            known = before.outgoing[receiver].posted if receiver in before.outgoing else 0
            self.said[me, receiver] += [(one.number, one.body) for one in link.waiting if one.number > known]
        for sender, heard in after.incoming.items():
            taken = before.incoming[sender].taken if sender in before.incoming else 0
            if heard.taken != taken:
                self.heard[sender, me].append((heard.taken, body))


class NotingProtocol(LivingProtocol):
    notes: Notes
    _body: Body = {}  # noqa: RUF012 - replaced, never changed

    def received(self, sender: str, incarnation: int, number: int, body: Body) -> None:
        self._body = body
        super().received(sender, incarnation, number, body)

    def _keep(self, state: ControlState) -> None:
        before = self._state
        super()._keep(state)
        self.notes.changed(self.me, before, state, self._body)


class Site:
    """The control side of one instance; a copy that it creates is started beside it."""

    def __init__(self, sites: Sites, me: str) -> None:
        self.sites = sites
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.stale: list[str] = []
        self.folder = sites.run.instance(me)
        self.protocol = NotingProtocol(
            Controller(
                Place.of(me, sites.flow, keeper=me.endswith("/0")), sites.settings.neighbour_locks(sites.flow)
            ),
            self.folder,
            Outbox(self.folder.outbox, lambda successor: sites.run.instance(successor).lane(me)),
            carry_out=self._carry_out,
            record=self._record,
        )
        self.protocol.notes = sites.notes
        self.protocol.begin()
        self.connect()

    def connect(self) -> None:
        self.transport = transport_of(
            self.sites.settings, self.protocol, self.sites.run, record=self._record, on_stale=self.stale.append
        )
        self.transport.start()

    def _record(self, event: str, **told: Any) -> None:
        self.events.append((event, told))
        self.sites.log.append((self.protocol.me, event, told))

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, Create):
            self.sites.wanted.add(effect.instance)

    @property
    def phase(self) -> InstancePhase:
        return self.protocol.state.phase

    @property
    def refusals(self) -> list[str]:
        return [told["why"] for event, told in self.events if event == "refused"]

    def look_after(self) -> bool:
        """What the main loop of a process does; there are no records here. Whether it goes on."""
        if self.folder.is_closed:
            self.transport.stop()
            return False
        for dead in self.protocol.left_behind():
            if take_over(self.sites.run, self.protocol.me, dead):
                self.protocol.taken_over(dead)
        if self.phase is InstancePhase.DRAINING:
            self.protocol.drained()
        elif self.phase is InstancePhase.ENDED and self.protocol.has_said_all:
            self.folder.mark_ended()
            self.transport.stop()
            return False
        return True


class Sites(dict[str, Site]):
    """The living ones, by their addresses."""

    def __init__(self, run: RunFolder, settings: RunSettings, flow: Dataflow) -> None:
        self.run, self.settings, self.flow = run, settings, flow
        self.log: list[tuple[str, str, dict[str, Any]]] = []
        """What everybody recorded, in the order of time."""
        self.wanted: set[str] = set(FIRST)
        """Somebody has created them; they may have been killed since."""
        self.notes = Notes()

    def look_after(self) -> None:
        """What the supervisors do, and the main loops."""
        for me in sorted(self.wanted - self.keys()):
            folder = self.run.instance(me)
            if not folder.has_ended and not folder.is_closed:
                self[me] = Site(self, me)
        for me, site in list(self.items()):
            if not site.look_after():
                del self[me]

    def at_rest(self) -> bool:
        self.look_after()
        return all(site.phase is InstancePhase.RUNNING and site.protocol.has_said_all for site in self.values())

    def all_of(self, operator: str) -> set[str]:
        return {me for me in self if operator_of(me) == operator}

    def story(self) -> str:
        return "\n".join(f"{me}: {site.protocol.state} {site.events[-5:]}" for me, site in self.items())

    def check_views(self) -> None:
        """All agree with who is alive."""
        for me, site in self.items():
            state, operator = site.protocol.state, operator_of(me)
            assert state.successors == self._all_of(self.flow.downstream(operator))
            assert state.predecessors == self._all_of(self.flow.upstream(operator))

    def _all_of(self, operators: Iterable[str]) -> set[str]:
        return {me for operator in operators for me in self.all_of(operator)}


@contextmanager
def living_sites(folder: Path, settings: RunSettings, flow: Dataflow = FLOW) -> Iterator[Sites]:
    sites = Sites(RunFolder(folder), settings, flow)
    try:
        sites.look_after()
        yield sites
    finally:
        for site in sites.values():
            site.transport.stop()


class TcpStranger:
    """Speaks to a site as somebody outside may."""

    def __init__(self, site: Site) -> None:
        wait_until(site.folder.endpoint.exists, "it listens")
        self._place = read_whole(site.folder.endpoint)
        self.run = site.folder.path.parents[2]

    def say(self, *, sender: str, to: str, incarnation: int, number: int) -> dict[str, Any]:
        """The answer: what was acknowledged, or why it was refused."""
        said = ("hello", sender, to, incarnation, self._place["nonce"], "any")
        hello = {"hello": sender, "to": to, "incarnation": incarnation, "nonce": "any"}
        hello["proof"] = RunKey(self.run).proof(*said)
        with self._connection() as ask:
            answer = ask(json.dumps(hello))
            return answer if "refused" in answer else ask(json.dumps({"number": number, "body": {}}))

    def say_raw(self, text: str) -> None:
        with self._connection() as ask:
            ask(text)

    @contextmanager
    def _connection(self) -> Iterator[Callable[[str], dict[str, Any]]]:
        place = (self._place["host"], self._place["port"])
        with socket.create_connection(place, timeout=PATIENCE_S) as connection:
            file = connection.makefile("rw")

            def ask(line: str) -> dict[str, Any]:
                file.write(line + "\n")
                file.flush()
                found: dict[str, Any] = json.loads(file.readline() or "{}")
                return found

            yield ask


class KafkaStranger:
    def __init__(self, site: Site) -> None:
        from confluent_kafka import Producer

        self._to = site.protocol.me
        self._settings = site.sites.settings
        self._producer = Producer({"bootstrap.servers": self._settings.kafka_servers})

    def say(self, *, sender: str, to: str, incarnation: int, number: int) -> dict[str, Any]:
        answers = control_topic(self._settings.kafka_servers, self._settings.topics, sender)
        answers.create()
        seen = answers.ends(patience_s=PATIENCE_S)[0]
        line = {"from": sender, "to": to, "incarnation": incarnation, "number": number, "body": {}}
        self.say_raw(json.dumps(line))
        wait_until(lambda: answers.ends(patience_s=PATIENCE_S)[0] > seen, "it answers")
        return next(line for line in self.read(sender)[seen:] if line["from"] == self._to)

    def say_raw(self, text: str) -> None:
        self.put(self._to, text.encode())

    def put(self, instance: str, *values: bytes) -> None:
        """Into the topic of an instance."""
        topic = control_topic(self._settings.kafka_servers, self._settings.topics, instance)
        for value in values:
            self._producer.produce(topic.name, value, partition=0)
        assert self._producer.flush(PATIENCE_S) == 0

    def read(self, instance: str) -> list[dict[str, Any]]:
        """All that is in the topic of an instance."""
        from elastream.engines.spark.channels.kafka_source import read_messages
        from elastream.engines.spark.channels.splits import Slice

        topic = control_topic(self._settings.kafka_servers, self._settings.topics, instance)
        everything = Slice(path="0", first=0, last=topic.ends(patience_s=PATIENCE_S)[0])
        found = read_messages(topic.servers, topic.name, everything)
        return [json.loads(value) for values in found for value in values]
