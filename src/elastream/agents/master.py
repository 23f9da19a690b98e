"""The master's mind: what is said over its connections, and what it says to those who may speak.

Pure: events and times go in, effects come out (what to send, what to close, what to tell), and `master_server`
carries them out. Times called `now_s` are of a monotonic clock; `wall_s` is the time of day, and serves only to
stamp readings and to notice agents whose clock is off.

Who is taken, and for which instances, says the roster; what they read is gathered into rounds. Readings are
acknowledged once their round was evaluated: an agent sends again what the master may not have got.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from dataclasses import dataclass

from elastream.agents.gathering import Gathering
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
from elastream.agents.roster import KnownAgent, Roster, TakenSample
from elastream.agents.rounds import Close, Counts, Effect, Round, Send, Tell
from elastream.agents.subscription import Subscription
from elastream.durations import text as duration_text

CLOCK_TOLERANCE_S = 5.0
"""By which an agent's clock may be off before its own stamps are not used."""
HELLO_WITHIN_S = 5.0
"""After that a connection that did not say who it is is closed."""
MOST_AGENTS = 2_000
_TOLD_AGAIN_S = 60.0
_MOST_TOLD = 100  # different warnings that are remembered


@dataclass(kw_only=True, slots=True)
class _AgentConnection:
    address: str
    opened_s: float
    agent: str | None = None


class Master:
    def __init__(
        self,
        *,
        interval_s: float,
        now_s: float,
        token: str = "",
        subscription: Subscription | None = None,
        operators: frozenset[str] | None = None,
        counts: Counts | None = None,
    ) -> None:
        """`now_s` is when it begins; `operators` are those that there are, and None takes agents of any."""
        self.counts = counts or Counts()
        self._token, self._interval_s = token, interval_s
        self._subscription = subscription or Subscription()
        self._roster = Roster(interval_s=interval_s, operators=operators)
        self._gathering = Gathering(interval_s=interval_s, now_s=now_s, counts=self.counts)
        self._connections: dict[int, _AgentConnection] = {}
        self._told_s: dict[str, float] = {}
        """When a warning that may come often was last told."""

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
        agent = None if found is None else self._roster.named(found.agent)
        if agent is not None and agent.connection == connection:
            agent.connection = None
            yield Tell(text=f"{agent} is gone")

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
        agent = self._roster.named(found.agent)
        match message:
            case Hello() if agent is None:
                yield from self._hello(connection, found, message, now_s, wall_s)
            case Readings() if agent is not None:
                yield from self._readings(connection, agent, message, now_s, wall_s)
            case _:
                yield from self.broken(connection, f"{type(message).__name__} was not expected now")

    def wrong_version(self, connection: int, why: str, now_s: float) -> Iterator[Effect]:
        yield from self._refuse(connection, "an agent", why, now_s)

    def look(self, now_s: float) -> Iterator[Effect]:
        """Time has passed: see to those who do not speak."""
        for connection, found in list(self._connections.items()):
            if found.agent is None and now_s - found.opened_s > HELLO_WITHIN_S:
                yield from self.broken(connection, f"no hello within {HELLO_WITHIN_S:g} s")
        self._roster.forget(now_s)
        for agent in self._roster:
            if self._roster.has_fallen_silent(agent, now_s):
                silence = duration_text(now_s - agent.heard_s)
                yield Tell(text=f"{agent} was not heard for {silence}", warning=True)
            elif agent.connection is not None and self._roster.is_dead(agent, now_s):
                yield from self.broken(agent.connection, "it is taken for dead")

    def _close(self, connection: int) -> Iterator[Effect]:
        yield Close(connection=connection)
        yield from self.closed(connection)

    # Who comes

    def _hello(
        self, connection: int, found: _AgentConnection, hello: Hello, now_s: float, wall_s: float
    ) -> Iterator[Effect]:
        if not hmac.compare_digest(hello.token.encode(), self._token.encode()):
            yield from self._wrong_token(connection, found, now_s)
            return
        why = self._roster.objection(hello, now_s)
        if why is not None:
            yield from self._refuse(connection, f"the agent {hello.agent!r}", why, now_s)
            return
        before = self._roster.named(hello.agent)
        if before is not None and before.connection is not None:  # the same one, or one that is silent for long
            yield from self._close(before.connection)
        agent = self._roster.enter(hello, connection, found.address, now_s)
        found.agent = hello.agent
        yield Tell(text=f"{agent} is here, {agent.claims_text}")
        yield from self._look_at_clock(agent, hello.at_s - wall_s)
        yield from self._welcome(agent, connection, now_s)

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

    # What is wanted of them

    @property
    def operators(self) -> frozenset[str] | None:
        return self._roster.operators

    def subscribe(self, subscription: Subscription, operators: frozenset[str] | None) -> Iterator[Effect]:
        """From now on this is wanted, of these operators; agents for which that changes something are told."""
        self._subscription, self._roster.operators = subscription, operators
        for agent in self._roster:
            wanted, before = self._wanted(agent), agent.wanted
            if wanted != before and agent.connection is not None:
                agent.wanted = wanted
                yield Send(connection=agent.connection, message=Subscribed(*names_and_wanted(wanted)))
                yield from self._cannot_read(agent)

    def _welcome(self, agent: KnownAgent, connection: int, now_s: float) -> Iterator[Effect]:
        agent.wanted = self._wanted(agent)
        names, wanted = names_and_wanted(agent.wanted)
        message = Welcome(
            version=VERSION,
            instances=agent.instances,
            interval_s=self._interval_s,
            names=names,
            wanted=wanted,
            next_in_s=self._gathering.next_in_s(now_s),
        )
        yield Send(connection=connection, message=message)
        yield from self._cannot_read(agent)

    def _wanted(self, agent: KnownAgent) -> tuple[frozenset[str], ...]:
        offers = frozenset(agent.hello.offers)
        return tuple(self._subscription.of(claim.operator) & offers for claim in agent.hello.claims)

    def _cannot_read(self, agent: KnownAgent) -> Iterator[Effect]:
        for claim in agent.hello.claims:
            lacking = sorted(self._subscription.of(claim.operator) - frozenset(agent.hello.offers))
            if lacking:
                text = f"{agent} cannot read {', '.join(lacking)}, which is wanted of {claim.operator}"
                yield Tell(text=text, warning=True)

    # What they read

    def _readings(
        self, connection: int, agent: KnownAgent, message: Readings, now_s: float, wall_s: float
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
            taken = TakenSample(
                names=message.names,
                sample=sample,
                taken_s=now_s - sample.age_s,
                taken_at_s=sent_s - sample.age_s,
            )
            self._gathering.take(agent, taken)
        yield from self._thinned(agent, message.thinned, now_s)

    def _thinned(self, agent: KnownAgent, thinned: int, now_s: float) -> Iterator[Effect]:
        if thinned <= agent.thinned:
            return
        self.counts.thinned += thinned - agent.thinned
        agent.thinned = thinned
        text = f"{agent} has given up {thinned:,} of its oldest readings: an outage was longer than its memory"
        yield from self._tell_sparingly(f"thinned by {agent.name}", text, now_s)

    def _look_at_clock(self, agent: KnownAgent, ahead_s: float) -> Iterator[Effect]:
        off = abs(ahead_s) > CLOCK_TOLERANCE_S
        if off and not agent.clock_is_off:
            by = f"{duration_text(abs(ahead_s))} {'ahead' if ahead_s > 0 else 'behind'}"
            text = f"the clock of {agent} is {by}: its readings are stamped on arrival"
            yield Tell(text=text, warning=True)
        elif agent.clock_is_off and not off:
            yield Tell(text=f"the clock of {agent} is right again")
        agent.clock_is_off = off

    # Rounds

    def looks_again_s(self, now_s: float) -> float:
        """When it has to look at the time again, if nothing happens before."""
        return self._gathering.looks_again_s(now_s)

    def round(self, now_s: float, wall_s: float) -> Round | None:
        """The round that is over now, if one is."""
        return self._gathering.round(self._roster, now_s, wall_s)

    def evaluated(self, found: Round, now_s: float) -> Iterator[Effect]:
        """The readings of this round have had their effect, and need not be kept by those who sent them."""
        for connection, received in found.received.items():
            if connection in self._connections:
                message = Acknowledged(received=received, next_in_s=self._gathering.next_in_s(now_s))
                yield Send(connection=connection, message=message)


def _shape(message: Readings, sample: Sample) -> str:
    return f"{len(sample.values)} readings of {', '.join(message.names) or 'nothing'}"
