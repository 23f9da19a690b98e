"""The agent's mind: what it reads, keeps and sends again, and when it tries again. No socket, no clock."""

from __future__ import annotations

import random

import pytest

from elastream.agents.agent import FIRST_WAIT_S, LONGEST_WAIT_S, Agent, AgentRefusedError
from elastream.agents.messages import (
    MOST_SAMPLES,
    VERSION,
    Acknowledged,
    Claim,
    Readings,
    Refused,
    Subscribed,
    Welcome,
)
from elastream.errors import ElastreamError

BOTH = ("cpu_utilization", "queue_length")


def an_agent(**options: object) -> Agent:
    claims = (Claim("map"), Claim("sink", 4))
    return Agent(name="a", run="r", claims=claims, offers=BOTH, rng=random.Random(1), **options)  # type: ignore[arg-type]


def welcomed(
    agent: Agent, now_s: float = 0.0, *, next_in_s: float = 0.5, instances: tuple[int, ...] = (7, 4)
) -> Agent:
    agent.connected(at_s=0.0)
    metrics = (BOTH, ("cpu_utilization",))
    agent.received(
        Welcome(version=VERSION, instances=instances, interval_s=1.0, metrics=metrics, next_in_s=next_in_s), now_s
    )
    return agent


def read(agent: Agent, now_s: float, value: float = 1.0) -> None:
    values = {"cpu_utilization": value, "queue_length": 10 * value, "latency": 100 * value}
    agent.read([values, values], now_s)


def sent(agent: Agent, now_s: float) -> list[int]:
    """The numbers of all that it wants to send now."""
    found: list[int] = []
    while (message := agent.outgoing(now_s, at_s=0.0)) is not None:
        assert len(message.samples) <= MOST_SAMPLES
        found += (sample.number for sample in message.samples)
    return found


def test_it_reads_nothing_before_a_master_asked_for_something() -> None:
    agent = an_agent()
    assert agent.due_s() is None
    assert welcomed(agent, now_s=10.0).due_s() == 10.5


def test_it_sends_what_is_wanted_of_each_operator_and_nothing_else() -> None:
    agent = welcomed(an_agent())
    read(agent, 0.5, 2.0)
    message = agent.outgoing(0.75, at_s=99.0)
    assert isinstance(message, Readings)
    (sample,) = message.samples
    assert (message.at_s, sample.number, sample.age_s) == (99.0, 1, 0.25)
    assert sample.values == ({"cpu_utilization": 2.0, "queue_length": 20.0}, {"cpu_utilization": 2.0})
    agent.received(Subscribed(metrics=((), ("queue_length",))), 0.9)
    read(agent, 1.5, 3.0)
    message = agent.outgoing(1.5, at_s=99.0)
    assert message is not None
    assert message.samples[0].values == ({}, {"queue_length": 30.0})


def test_it_keeps_the_pace_by_itself_and_follows_the_master() -> None:
    agent = welcomed(an_agent())
    read(agent, 0.52)
    assert agent.due_s() == 1.5, "not later each time by what reading takes"
    read(agent, 4.7)
    assert agent.due_s() == 5.5, "readings that were missed are not made up for"
    agent.received(Acknowledged(up_to=1, next_in_s=0.3), 5.0)
    assert agent.due_s() == 5.3


def test_readings_are_kept_until_they_are_acknowledged() -> None:
    agent = welcomed(an_agent())
    for now_s in (1.0, 2.0, 3.0):
        read(agent, now_s)
    assert sent(agent, 3.0) == [1, 2, 3]
    assert sent(agent, 3.0) == [], "over one connection each is sent once"
    agent.received(Acknowledged(up_to=2, next_in_s=1.0), 3.1)
    agent.lost()
    read(agent, 4.0)
    assert sent(agent, 4.0) == [], "there is no connection"
    assert sent(welcomed(agent, 4.5), 4.5) == [3, 4]


def test_a_full_buffer_loses_its_oldest_readings_and_counts_them() -> None:
    agent = welcomed(an_agent(most_kept=100))
    for number in range(1, 251):
        read(agent, float(number))
    assert (agent.kept, agent.dropped, agent.taken) == (100, 150, 250)
    assert sent(agent, 250.0) == list(range(151, 251))


def test_the_age_of_a_reading_is_its_own_when_it_was_kept_for_long() -> None:
    agent = welcomed(an_agent())
    read(agent, 1.0)
    agent.lost()
    message = welcomed(agent, 61.0).outgoing(61.0, at_s=0.0)
    assert message is not None
    assert message.samples[0].age_s == 60.0


def test_each_try_waits_longer_up_to_a_limit_and_a_welcome_begins_anew() -> None:
    agent = an_agent()
    waits_s = [agent.lost() for _ in range(12)]
    for tried, wait_s in enumerate(waits_s):
        longest_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2**tried)
        assert longest_s / 2 <= wait_s <= longest_s
    assert welcomed(agent).lost() <= FIRST_WAIT_S
    other = Agent(name="b", run="r", claims=(Claim("map"),), offers=(), rng=random.Random(2))
    assert waits_s[0] != other.lost(), "agents do not come back all at once"


def test_a_number_that_the_master_gave_is_asked_for_again_but_not_insisted_on() -> None:
    agent = an_agent()
    assert agent.connected(0.0).claims == (Claim("map"), Claim("sink", 4))
    welcomed(agent)
    assert agent.connected(0.0).claims == (Claim("map", 7, must=False), Claim("sink", 4, must=True))


def test_a_refusal_says_why() -> None:
    with pytest.raises(AgentRefusedError, match="the master refused this agent: there is no operator 'mpa'"):
        an_agent().received(Refused(why="there is no operator 'mpa'"), 0.0)


@pytest.mark.parametrize("message", [Acknowledged(up_to=1, next_in_s=1.0), Subscribed(metrics=(BOTH, BOTH))])
def test_a_master_that_speaks_before_its_welcome_is_not_listened_to(message: Acknowledged | Subscribed) -> None:
    with pytest.raises(ElastreamError, match="before it welcomed this agent"):
        an_agent().received(message, 0.0)


def test_a_welcome_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(ElastreamError, match="numbered 1 of 2 operators"):
        welcomed(an_agent(), instances=(1,))
    agent = welcomed(an_agent())
    with pytest.raises(ElastreamError, match="subscribed to 1 of 2 operators"):
        agent.received(Subscribed(metrics=(BOTH,)), 0.0)
