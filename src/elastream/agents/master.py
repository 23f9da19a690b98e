"""The master's mind: who is connected, for which instances they read, and what they read in each round.

Pure: events and times go in, effects come out (what to send, what to close, what to tell), and `master_server`
carries them out. Times called `now_s` are of a monotonic clock; `wall_s` is the time of day, and serves only to
stamp readings and to notice agents whose clock is off.

The master sets the pace. A round is due every interval; agents are told when and read then, all at the same time,
so that a round holds one coherent picture, and it is over as soon as every agent that is alive was heard, or
after a short grace. What an agent read while it had no connection arrives late: it is no reading of the present
round, but fills the hole that it belongs to. Readings are numbered, and acknowledged once their round was
evaluated: an agent sends again what the master may not have got, and the master knows what it has got already.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from elastream.agents.messages import (
    VERSION,
    Acknowledged,
    FromAgent,
    Hello,
    Readings,
    Refused,
    Sample,
    Subscribed,
    Welcome,
    names_and_wanted,
)
from elastream.agents.numbers import Ranges, contains, with_number
from elastream.agents.rounds import Close, Counts, Effect, InstanceReading, Round, Send, Tell
from elastream.agents.subscription import Subscription
from elastream.durations import text as duration_text
from elastream.errors import nearest
from elastream.measurement.late_reading import LateReading

MOST_GRACE_S = 0.15
"""That a round waits for agents which are late."""
CLOCK_TOLERANCE_S = 5.0
"""By which an agent's clock may be off before its own stamps are not used."""
HELLO_WITHIN_S = 5.0
"""After that a connection that did not say who it is is closed."""
MOST_AGENTS = 2_000
_ALIVE = 2.5  # intervals since it was last heard
_SILENT = 3.5
_FORGOTTEN = 60  # intervals after its connection ended
_LATE = 1.5  # intervals
_LEAST_SILENCE_S = 5.0  # before a connection is taken for dead, however short the interval
_TOLD_AGAIN_S = 60.0
_MOST_TOLD = 100  # different warnings that are remembered


@dataclass(frozen=True, kw_only=True, slots=True)
class _TakenSample:
    """A sample, with the metrics of each of its claims, and when it was taken."""

    names: tuple[str, ...]
    sample: Sample
    taken_s: float
    taken_at_s: float
    """By the time of day."""


@dataclass(kw_only=True, slots=True)
class _Agent:
    hello: Hello
    connection: int | None
    address: str
    instances: tuple[int, ...]
    heard_s: float
    wanted: tuple[frozenset[str], ...] = ()
    received: Ranges = ()
    thinned: int = 0
    newest: _TakenSample | None = None
    """Since the last round."""
    clock_is_off: bool = False
    is_silent: bool = False


@dataclass(kw_only=True, slots=True)
class _AgentConnection:
    address: str
    opened_s: float
    agent: str | None = None


@dataclass(kw_only=True)
class Master:
    interval_s: float
    now_s: float
    """When it begins."""
    token: str = ""
    subscription: Subscription = field(default_factory=Subscription)
    operators: frozenset[str] | None = None
    """Those that there are; None takes agents of any operator."""
    counts: Counts = field(default_factory=Counts)
    _connections: dict[int, _AgentConnection] = field(default_factory=dict)
    _agents: dict[str, _Agent] = field(default_factory=dict)
    _late: list[tuple[_Agent, _TakenSample]] = field(default_factory=list)
    """Since the last round."""
    _rounds: int = 0
    _due_s: float = field(init=False)
    _round_before_s: float = field(init=False)
    _told_s: dict[str, float] = field(default_factory=dict)
    """When a warning that may come often was last told."""

    def __post_init__(self) -> None:
        self._due_s = self.now_s + self.interval_s
        self._round_before_s = self.now_s

    # Connections

    def opened(self, connection: int, address: str, now_s: float) -> Iterator[Effect]:
        if len(self._connections) >= MOST_AGENTS:
            yield from self.make_room()
        if len(self._connections) >= MOST_AGENTS:
            self.counts.refused += 1
            yield Tell(text=f"{address}: refused, as {MOST_AGENTS} agents are connected already", warning=True)
            yield Close(connection=connection)
            return
        self._connections[connection] = _AgentConnection(address=address, opened_s=now_s)

    def make_room(self) -> Iterator[Effect]:
        """The one goes that has been there longest without saying who it is, if there is any."""
        nameless = (connection for connection, found in self._connections.items() if found.agent is None)
        if (oldest := next(nameless, None)) is not None:
            yield from self.broken(oldest, "no hello, and others wait")

    def closed(self, connection: int) -> Iterator[Effect]:
        found = self._connections.pop(connection, None)
        agent = self._agents.get(found.agent) if found is not None and found.agent is not None else None
        if agent is not None and agent.connection == connection:
            agent.connection = None
            yield Tell(text=f"{_name(agent)} is gone")

    def broken(self, connection: int, why: str) -> Iterator[Effect]:
        """What came over the connection is no message. The peer is not told more than that it is over."""
        found = self._connections.get(connection)
        if found is None:
            return
        self.counts.broken += 1
        yield Tell(text=f"{found.address}: closed: {why}", warning=True)
        yield from self._close(connection)

    def received(self, connection: int, message: FromAgent, now_s: float, wall_s: float) -> Iterator[Effect]:
        found = self._connections.get(connection)
        if found is None:
            return  # it was closed while this was on its way
        match message:
            case Hello() if found.agent is None:
                yield from self._hello(connection, found, message, now_s, wall_s)
            case Readings() if found.agent is not None:
                yield from self._readings(connection, self._agents[found.agent], message, now_s, wall_s)
            case _:
                yield from self.broken(connection, f"{type(message).__name__} was not expected now")

    def wrong_version(self, connection: int, why: str, now_s: float) -> Iterator[Effect]:
        yield from self._refuse(connection, "an agent", why, now_s)

    def _close(self, connection: int) -> Iterator[Effect]:
        yield Close(connection=connection)
        yield from self.closed(connection)

    # Who comes

    def _hello(
        self, connection: int, found: _AgentConnection, hello: Hello, now_s: float, wall_s: float
    ) -> Iterator[Effect]:
        if not hmac.compare_digest(hello.token.encode(), self.token.encode()):
            yield from self._wrong_token(connection, found, now_s)
            return
        why = self._objection(hello, now_s)
        if why is not None:
            yield from self._refuse(connection, f"the agent {hello.agent!r}", why, now_s)
            return
        before = self._agents.get(hello.agent)
        if before is not None and before.connection is not None:  # the same one, or one that is silent for long
            yield from self._close(before.connection)
        agent = _Agent(
            hello=hello,
            connection=connection,
            address=found.address,
            instances=self._instances(hello, now_s),
            heard_s=now_s,
        )
        if before is not None and before.hello.run == hello.run:
            agent.received, agent.newest, agent.thinned = before.received, before.newest, before.thinned
        self._agents[hello.agent] = agent
        found.agent = hello.agent
        yield Tell(text=f"{_name(agent)} is here, {_claims_text(agent)}")
        yield from self._look_at_clock(agent, hello.at_s - wall_s)
        yield from self._subscribe(agent, now_s)

    def _wrong_token(self, connection: int, found: _AgentConnection, now_s: float) -> Iterator[Effect]:
        self.counts.wrong_tokens += 1
        text = f"{found.address}: closed: a wrong token; {self.counts.wrong_tokens} so far"
        yield from self._tell_sparingly("a wrong token", text, now_s)
        yield from self._close(connection)

    def _refuse(self, connection: int, who: str, why: str, now_s: float) -> Iterator[Effect]:
        found = self._connections.get(connection)
        if found is None:
            return
        self.counts.refused += 1
        yield from self._tell_sparingly(f"{who}: {why}", f"{who} ({found.address}) was refused: {why}", now_s)
        yield Send(connection=connection, message=Refused(why=why[:200]))
        yield from self._close(connection)

    def _tell_sparingly(self, what: str, text: str, now_s: float) -> Iterator[Effect]:
        """At most once a minute, so that whoever tries again and again does not fill the log."""
        if now_s - self._told_s.get(what, -_TOLD_AGAIN_S) < _TOLD_AGAIN_S:
            return
        if len(self._told_s) >= _MOST_TOLD:
            self._told_s.clear()
        self._told_s[what] = now_s
        yield Tell(text=text, warning=True)

    def _objection(self, hello: Hello, now_s: float) -> str | None:
        same = self._agents.get(hello.agent)
        if same is not None and same.hello.run != hello.run and self._holds_its_place(same, now_s):
            heard = duration_text(now_s - same.heard_s)
            return f"another agent at {same.address}, heard {heard} ago, has the name {hello.agent!r}"
        for claim in hello.claims:
            if self.operators is not None and claim.operator not in self.operators:
                return f"there is no operator {claim.operator!r}{nearest(claim.operator, self.operators)}"
        numbered = [(claim.operator, claim.instance) for claim in hello.claims if claim.instance is not None]
        if len(set(numbered)) < len(numbered):
            return "it reads twice for the same instance"
        taken = self._taken(hello.agent, now_s)
        for claim in hello.claims:
            if claim.must and claim.instance is not None and (claim.operator, claim.instance) in taken:
                return f"{claim} is read by the agent {taken[claim.operator, claim.instance]!r}"
        return None

    def _holds_its_place(self, agent: _Agent, now_s: float) -> bool:
        """Whether it is to be expected that it is still there: it is connected, and was not silent for long."""
        silence_s = max(_LEAST_SILENCE_S, _SILENT * self.interval_s)
        return agent.connection is not None and now_s - agent.heard_s < silence_s

    def _taken(self, but: str, now_s: float) -> Mapping[tuple[str, int], str]:
        return {
            (claim.operator, instance): name
            for name, agent in self._agents.items()
            if name != but and self._holds_its_place(agent, now_s)
            for claim, instance in zip(agent.hello.claims, agent.instances, strict=True)
        }

    def _instances(self, hello: Hello, now_s: float) -> tuple[int, ...]:
        """The number that each claim asks for, if it is free; else the lowest that is."""
        taken = set(self._taken(hello.agent, now_s))
        taken |= {(c.operator, c.instance) for c in hello.claims if c.must and c.instance is not None}
        found = []
        for operator, instance, must in hello.claims:
            if instance is None or (not must and (operator, instance) in taken):
                instance = next(n for n in range(len(taken) + 1) if (operator, n) not in taken)
            taken.add((operator, instance))
            found.append(instance)
        return tuple(found)

    # What is wanted of them

    def subscribe(self, subscription: Subscription) -> Iterator[Effect]:
        """From now on this is wanted; agents for which that changes something are told."""
        self.subscription = subscription
        for agent in self._agents.values():
            wanted, before = self._wanted(agent), agent.wanted
            if wanted != before and agent.connection is not None:
                agent.wanted = wanted
                yield Send(connection=agent.connection, message=Subscribed(*names_and_wanted(wanted)))
                yield from self._cannot_read(agent)

    def _subscribe(self, agent: _Agent, now_s: float) -> Iterator[Effect]:
        assert agent.connection is not None, "it has just said hello"
        agent.wanted = self._wanted(agent)
        names, wanted = names_and_wanted(agent.wanted)
        message = Welcome(
            version=VERSION,
            instances=agent.instances,
            interval_s=self.interval_s,
            names=names,
            wanted=wanted,
            next_in_s=self._next_in_s(now_s),
        )
        yield Send(connection=agent.connection, message=message)
        yield from self._cannot_read(agent)

    def _wanted(self, agent: _Agent) -> tuple[frozenset[str], ...]:
        offers = frozenset(agent.hello.offers)
        return tuple(self.subscription.of(claim.operator) & offers for claim in agent.hello.claims)

    def _cannot_read(self, agent: _Agent) -> Iterator[Effect]:
        for claim in agent.hello.claims:
            lacking = sorted(self.subscription.of(claim.operator) - frozenset(agent.hello.offers))
            if lacking:
                text = f"{_name(agent)} cannot read {', '.join(lacking)}, which is wanted of {claim.operator}"
                yield Tell(text=text, warning=True)

    # What they read

    def _readings(
        self, connection: int, agent: _Agent, message: Readings, now_s: float, wall_s: float
    ) -> Iterator[Effect]:
        agent.heard_s, agent.is_silent = now_s, False
        yield from self._look_at_clock(agent, message.at_s - wall_s)
        sent_s = wall_s if agent.clock_is_off else message.at_s
        for sample in message.samples:
            if any(len(values) != len(message.names) for values in sample.values) or (
                len(sample.values) != len(agent.instances)
            ):
                yield from self.broken(
                    connection, f"{_shape(message, sample)} for {len(agent.instances)} instances"
                )
                return
            taken = _TakenSample(
                names=message.names,
                sample=sample,
                taken_s=now_s - sample.age_s,
                taken_at_s=sent_s - sample.age_s,
            )
            self._sample(agent, taken)
        yield from self._thinned(agent, message.thinned, now_s)

    def _sample(self, agent: _Agent, taken: _TakenSample) -> None:
        if contains(agent.received, taken.sample.number):
            self.counts.duplicates += 1
            return
        agent.received = with_number(agent.received, taken.sample.number)
        self.counts.readings += 1
        newest = agent.newest
        if taken.sample.age_s > _LATE * self.interval_s or (
            newest is not None and newest.taken_s >= taken.taken_s
        ):
            self._late.append((agent, taken))
        else:
            if newest is not None:
                self._late.append((agent, newest))
            agent.newest = taken

    def _thinned(self, agent: _Agent, thinned: int, now_s: float) -> Iterator[Effect]:
        if thinned <= agent.thinned:
            return
        self.counts.thinned += thinned - agent.thinned
        agent.thinned = thinned
        text = (
            f"{_name(agent)} has given up {thinned:,} of its oldest readings: an outage was longer than its memory"
        )
        yield from self._tell_sparingly(f"thinned by {agent.hello.agent}", text, now_s)

    def _look_at_clock(self, agent: _Agent, ahead_s: float) -> Iterator[Effect]:
        off = abs(ahead_s) > CLOCK_TOLERANCE_S
        if off and not agent.clock_is_off:
            by = f"{duration_text(abs(ahead_s))} {'ahead' if ahead_s > 0 else 'behind'}"
            text = f"the clock of {_name(agent)} is {by}: its readings are stamped on arrival"
            yield Tell(text=text, warning=True)
        elif agent.clock_is_off and not off:
            yield Tell(text=f"the clock of {_name(agent)} is right again")
        agent.clock_is_off = off

    def _read(self, agent: _Agent, taken: _TakenSample) -> Iterator[InstanceReading]:
        claims = zip(agent.hello.claims, agent.instances, agent.wanted, taken.sample.values, strict=True)
        for claim, instance, wanted, values in claims:
            named = zip(taken.names, values, strict=True)
            yield InstanceReading(
                operator=claim.operator,
                instance=instance,
                agent=agent.hello.agent,
                taken_at_s=taken.taken_at_s,
                # what was in flight while the subscription changed is not wanted any more
                values={name: value for name, value in named if value is not None and name in wanted},
            )

    # Rounds

    def look(self, now_s: float) -> Iterator[Effect]:
        """Time has passed: see to those who do not speak."""
        for connection, found in list(self._connections.items()):
            if found.agent is None and now_s - found.opened_s > HELLO_WITHIN_S:
                yield from self.broken(connection, f"no hello within {HELLO_WITHIN_S:g} s")
        for agent in list(self._agents.values()):
            yield from self._look_at(agent, now_s)

    def _look_at(self, agent: _Agent, now_s: float) -> Iterator[Effect]:
        silence_s = now_s - agent.heard_s
        if agent.connection is None:
            if silence_s > max(_LEAST_SILENCE_S, _FORGOTTEN * self.interval_s):
                del self._agents[agent.hello.agent]
        elif not agent.is_silent and silence_s > max(_LEAST_SILENCE_S, _SILENT * self.interval_s):
            agent.is_silent = True
            yield Tell(text=f"{_name(agent)} was not heard for {duration_text(silence_s)}", warning=True)
        elif silence_s > max(4 * _LEAST_SILENCE_S, 4 * _SILENT * self.interval_s):
            yield from self.broken(agent.connection, "it is taken for dead")

    def looks_again_s(self, now_s: float) -> float:
        """When it has to look at the time again, if nothing happens before."""
        return self._due_s if now_s < self._due_s else self._due_s + self._grace_s

    def round(self, now_s: float, wall_s: float) -> Round | None:
        """The round that is over now, if one is."""
        if now_s < self._due_s or (now_s < self._due_s + self._grace_s and self._is_awaited(now_s)):
            return None
        self._rounds += 1
        found = Round(
            number=self._rounds,
            at_s=wall_s,
            window_s=now_s - self._round_before_s,
            readings=self._newest(),
            received={a.connection: a.received for a in self._agents.values() if a.connection is not None},
            late=self._late_readings(now_s),
        )
        self._round_before_s = now_s
        behind = max(0.0, now_s - self._due_s)
        self._due_s += self.interval_s * (1 + behind // self.interval_s)
        return found

    @property
    def _grace_s(self) -> float:
        return min(MOST_GRACE_S, self.interval_s / 4)

    def _is_awaited(self, now_s: float) -> bool:
        """Whether someone who is alive was not heard since the last round."""
        return any(
            agent.newest is None
            and agent.connection is not None
            and now_s - agent.heard_s < _ALIVE * self.interval_s
            for agent in self._agents.values()
        )

    def _newest(self) -> tuple[InstanceReading, ...]:
        """What came since the last round; whoever is gone gives way to one who reads for the same instance now."""
        found: dict[tuple[str, int], InstanceReading] = {}
        for agent in sorted(self._agents.values(), key=lambda agent: agent.connection is not None):
            if agent.newest is not None:
                readings = self._read(agent, agent.newest)
                found.update({(reading.operator, reading.instance): reading for reading in readings})
                agent.newest = None
        return tuple(found.values())

    def _late_readings(self, now_s: float) -> tuple[LateReading, ...]:
        """What came late since the last round, by operator and by the round that it would have been of.

        What is a second one of its round, or of the present one, stands for itself, with its own age.
        """
        found: dict[tuple[float, str], dict[str, dict[int, float]]] = {}
        ages_s: set[tuple[str, float]] = set()
        self.counts.late += len(self._late)
        for agent, taken in self._late:
            age_s = max(0.0, now_s - taken.taken_s)
            of_round_s = round(age_s / self.interval_s) * self.interval_s
            if of_round_s > 0 and (agent.hello.agent, of_round_s) not in ages_s:
                age_s = of_round_s
                ages_s.add((agent.hello.agent, age_s))
            for reading in self._read(agent, taken):
                values = found.setdefault((age_s, reading.operator), {})
                for metric, value in reading.values.items():
                    values.setdefault(metric, {})[reading.instance] = value
        self._late.clear()
        return tuple(
            LateReading(operator=operator, age_s=age_s, values=values)
            for (age_s, operator), values in sorted(found.items(), key=lambda one: (-one[0][0], one[0][1]))
        )

    def evaluated(self, found: Round, now_s: float) -> Iterator[Effect]:
        """The readings of this round have had their effect, and need not be kept by those who sent them."""
        for connection, received in found.received.items():
            if connection in self._connections:
                message = Acknowledged(received=received, next_in_s=self._next_in_s(now_s))
                yield Send(connection=connection, message=message)

    def _next_in_s(self, now_s: float) -> float:
        return max(0.0, self._due_s - now_s)


def _shape(message: Readings, sample: Sample) -> str:
    return f"{len(sample.values)} readings of {', '.join(message.names) or 'nothing'}"


def _name(agent: _Agent) -> str:
    return f"the agent {agent.hello.agent!r} ({agent.address})"


def _claims_text(agent: _Agent) -> str:
    named = (
        f"{claim.operator}:{number}" for claim, number in zip(agent.hello.claims, agent.instances, strict=True)
    )
    return f"reading for {', '.join(named)}"
