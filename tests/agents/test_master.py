"""The master's mind: who is taken, what is asked of them, and what a round holds. No socket, no clock."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastream.agents.gathering import MOST_GRACE_S
from elastream.agents.master import CLOCK_TOLERANCE_S, HELLO_WITHIN_S, Master
from elastream.agents.messages import (
    VERSION,
    Acknowledged,
    Claim,
    FromAgent,
    FromMaster,
    Hello,
    Readings,
    Refused,
    Sample,
    Subscribed,
    Welcome,
    wanted_of,
)
from elastream.agents.rounds import Close, Effect, Round, Send, Tell
from elastream.agents.subscription import Subscription
from elastream.policies.rules import every_operator, percent, records, rule, rules, seconds
from elastream.policies.rules.rule import RuleSet

WALL_S = 1_700_000_000.0
OFFERS = ("cpu_utilization", "memory_utilization", "queue_length")
RULES = rules(
    rule("long")
    .scale_out("map")
    .by(1)
    .never_above(9)
    .when("queue_length")
    .above(records(9))
    .for_at_least(seconds(5)),
    rule("hot")
    .scale_out(every_operator)
    .by(1)
    .never_above(9)
    .when("cpu_utilization")
    .above(percent(80))
    .for_at_least(seconds(5)),
)

Kind = TypeVar("Kind")


@dataclass
class World:
    """A master with an interval of 1 s, and time that passes when a test says so."""

    rule_set: RuleSet = RULES
    operators: frozenset[str] | None = None
    now_s: float = 0.0
    master: Master = field(init=False)
    effects: list[Effect] = field(default_factory=list)
    """Since they were last looked at."""

    def __post_init__(self) -> None:
        self.master = Master(
            interval_s=1.0,
            now_s=self.now_s,
            token="secret",
            subscription=Subscription(rules=self.rule_set),
            operators=self.operators,
        )

    @property
    def wall_s(self) -> float:
        return WALL_S + self.now_s

    def do(self, effects: Iterable[Effect]) -> None:
        self.effects += effects

    def sends(self, connection: int, message: FromAgent) -> None:
        self.do(self.master.received(connection, message, self.now_s, self.wall_s))

    def joins(self, connection: int, *claims: Claim, agent: str = "", run: str = "", **changes: object) -> None:
        self.do(self.master.opened(connection, f"host:{connection}", self.now_s))
        named = {"agent": agent, "run": run, "claims": claims}
        hello = self.hello(connection)._replace(**{name: value for name, value in named.items() if value})
        self.sends(connection, hello._replace(**changes))

    def hello(self, connection: int) -> Hello:
        return Hello(
            version=VERSION,
            token="secret",
            agent=f"agent{connection}",
            run=f"run{connection}",
            claims=(Claim("map"),),
            offers=OFFERS,
            at_s=self.wall_s,
        )

    def reads(
        self, connection: int, number: int, queue_length: float = 1.0, *, age_s: float = 0.0, ahead_s: float = 0.0
    ) -> None:
        sample = Sample(number, round(1000 * age_s), ((queue_length,),))
        message = Readings(at_s=self.wall_s + ahead_s, names=("queue_length",), samples=(sample,))
        self.sends(connection, message)

    def seen(self, kind: type[Kind]) -> list[Kind]:
        found = [effect for effect in self.effects if isinstance(effect, kind)]
        self.effects = [effect for effect in self.effects if not isinstance(effect, kind)]
        return found

    def sent(self, connection: int) -> list[FromMaster]:
        found = [e.message for e in self.effects if isinstance(e, Send) and e.connection == connection]
        self.effects = [e for e in self.effects if not (isinstance(e, Send) and e.connection == connection)]
        return found

    def warnings(self) -> list[str]:
        return [told.text for told in self.seen(Tell) if told.warning]

    def round(self) -> Round | None:
        return self.master.round(self.now_s, self.wall_s)


def welcome(world: World, connection: int) -> Welcome:
    (found,) = world.sent(connection)
    assert isinstance(found, Welcome)
    return found


def queue_lengths(found: Round | None) -> dict[tuple[str, int], float]:
    assert found is not None, "the round is over"
    return {(r.operator, r.instance): r.values["queue_length"] for r in found.readings}


# Who comes


def test_each_agent_gets_the_lowest_number_that_is_free() -> None:
    world = World()
    world.joins(1, Claim("map", 1))
    world.joins(2)
    world.joins(3, Claim("map"), Claim("map"), Claim("sink"))
    assert [welcome(world, connection).instances for connection in (1, 2, 3)] == [(1,), (0,), (2, 3, 0)]


def test_a_wrong_token_is_closed_without_a_word_and_counted() -> None:
    world = World()
    for connection in (1, 2, 3):
        world.joins(connection, token="secreT")
    assert world.seen(Send) == []
    assert world.seen(Close) == [Close(connection=1), Close(connection=2), Close(connection=3)]
    assert world.master.counts.wrong_tokens == 3
    assert world.warnings() == ["host:1: closed: a wrong token; 1 so far"]
    world.now_s = 60.0
    world.joins(4, token="")
    assert world.warnings() == ["host:4: closed: a wrong token; 4 so far"], "told once a minute"


def test_a_second_agent_with_the_same_name_is_refused_and_the_first_goes_on() -> None:
    world = World()
    world.joins(1, agent="worker")
    welcome(world, 1)
    world.now_s = 0.4
    world.joins(2, agent="worker")
    (refused,) = world.sent(2)
    assert refused == Refused(why="another agent at host:1, heard 0.4 s ago, has the name 'worker'")
    assert world.seen(Close) == [Close(connection=2)]
    world.now_s = 1.0
    world.reads(1, 1, 7.0)
    assert queue_lengths(world.round()) == {("map", 0): 7.0}


def test_an_agent_that_is_back_takes_the_place_of_its_own_connection() -> None:
    world = World()
    world.joins(1, agent="worker", run="same")
    world.joins(2, agent="worker", run="same")
    assert world.seen(Close) == [Close(connection=1)]
    assert welcome(world, 2).instances == (0,)


def test_a_name_is_free_again_when_its_agent_was_silent_for_long() -> None:
    world = World()
    world.joins(1, agent="worker")
    world.now_s = 6.0
    world.joins(2, agent="worker")
    assert world.seen(Close) == [Close(connection=1)]
    assert welcome(world, 2).instances == (0,)


def test_an_instance_is_read_by_one_agent() -> None:
    world = World()
    world.joins(1, Claim("map", 3))
    world.joins(2, Claim("map", 3))
    assert world.sent(2) == [Refused(why="map:3 is read by the agent 'agent1'")]
    world.joins(3, Claim("map", 3, must=False))
    assert welcome(world, 3).instances == (0,), "one that only had the number before gets another"
    world.joins(4, Claim("map", 5), Claim("map", 5))
    assert world.sent(4) == [Refused(why="it reads twice for the same instance")]


def test_an_operator_that_there_is_not_is_refused_with_the_nearest() -> None:
    world = World(operators=frozenset({"map", "sink"}))
    world.joins(1, Claim("mpa"))
    assert world.sent(1) == [Refused(why="there is no operator 'mpa' (did you mean 'map'?)")]
    assert world.master.counts.refused == 1


def test_what_comes_out_of_turn_ends_the_connection() -> None:
    world = World()
    world.do(world.master.opened(1, "host:1", 0.0))
    world.reads(1, 1)
    world.joins(2)
    world.sends(2, world.hello(2))
    assert world.seen(Close) == [Close(connection=1), Close(connection=2)]
    assert world.master.counts.broken == 2
    assert "host:1: closed: Readings was not expected now" in world.warnings()


def test_readings_for_another_number_of_instances_end_the_connection() -> None:
    world = World()
    world.joins(1, Claim("map"), Claim("sink"))
    world.reads(1, 1)
    assert world.seen(Close) == [Close(connection=1)]
    assert "host:1: closed: 1 readings of queue_length for 2 instances" in world.warnings()


def test_a_connection_that_says_nothing_is_closed() -> None:
    world = World()
    world.do(world.master.opened(1, "host:1", 0.0))
    world.do(world.master.look(HELLO_WITHIN_S))
    assert world.seen(Close) == []
    world.do(world.master.look(HELLO_WITHIN_S + 0.1))
    assert world.seen(Close) == [Close(connection=1)]


def test_whoever_says_nothing_makes_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elastream.agents.master.MOST_AGENTS", 3)
    world = World()
    world.joins(1)
    for silent in (2, 3):
        world.do(world.master.opened(silent, f"host:{silent}", 0.0))
    world.joins(4, Claim("map", 1))
    assert [effect.connection for effect in world.seen(Close)] == [2]
    assert isinstance(world.sent(4)[0], Welcome)
    world.joins(5, Claim("map", 2))
    world.seen(Close)
    world.joins(6, Claim("map", 3))
    assert [effect.connection for effect in world.seen(Close)] == [6], "none of those who are known"
    assert world.warnings()[-1] == "host:6: refused, as 3 agents are connected already"


def test_an_agent_that_falls_silent_is_told_and_in_the_end_closed() -> None:
    world = World()
    world.joins(1)
    world.effects.clear()
    for now_s in range(1, 21):
        world.do(world.master.look(float(now_s)))
    assert world.warnings() == ["the agent 'agent1' (host:1) was not heard for 6 s"]
    world.do(world.master.look(21.0))
    assert world.seen(Close) == [Close(connection=1)]


# What is asked of them


def test_only_what_a_rule_for_the_operator_looks_at_is_asked_for() -> None:
    world = World()
    world.joins(1, Claim("map"), Claim("sink"))
    assert wanted_of(welcome(world, 1)) == ({"cpu_utilization", "queue_length"}, {"cpu_utilization"})


def test_a_metric_that_is_wanted_and_not_offered_is_told() -> None:
    world = World()
    world.joins(1, offers=("cpu_utilization",))
    assert wanted_of(welcome(world, 1)) == ({"cpu_utilization"},)
    assert world.warnings() == ["the agent 'agent1' (host:1) cannot read queue_length, which is wanted of map"]


def test_changed_rules_change_the_subscription_of_those_that_they_concern() -> None:
    world = World()
    world.joins(1, Claim("map"))
    world.joins(2, Claim("sink"))
    world.effects.clear()
    only_hot = RuleSet((RULES.rules[1],))
    world.do(world.master.subscribe(Subscription(rules=only_hot), None))
    assert (world.sent(1), world.sent(2)) == ([Subscribed(names=("cpu_utilization",), wanted=((0,),))], [])
    world.do(world.master.subscribe(Subscription(views=frozenset({"memory_utilization"})), None))
    expected = [Subscribed(names=("memory_utilization",), wanted=((0,),))]
    assert (world.sent(1), world.sent(2)) == (expected, expected)


def test_a_reading_that_was_on_its_way_when_the_rules_changed_is_cut_to_the_new_ones() -> None:
    world = World()
    world.joins(1)
    world.now_s = 1.0
    world.reads(1, 1, 7.0)
    world.do(world.master.subscribe(Subscription(rules=RuleSet((RULES.rules[1],))), None))
    found = world.round()
    assert found is not None
    assert [dict(reading.values) for reading in found.readings] == [{}]


# Rounds


def test_a_round_is_over_when_all_were_heard() -> None:
    world = World()
    world.joins(1)
    world.joins(2)
    world.now_s = 0.99
    world.reads(1, 1, 10.0)
    assert world.round() is None, "not before it is due"
    world.now_s = 1.01
    assert world.round() is None, "agent2 was not heard"
    world.reads(2, 1, 20.0)
    found = world.round()
    assert queue_lengths(found) == {("map", 0): 10.0, ("map", 1): 20.0}
    assert found is not None
    assert found.window_s == pytest.approx(1.01)
    assert world.round() is None


def test_a_round_does_not_wait_for_long() -> None:
    world = World()
    world.joins(1)
    world.joins(2)
    world.now_s = 1.0
    world.reads(1, 1, 10.0)
    world.now_s = 1.0 + MOST_GRACE_S - 0.01
    assert world.round() is None
    assert world.master.looks_again_s(world.now_s) == 1.0 + MOST_GRACE_S
    world.now_s = 1.0 + MOST_GRACE_S
    assert queue_lengths(world.round()) == {("map", 0): 10.0}


def test_nobody_is_waited_for_who_was_not_heard_for_long() -> None:
    world = World(now_s=0.0)
    world.joins(1)
    for now_s in (1.2, 2.2):
        world.now_s = now_s
        assert queue_lengths(world.round()) == {}
    world.now_s = 3.0
    assert queue_lengths(world.round()) == {}, "at once"


def test_rounds_that_nobody_looked_for_are_skipped() -> None:
    world = World()
    world.now_s = 10.5
    found = world.round()
    assert found is not None
    assert found.window_s == 10.5
    assert world.round() is None
    assert world.master.looks_again_s(world.now_s) == 11.0


def test_of_several_readings_in_a_round_the_newest_counts() -> None:
    world = World()
    world.joins(1)
    for number, now_s in enumerate((0.2, 0.6, 1.0), start=1):
        world.now_s = now_s
        world.reads(1, number, 10.0 * number)
    found = world.round()
    assert queue_lengths(found) == {("map", 0): 30.0}
    assert found is not None
    assert [(late.age_s, late.values) for late in found.late] == [
        (1.0, {"queue_length": {0: 10.0}}),
        (pytest.approx(0.4), {"queue_length": {0: 20.0}}),
    ]
    counts = world.master.counts
    assert (counts.readings, counts.late) == (3, 2)


def test_what_was_read_without_a_connection_is_recorded_but_is_not_of_this_round() -> None:
    world = World()
    world.joins(1)
    world.now_s = 1.0
    for number, age_s in ((1, 4.0), (2, 3.0), (3, 0.0)):
        world.reads(1, number, 10.0 * number, age_s=age_s)
    found = world.round()
    assert queue_lengths(found) == {("map", 0): 30.0}
    assert found is not None
    assert [(late.operator, late.age_s, late.values) for late in found.late] == [
        ("map", 4.0, {"queue_length": {0: 10.0}}),
        ("map", 3.0, {"queue_length": {0: 20.0}}),
    ]
    assert (world.master.counts.readings, world.master.counts.late) == (3, 2)


def test_what_several_agents_bring_late_of_one_time_is_put_together() -> None:
    world = World()
    world.joins(1)
    world.joins(2)
    world.now_s = 1.0
    world.reads(1, 1, 10.0, age_s=4.1)
    world.reads(2, 1, 20.0, age_s=3.9)
    world.now_s = 1.2
    found = world.round()
    assert found is not None
    (late,) = found.late
    assert (late.age_s, late.values) == (4.0, {"queue_length": {0: 10.0, 1: 20.0}})


def test_a_round_that_nobody_evaluated_in_time_is_late_with_the_next_one() -> None:
    world = World()
    world.joins(1)
    world.now_s = 1.0
    world.reads(1, 1, 5.0, age_s=3.0)
    world.reads(1, 2, 10.0)
    first = world.round()
    world.now_s = 2.0
    world.reads(1, 3, 20.0)
    second = world.round()
    assert first is not None
    assert second is not None
    both = first.followed_by(second)
    assert queue_lengths(both) == {("map", 0): 20.0}
    assert both.window_s == 2.0
    late = [(one.age_s, one.values["queue_length"][0]) for one in both.late]
    assert late == [(4.0, 5.0), (1.0, 10.0)], "what came late to it is older by then, too"


def test_what_agents_gave_up_is_counted_and_told() -> None:
    world = World()
    world.joins(1)
    world.effects.clear()
    for number, thinned in ((1, 0), (2, 150), (3, 150)):
        sample = Sample(number, 0, ((1.0,),))
        world.sends(1, Readings(at_s=world.wall_s, names=("queue_length",), samples=(sample,), thinned=thinned))
    assert world.master.counts.thinned == 150
    assert world.warnings() == [
        "the agent 'agent1' (host:1) has given up 150 of its oldest readings: an outage was longer than its memory"
    ]


def test_what_is_sent_again_counts_once() -> None:
    world = World()
    world.joins(1, agent="worker", run="same")
    world.reads(1, 1, 10.0)
    world.joins(2, agent="worker", run="same")
    world.reads(2, 1, 10.0)
    world.now_s = 1.0
    world.reads(2, 2, 20.0)
    assert queue_lengths(world.round()) == {("map", 0): 20.0}
    assert (world.master.counts.readings, world.master.counts.duplicates) == (2, 1)


def test_an_agent_that_was_started_again_counts_from_one() -> None:
    world = World()
    world.joins(1, agent="worker", run="first")
    world.reads(1, 900, 10.0)
    world.do(world.master.closed(1))
    world.joins(2, agent="worker", run="second")
    world.now_s = 1.0
    world.reads(2, 1, 20.0)
    assert queue_lengths(world.round()) == {("map", 0): 20.0}


def test_one_who_is_gone_gives_way_to_whoever_reads_for_its_instance_now() -> None:
    world = World()
    world.joins(1, Claim("map", 0))
    world.reads(1, 1, 10.0)
    world.do(world.master.closed(1))
    world.joins(2, Claim("map", 0))
    world.now_s = 1.0
    world.reads(2, 1, 20.0)
    assert queue_lengths(world.round()) == {("map", 0): 20.0}


def test_readings_are_acknowledged_when_they_were_evaluated() -> None:
    world = World()
    world.joins(1)
    world.joins(2)
    world.effects.clear()
    world.now_s = 1.0
    world.reads(1, 5)
    world.reads(2, 8)
    found = world.round()
    assert world.seen(Send) == []
    assert found is not None
    world.now_s = 1.25
    world.reads(1, 6)
    world.do(world.master.closed(2))
    world.do(world.master.evaluated(found, world.now_s))
    assert world.sent(1) == [Acknowledged(received=((5, 5),), next_in_s=0.75)]
    assert world.sent(2) == [], "its connection is gone"


# Clocks


@pytest.mark.parametrize(("ahead_s", "words"), [(3 * 3600.0, "3 h ahead"), (-5.5 * 3600.0, "5 h 30 min behind")])
def test_the_readings_of_an_agent_whose_clock_is_off_are_stamped_on_arrival(ahead_s: float, words: str) -> None:
    world = World()
    world.joins(1)
    world.effects.clear()
    for number in (1, 2):
        world.now_s = float(number)
        world.reads(1, number, ahead_s=ahead_s, age_s=0.5)
        found = world.round()
        assert found is not None
        (reading,) = found.readings
        assert reading.taken_at_s == WALL_S + number - 0.5
    expected = f"the clock of the agent 'agent1' (host:1) is {words}: its readings are stamped on arrival"
    assert world.warnings() == [expected]
    world.reads(1, 3, ahead_s=0.0)
    assert [told.text for told in world.seen(Tell)] == ["the clock of the agent 'agent1' (host:1) is right again"]


def test_a_clock_that_is_off_is_seen_with_the_first_word() -> None:
    world = World()
    world.joins(1, at_s=world.wall_s - 7200.0)
    (told,) = world.warnings()
    assert told.startswith("the clock of the agent 'agent1' (host:1) is 2 h behind")


def test_a_clock_that_is_off_by_a_little_is_believed() -> None:
    world = World()
    world.joins(1)
    world.now_s = 1.0
    world.reads(1, 1, ahead_s=CLOCK_TOLERANCE_S - 0.1)
    found = world.round()
    assert found is not None
    assert found.readings[0].taken_at_s == pytest.approx(WALL_S + 1.0 + CLOCK_TOLERANCE_S - 0.1)
    assert world.warnings() == []


# Whatever happens

connections = st.integers(1, 4)
claim_lists = st.lists(
    st.builds(Claim, st.sampled_from(["map", "sink"]), st.none() | st.integers(0, 2), st.booleans()),
    min_size=1,
    max_size=3,
)


@given(
    st.lists(
        st.tuples(st.just("joins"), connections, st.sampled_from(["a", "b", "c"]), claim_lists)
        | st.tuples(st.just("leaves"), connections)
        | st.tuples(st.just("reads"), connections, st.integers(1, 9))
        | st.tuples(st.just("waits"), st.floats(0.0, 3.0)),
        max_size=30,
    )
)
def test_whoever_comes_and_goes_a_round_holds_each_instance_once(events: list[tuple[object, ...]]) -> None:
    world, open_ = World(), set()
    for number, event in enumerate(events):
        match event:
            case ("joins", int(connection), str(agent), list(claims)) if connection not in open_:
                open_.add(connection)
                world.joins(connection, *claims, agent=agent, run=str(number))
            case ("leaves", int(connection)):
                world.do(world.master.closed(connection))
                open_.discard(connection)
            case ("reads", int(connection), int(sample)):
                world.reads(connection, sample)
            case ("waits", float(seconds_)):
                world.now_s += seconds_
                world.do(world.master.look(world.now_s))
                found = world.round()
                read = [] if found is None else [(r.operator, r.instance) for r in found.readings]
                assert len(read) == len(set(read)), read
        open_ -= {closed.connection for closed in world.seen(Close)}
