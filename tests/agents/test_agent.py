"""The agent's mind: what it reads, keeps and sends again, and when it tries again. No socket, no clock."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from elastream.agents.agent import FIRST_WAIT_S, Agent, AgentRefusedError
from elastream.agents.messages import (
    MOST_METRICS,
    MOST_OPERATORS,
    MOST_SAMPLES,
    VERSION,
    Acknowledged,
    Claim,
    Readings,
    Refused,
    Subscribed,
    Welcome,
    agent_message,
    frame,
)
from elastream.agents.wire import Decoder
from elastream.errors import ElastreamError

BOTH = ("cpu_utilization", "queue_length")


def an_agent(**options: object) -> Agent:
    claims = (Claim("map"), Claim("sink", 4))
    return Agent(name="a", run="r", claims=claims, offers=BOTH, rng=random.Random(1), **options)  # type: ignore[arg-type]


def welcomed(
    agent: Agent, now_s: float = 0.0, *, next_in_s: float = 0.5, instances: tuple[int, ...] = (7, 4)
) -> Agent:
    agent.connected(at_s=0.0)
    welcome = Welcome(
        version=VERSION,
        instances=instances,
        interval_s=1.0,
        names=BOTH,
        wanted=((0, 1), (0,)),
        next_in_s=next_in_s,
    )
    agent.received(welcome, now_s)
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


def all_sent(agent: Agent, now_s: float) -> list[int]:
    """The same, until the master has all."""
    found: list[int] = []
    while more := sent(agent, now_s):
        found += more
        agent.received(Acknowledged(received=(), next_in_s=1.0), now_s)
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
    assert message.names == ("cpu_utilization", "queue_length")
    assert sample.values == ((2.0, 20.0), (2.0, None))
    agent.received(Subscribed(names=("queue_length",), wanted=((), (0,))), 0.9)
    read(agent, 1.5, 3.0)
    message = agent.outgoing(1.5, at_s=99.0)
    assert message is not None
    assert (message.names, message.samples[0].values) == (("queue_length",), ((None,), (30.0,)))


def test_it_keeps_the_pace_by_itself_and_follows_the_master() -> None:
    agent = welcomed(an_agent())
    read(agent, 0.52)
    assert agent.due_s() == 1.5, "not later each time by what reading takes"
    read(agent, 4.7)
    assert agent.due_s() == 5.5, "readings that were missed are not made up for"
    agent.received(Acknowledged(received=((1, 1),), next_in_s=0.3), 5.0)
    assert agent.due_s() == 5.3


def test_what_takes_its_time_is_read_earlier_so_that_it_is_there_in_time() -> None:
    agent = welcomed(an_agent(), now_s=0.0, next_in_s=0.8)
    assert agent.due_s(takes_s=0.3) == 0.5
    assert agent.due_s(takes_s=9.0) == pytest.approx(0.3), "by half an interval at most"
    read(agent, now_s=0.7)
    assert agent.due_s() == 1.8, "and once in each interval"


def test_readings_are_kept_until_they_are_acknowledged() -> None:
    agent = welcomed(an_agent())
    for now_s in (1.0, 2.0, 3.0):
        read(agent, now_s)
    assert sent(agent, 3.0) == [1, 2, 3]
    assert sent(agent, 3.0) == [], "over one connection each is sent once"
    agent.received(Acknowledged(received=((1, 2),), next_in_s=1.0), 3.1)
    agent.lost()
    read(agent, 4.0)
    assert sent(agent, 4.0) == [], "there is no connection"
    assert sent(welcomed(agent, 4.5), 4.5) == [3, 4]


@pytest.mark.parametrize("limit", [{"most_kept": 100}, {"most_kept_bytes": 6_000}])
def test_an_outage_longer_than_the_memory_is_thinned_and_that_is_counted(limit: dict[str, int]) -> None:
    agent = welcomed(an_agent(**limit))
    agent.lost()
    for number in range(1, 1_001):
        read(agent, float(number))
    assert 40 <= agent.kept <= 105
    assert agent.kept + agent.thinned == agent.taken == 1_000
    found = all_sent(welcomed(agent, 1_000.0), 1_000.0)
    assert len(found) == agent.kept
    assert found[-20:] == list(range(981, 1_001)), "the newest are whole"
    assert found[0] == 1, "and the oldest reach back"
    gaps = [after - before for before, after in pairwise(found)]
    assert max(gaps) <= 64, "over all of it"
    message = welcomed(agent, 1_001.0).outgoing(1_001.0, at_s=0.0)
    assert message is not None
    assert message.thinned == agent.thinned


def test_what_is_read_now_goes_before_what_was_kept() -> None:
    agent = welcomed(an_agent())
    agent.lost()
    for number in range(1, 201):
        read(agent, float(number))
    welcomed(agent, 200.5)
    read(agent, 201.0)
    first = agent.outgoing(201.0, at_s=0.0)
    assert first is not None
    assert [sample.number for sample in first.samples] == [201]
    assert sent(agent, 201.0) == list(range(1, MOST_SAMPLES + 1)), "one frame of them with each word of the master"
    agent.received(Acknowledged(received=((1, 40), (201, 201)), next_in_s=1.0), 202.0)
    assert agent.kept == 160
    assert sent(agent, 202.0) == list(range(MOST_SAMPLES + 1, 2 * MOST_SAMPLES + 1))


counts = st.integers(1, MOST_OPERATORS)


@given(operators=counts, metrics=st.integers(0, MOST_METRICS), readings=st.integers(1, 100), long=st.booleans())
@example(operators=8, metrics=6, readings=30, long=False)
@example(operators=4, metrics=13, readings=30, long=False)
@example(operators=64, metrics=2, readings=30, long=False)
@example(operators=16, metrics=12, readings=100, long=False)
@example(operators=MOST_OPERATORS, metrics=MOST_METRICS, readings=3, long=True)
@settings(max_examples=25, deadline=None)
def test_after_an_outage_every_frame_fits_however_many_operators_and_metrics_there_are(
    operators: int, metrics: int, readings: int, long: bool
) -> None:
    names = tuple(f"{number}{'x' * 62 if long else ''}" for number in range(metrics))
    claims = tuple(Claim(f"{number}{'o' * 198 if long else ''}") for number in range(operators))
    agent = Agent(name="a", run="r", claims=claims, offers=names)
    frame(agent.connected(0.0))
    indexed = tuple(range(metrics))
    welcome = Welcome(
        version=VERSION,
        instances=tuple(range(operators)),
        interval_s=1.0,
        names=names,
        wanted=(indexed,) * operators,
        next_in_s=0.0,
    )
    frame(welcome)
    agent.received(welcome, 0.0)
    agent.lost()
    for number in range(readings):
        agent.read([dict.fromkeys(names, 1.5)] * operators, float(number))
    agent.connected(0.0)
    agent.received(welcome, 1e9)
    found: list[int] = []
    for _ in range(readings):
        while (message := agent.outgoing(2e9, at_s=1e9)) is not None:
            (value,) = Decoder().feed(frame(message))
            assert agent_message(value) == message
            found += (sample.number for sample in message.samples)
        agent.received(Acknowledged(received=((found[0], found[-1]),), next_in_s=1.0), 2e9)
    assert len(found) + agent.thinned == readings
    assert agent.kept == 0


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
        longest_s = min(2.0, FIRST_WAIT_S * 2**tried)  # of an interval of a second
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


@pytest.mark.parametrize(
    "message", [Acknowledged(received=((1, 1),), next_in_s=1.0), Subscribed(names=BOTH, wanted=((0,), (1,)))]
)
def test_a_master_that_speaks_before_its_welcome_is_not_listened_to(message: Acknowledged | Subscribed) -> None:
    with pytest.raises(ElastreamError, match="before it welcomed this agent"):
        an_agent().received(message, 0.0)


def test_a_welcome_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(ElastreamError, match="numbered 1 of 2 operators"):
        welcomed(an_agent(), instances=(1,))
    agent = welcomed(an_agent())
    with pytest.raises(ElastreamError, match="subscribed to 1 of 2 operators"):
        agent.received(Subscribed(names=BOTH, wanted=((0, 1),)), 0.0)
    with pytest.raises(ElastreamError, match="a metric without a name is wanted"):
        agent.received(Subscribed(names=BOTH, wanted=((2,), ())), 0.0)
