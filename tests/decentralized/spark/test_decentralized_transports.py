"""Control messages between living instances, over TCP and over Kafka: rounds of the protocol, kills, a broker that
is killed, messages that come twice, who is refused."""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elastream.decentralized.protocol.decision import ScalingPolicy, Variant
from elastream.decentralized.protocol.instance import InstancePhase
from elastream.decentralized.protocol.link import Stale
from elastream.decentralized.protocol.messages import Deletion
from elastream.decentralized.protocol.wire import message_to_json
from elastream.decentralized.spark import transports
from elastream.decentralized.spark.folders import RunFolder, read_whole, write_whole
from elastream.decentralized.spark.kafka_control import KafkaControl
from elastream.decentralized.spark.settings import RunSettings
from elastream.decentralized.spark.topic_names import control_topic, new_topics, records_topic
from elastream.decentralized.spark.transports import check_same_data, check_transport, delete_topics, with_topics
from elastream.engines.spark.kafka.broker import Broker
from elastream.engines.spark.kafka.topic import BrokerAway, Topic
from elastream.engines.spark.ports import free_port
from elastream.errors import ElastreamError, InvalidInput
from tests.decentralized.spark.control_sites import (
    OVER_TCP,
    KafkaStranger,
    Sites,
    TcpStranger,
    living_sites,
    over_kafka,
    wait_until,
)

MOST_OF_AN_OPERATOR = 4


@pytest.fixture(params=["tcp", "kafka"])
def settings(request: pytest.FixtureRequest) -> RunSettings:
    if request.param == "tcp":
        return OVER_TCP
    broker: Broker = request.getfixturevalue("broker")
    return over_kafka(broker.servers)


@pytest.fixture
def sites(settings: RunSettings, tmp_path: Path) -> Iterator[Sites]:
    with living_sites(tmp_path, settings) as found:
        yield found


def stranger_to(sites: Sites, me: str) -> Any:
    return (TcpStranger if sites.settings.control == "tcp" else KafkaStranger)(sites[me])


def test_a_duplication_reaches_everybody(sites: Sites) -> None:
    sites["b/0"].protocol.duplicate(2)
    wait_until(lambda: sites.at_rest() and len(sites) == 5, sites.story)
    everybody = {"b/0", "b/0.1", "b/0.2"}
    assert sites["a/0"].protocol.state.successors == everybody
    assert sites["c/0"].protocol.state.predecessors == everybody
    assert sites["b/0.2"].protocol.state.successors == {"c/0"}


def test_who_comes_back_on_its_folder_gets_what_was_said_meanwhile_once(sites: Sites) -> None:
    sites.pop("c/0").transport.stop()
    sites["b/0"].protocol.duplicate(1)
    wait_until(lambda: "a/0" not in sites["b/0"].protocol.state.awaited, "the other neighbour acknowledges")
    assert sites["b/0"].phase is InstancePhase.DUPLICATING, "one acknowledgement is missing"
    wait_until(sites.at_rest, sites.story)
    assert sites["c/0"].protocol.incarnation == 2
    assert sites["c/0"].protocol.state.predecessors == {"b/0", "b/0.1"}


def test_what_comes_twice_of_somebody_who_has_ended_is_dropped(
    tmp_path: Path,
) -> None:
    with living_sites(tmp_path, OVER_TCP) as sites:
        sites["b/0"].protocol.duplicate(1)
        wait_until(lambda: sites.at_rest() and len(sites) == 4, sites.story)
        sites["b/0.1"].protocol.leave()
        wait_until(lambda: sites.at_rest() and len(sites) == 3, sites.story)
        protocol, told = sites["a/0"].protocol, []
        protocol.forget_ended(lambda one: sites.run.instance(one).has_ended)
        over_kafka = KafkaControl(
            protocol,
            sites.run,
            servers="127.0.0.1:1",
            topics="none",
            record=lambda event, **why: told.append((event, why)),
            on_stale=told.append,
        )
        letter = {"to": "a/0", "incarnation": 1, "number": 1, "body": message_to_json(Deletion())}
        over_kafka._receive("b/0.1", letter)
        assert told == []
        assert "b/0.1" not in (read_whole(sites["a/0"].folder.journal) or {})["incoming"]


def test_a_copy_that_dies_for_good_is_given_up_and_what_waited_for_it_goes_on(tmp_path: Path) -> None:
    with living_sites(tmp_path, replace(OVER_TCP, dead_after_s=3.0)) as sites:
        sites["b/0"].protocol.duplicate(1)
        wait_until(lambda: sites.at_rest() and len(sites) == 4, sites.story)
        sites.wanted.discard("b/0.1")
        sites.pop("b/0.1").transport.stop()
        sites["c/0"].protocol.duplicate(1)
        wait_until(lambda: sites.at_rest() and sites.run.instance("b/0.1").has_ended, sites.story)
        assert sites["a/0"].protocol.state.successors == {"b/0"}
        assert sites["c/0"].protocol.state.predecessors == {"b/0"}
        assert sites["c/0"].phase is InstancePhase.RUNNING
        with pytest.raises(Stale, match="was declared dead"):
            sites["b/0"].protocol.greeted("b/0.1", "b/0", 9)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"sender": "z/0"}, "'b/0' does not know 'z/0'"),
        ({"to": "b/7"}, "looks for 'b/7', and this is 'b/0'"),
        ({"sender": "nobody"}, "an address is 'operator/number'"),
        ({"number": 3}, "message 1 was expected, found 3"),
    ],
    ids=["a stranger", "for somebody else", "no address", "a gap"],
)
def test_what_cannot_be_is_refused_with_a_reason_and_changes_nothing(
    sites: Sites, given: dict[str, Any], why: str
) -> None:
    before = sites["b/0"].protocol.state
    line = {"sender": "a/9", "to": "b/0", "incarnation": 1, "number": 1, **given}
    answer = stranger_to(sites, "b/0").say(**line)
    assert why in answer["refused"]
    assert any(why in refusal for refusal in sites["b/0"].refusals), "and it is on record"
    assert sites["b/0"].protocol.state == before


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("GET / HTTP/1.1", "not valid JSON"),
        ("[1, 2]", "is a JSON object, found list"),
        ("{}", "not understood"),
        ("[" * 100_000, "nested too deeply"),
        ('{"hello": "a/0", "to": "b/0", "incarnation": 1e400}', "not understood"),
    ],
)
def test_what_is_not_understood_is_on_record_and_the_rest_goes_on(sites: Sites, text: str, why: str) -> None:
    before = sites["b/0"].protocol.state
    stranger_to(sites, "b/0").say_raw(text)
    wait_until(lambda: bool(sites["b/0"].refusals), sites.story)
    assert why in sites["b/0"].refusals[0]
    assert sites["b/0"].protocol.state == before
    sites["b/0"].protocol.duplicate(1)
    wait_until(lambda: sites.at_rest() and len(sites) == 4, sites.story)
    sites.check_views()
    assert sites.all_of("b") == {"b/0", "b/0.1"}


def test_a_stale_process_is_refused_and_told_so(sites: Sites) -> None:
    old = sites.pop("b/0")
    old.transport.stop()
    sites.look_after()
    sites["b/0"].protocol.duplicate(1)
    wait_until(lambda: sites.at_rest() and len(sites) == 4, sites.story)
    view = sites["a/0"].protocol.state
    why = "start 1 of it is over, start 2 has taken its place"
    answer = stranger_to(sites, "a/0").say(sender="b/0", to="a/0", incarnation=1, number=9)
    assert answer["refused"] == why
    assert answer["stale"]
    old.connect()  # it was only suspended, and now has something to say
    try:
        old.protocol.duplicate(1)
        wait_until(lambda: why in old.stale, "it is told")
    finally:
        old.transport.stop()
    assert sites["b/0"].stale == []
    assert sites["a/0"].protocol.state == view


# A storm


class Killed(BaseException):
    pass


class Storm:
    """Instances of all operators come and go as a die says, and are killed and started again meanwhile."""

    def __init__(self, sites: Sites, seed: int) -> None:
        self.sites = sites
        self.rng = random.Random(seed)
        self.kills = self.duplications = self.leaves = 0
        self._dying: Path | None = None

    def replace(self, really: Callable[..., None], *paths: Any) -> None:
        """What is on the disk gets there by renaming: the one who is to die dies at one of these."""
        if self._dying is not None and Path(paths[1]).is_relative_to(self._dying):
            raise Killed
        really(*paths)

    def blow(self, steps: int) -> None:
        for _ in range(steps):
            self.sites.look_after()
            if self.rng.random() < 0.25:
                self._kill(self.rng.choice(sorted(self.sites)))
            else:
                self._scale(self.rng.choice(sorted(self.sites)))
            time.sleep(self.rng.choice((0.0, 0.02, 0.1)))

    def has_raged(self) -> bool:
        """On a slow machine fewer are free to scale when it is their turn."""
        if min(self.kills, self.duplications, self.leaves) > 3:
            return True
        self.blow(1)
        return False

    def _kill(self, me: str) -> None:
        self._dying = self.sites.run.instance(me).path
        time.sleep(0.05)  # in the middle of something, if there is anything
        self.sites.pop(me).transport.stop()
        self._dying = None
        self.kills += 1

    def _scale(self, me: str) -> None:
        site, operator = self.sites[me], me[0]
        if site.phase is not InstancePhase.RUNNING:
            return
        if not me.endswith("/0") and self.rng.random() < 0.6:
            self.leaves += 1
            site.protocol.leave()
        elif len(self.sites.all_of(operator)) < MOST_OF_AN_OPERATOR:
            self.duplications += 1
            site.protocol.duplicate(1)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_whoever_is_killed_nothing_is_lost_repeated_or_reordered_and_all_views_agree(
    sites: Sites, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    storm = Storm(sites, seed=4)
    really = os.replace
    monkeypatch.setattr(os, "replace", lambda *paths: storm.replace(really, *paths))
    storm.blow(25)
    if sites.settings.control == "kafka":
        broker: Broker = request.getfixturevalue("broker")
        broker.kill()
        try:
            storm.blow(6)
        finally:
            broker.start()
        deliver_everything_again(sites)
    storm.blow(10)
    wait_until(storm.has_raged, lambda: f"it goes on: {storm.kills}, {storm.duplications}, {storm.leaves}")
    wait_until(sites.at_rest, sites.story)
    sites.check_views()
    assert sites.notes.heard == {link: said for link, said in sites.notes.said.items() if said}
    refusals = [why for site in sites.values() for why in site.refusals]
    assert [why for why in refusals if "stale" not in why] == []


def deliver_everything_again(sites: Sites) -> None:
    for me, site in sites.items():
        stranger = KafkaStranger(site)
        stranger.put(me, *(json.dumps(line).encode() for line in stranger.read(me)))


def test_somebody_who_is_found_where_it_does_not_listen_any_more_is_looked_for_again(tmp_path: Path) -> None:
    """As where a run goes on over TCP, and what it left says where it listened before."""
    with living_sites(tmp_path, OVER_TCP) as sites:
        sites.pop("c/0").transport.stop()
        write_whole(sites.run.instance("c/0").endpoint, {"topic": "c-0", "incarnation": 1})
        sites["b/0"].protocol.duplicate(1)
        wait_until(lambda: "a/0" not in sites["b/0"].protocol.state.awaited, "the other neighbour acknowledges")
        wait_until(lambda: sites.at_rest() and len(sites) == 4, sites.story)
        sites.check_views()


# Kafka alone


def test_a_run_may_go_on_with_another_transport(broker: Broker, tmp_path: Path) -> None:
    with living_sites(tmp_path, OVER_TCP) as sites:
        sites.pop("c/0").transport.stop()
        sites["b/0"].protocol.duplicate(1)
        wait_until(lambda: "a/0" not in sites["b/0"].protocol.state.awaited, "one neighbour acknowledges")
    with living_sites(tmp_path, over_kafka(broker.servers)) as sites:
        sites.wanted.add("b/0.1")
        wait_until(sites.at_rest, sites.story)
        sites.check_views()
        assert sites["c/0"].protocol.state.predecessors == {"b/0", "b/0.1"}


def test_a_topic_that_is_lost_is_made_again_and_what_was_in_it_is_said_again(
    broker: Broker, tmp_path: Path
) -> None:
    settings = over_kafka(broker.servers)
    with living_sites(tmp_path, settings) as sites:
        sites["b/0"].protocol.duplicate(1)
        wait_until(lambda: sites.at_rest() and len(sites) == 4, sites.story)
        sites.pop("c/0").transport.stop()
        sites["b/0"].protocol.duplicate(1)
        wait_until(lambda: "a/0" not in sites["b/0"].protocol.state.awaited, "the others acknowledge")
        for me in ("a/0", "c/0"):
            control_topic(settings.kafka_servers, settings.topics, me).delete()
        wait_until(lambda: sites.at_rest() and len(sites) == 5, sites.story)
        sites.check_views()


def is_gone(topic: Topic) -> bool:
    try:
        return not topic.exists()
    except BrokerAway:  # it has much to do
        return False


def test_the_topics_of_who_has_ended_and_of_a_run_that_is_deleted_are_gone(broker: Broker, tmp_path: Path) -> None:
    settings = over_kafka(broker.servers)
    topics = {
        me: control_topic(settings.kafka_servers, settings.topics, me) for me in ("a/0", "b/0", "c/0", "b/0.1")
    }
    with living_sites(tmp_path, settings) as sites:
        settings.write(sites.run)
        sites["b/0"].protocol.duplicate(1)
        wait_until(lambda: sites.at_rest() and len(sites) == 4, sites.story)
        assert all(topic.exists() for topic in topics.values())
        sites["b/0.1"].protocol.leave()
        wait_until(lambda: sites.at_rest() and len(sites) == 3, sites.story)
        wait_until(lambda: is_gone(topics["b/0.1"]), "its topic is gone")
    assert delete_topics(sites.run) == []
    wait_until(lambda: all(map(is_gone, topics.values())), "all topics are gone")
    assert delete_topics(RunFolder(tmp_path / "nothing")) == []


@pytest.mark.slow
def test_a_broker_that_never_answers_holds_nobody_up(tmp_path: Path) -> None:
    with living_sites(tmp_path, over_kafka(f"127.0.0.1:{free_port('127.0.0.1')}")) as sites:
        sites["b/0"].protocol.duplicate(1)
        wait_until(lambda: any(event == "no broker" for event, _ in sites["b/0"].events), "it says what it lacks")
        began_s = time.monotonic()
        sites["b/0"].transport.stop()
        assert time.monotonic() - began_s < 30.0
        assert sites["b/0"].phase is InstancePhase.DUPLICATING


def test_names_of_topics_are_short_and_differ_where_addresses_do() -> None:
    addresses = ["b/0", "b/0.1", "b.0/1", "b-0/1", "bé/0", f"b/{'1.' * 300}1", f"b/{'1.' * 300}2"]
    topics = new_topics("a pipeline" * 100)
    names = [control_topic("localhost:1", topics, address).name for address in addresses]
    names += [records_topic("localhost:1", topics, address).name for address in addresses]
    assert len(set(names)) == len(names)
    assert all(len(name) <= 249 and set(name) < set("abcdefghijklmnopqrstuvwxyz0123456789-") for name in names)


def test_a_run_has_topics_of_its_own_and_keeps_them() -> None:
    chosen = replace(OVER_TCP, control="kafka")
    one, other = with_topics(chosen, "taxi zones"), with_topics(chosen, "taxi zones")
    assert one.topics.startswith("elastream-taxi-zones-")
    assert one.topics != other.topics
    assert with_topics(one, "taxi zones") == one
    assert with_topics(OVER_TCP, "taxi zones") == OVER_TCP


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"control": "kafak"}, "--control is tcp or kafka, found 'kafak' (did you mean 'kafka'?)"),
        ({"data": "topics"}, "--data is files or kafka, found 'topics'"),
        ({"data": "kafka", "policy": ScalingPolicy(variant=Variant.COUNTED)}, "use the variant 'local'"),
        ({"control": "kafka"}, "does not answer: `elastream kafka start` runs a broker"),
        ({"data": "kafka"}, "does not answer: `elastream kafka start` runs a broker"),
    ],
)
def test_what_cannot_work_between_instances_is_refused(
    given: dict[str, Any], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transports, "_ANSWER_S", 0.2)
    nowhere = f"127.0.0.1:{free_port('127.0.0.1')}"
    with pytest.raises(ElastreamError, match=re.escape(why)):
        check_transport(replace(OVER_TCP, kafka_servers=nowhere, **given))
    check_transport(OVER_TCP)


def test_records_cannot_move_between_files_and_topics(tmp_path: Path) -> None:
    topics = replace(OVER_TCP, data="kafka")
    check_same_data(topics, topics, RunFolder(tmp_path))
    with pytest.raises(InvalidInput, match="its records lie in files, and it cannot go on with --data kafka"):
        check_same_data(topics, OVER_TCP, RunFolder(tmp_path))
