"""Seeded runs of a model that is too large to be explored: what must hold is checked after every event."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from elastream.decentralized.errors import IllegalEvent
from experiments.checking.explorer import Fault, Lossy, Model, Reaction, Received

Event = tuple[str, Any]
"""A node and what it does, or what it receives."""

_LOST = 0.2
_REPEATED = 0.2


@dataclass(frozen=True, kw_only=True)
class RandomRun:
    events: int
    messages: int
    nodes: int
    violation: str | None = None
    """What must never happen and did, with the event after which the run ended."""


@dataclass(frozen=True, kw_only=True)
class Walk:
    """Runs one after the other, with seeds from the first on."""

    runs: int
    events: int
    most_nodes: int
    violation: str | None = None


def walk(make: Callable[[], Model], *, events: int, first_seed: int = 0) -> Walk:
    """As many runs as it takes for so many events, or until something is wrong."""
    done, most, seed = 0, 0, first_seed
    while done < events:
        run = random_run(make(), seed=seed, slow_messages=0.1 + 0.8 * (seed % 5) / 4)
        done, most, seed = done + run.events, max(most, run.nodes), seed + 1
        if run.violation is not None:
            why = f"seed {seed - 1}: {run.violation}"
            return Walk(runs=seed - first_seed, events=done, most_nodes=most, violation=why)
    return Walk(runs=seed - first_seed, events=done, most_nodes=most)


def random_run(model: Model, *, seed: int, slow_messages: float = 0.5, most_events: int = 100_000) -> RandomRun:
    """Play a model to its end, or until something is wrong. With `slow_messages` near 1 nodes act while messages
    wait, near 0 these come first. Where the network is not to be relied on (`Lossy`) messages are lost, repeated
    and reordered."""
    run = _Run(model, random.Random(seed), slow_messages)
    for number in range(most_events):
        event = run.next_event()
        if event is None:
            return run.ended(number, model.unfinished(run.nodes) or None)
        name, what = event
        try:
            reaction = run.take(name, what)
        except IllegalEvent as error:
            return run.ended(number, f"{name}: {error}")
        if wrong := reaction.wrong or model.wrong(run.nodes):
            return run.ended(number, f"{name}: {what}: {wrong}")
    return run.ended(most_events, "it does not end")


class _Run:
    def __init__(self, model: Model, rng: random.Random, slow_messages: float) -> None:
        self.nodes: dict[str, Any] = dict(model.nodes())
        self._model, self._rng, self._slow = model, rng, slow_messages
        self._lossy = model if isinstance(model, Lossy) else None
        self._channels: defaultdict[tuple[str, str], list[Any]] = defaultdict(list)
        self._messages = 0

    def ended(self, events: int, violation: str | None) -> RandomRun:
        return RandomRun(events=events, messages=self._messages, nodes=len(self.nodes), violation=violation)

    def take(self, name: str, event: Any) -> Reaction:
        reaction = self._model.react(name, self.nodes[name], event)
        self.nodes[name] = reaction.state
        self.nodes |= {who: state for who, state in reaction.created if who not in self.nodes}
        for to, message in reaction.sends:
            self._channels[name, to].append(message)
        self._messages += len(reaction.sends)
        return reaction

    def next_event(self) -> Event | None:
        waiting = sorted(pair for pair, content in self._channels.items() if content)
        if (not waiting or self._rng.random() < self._slow) and (move := self._move()) is not None:
            return move
        if waiting:
            sender, receiver = self._rng.choice(waiting)
            return receiver, Received(sender, self._next_of(self._channels[sender, receiver]))
        return None if self._lossy is None else self._said_again(self._lossy)

    def _move(self) -> Event | None:
        """Faults are as likely as everything else, as long as something else may happen."""
        moves: Mapping[str, list[Hashable]] = {
            name: list(found) for name, state in self.nodes.items() if (found := self._model.moves(name, state))
        }
        if all(isinstance(event, Fault) for found in moves.values() for event in found):
            return None
        name = self._rng.choice(list(moves))
        return name, self._rng.choice(moves[name])

    def _next_of(self, content: list[Any]) -> Any:
        if self._lossy is None:
            return content.pop(0)
        while len(content) > 1 and self._rng.random() < _LOST:
            content.pop(self._rng.randrange(len(content)))
        index = self._rng.randrange(len(content))
        return content[index] if self._rng.random() < _REPEATED else content.pop(index)

    def _said_again(self, lossy: Lossy) -> Event | None:
        """Something that is said again and changes something; nothing at the end."""
        for name, state in self.nodes.items():
            for to, message in lossy.says(name, state):
                event = Received(name, message)
                if to in self.nodes and self._model.react(to, self.nodes[to], event).state != self.nodes[to]:
                    return to, event
        return None
