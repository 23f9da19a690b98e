"""Seeded runs of a model that is too large to be explored: what must hold is checked after every event."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Any

from elastream.decentralized.errors import IllegalEvent
from experiments.checking.explorer import Model, Received


@dataclass(frozen=True, kw_only=True)
class RandomRun:
    events: int
    messages: int
    nodes: int
    violation: str | None = None
    """What must never happen and did, with the event after which the run ended."""


def random_run(model: Model, *, seed: int, slow_messages: float = 0.5, most_events: int = 100_000) -> RandomRun:
    """Play a model to its end, or until something is wrong. With `slow_messages` near 1 nodes act while messages
    wait, near 0 these come first."""
    rng = random.Random(seed)
    nodes: dict[str, Any] = dict(model.nodes())
    channels: defaultdict[tuple[str, str], deque[Any]] = defaultdict(deque)
    messages = 0

    def ended(events: int, violation: str | None) -> RandomRun:
        return RandomRun(events=events, messages=messages, nodes=len(nodes), violation=violation)

    for number in range(most_events):
        event = _choose(model, nodes, channels, rng, slow_messages)
        if event is None:
            return ended(number, model.unfinished(nodes) or None)
        name, what = event
        try:
            reaction = model.react(name, nodes[name], what)
        except IllegalEvent as error:
            return ended(number, f"{name}: {error}")
        nodes[name] = reaction.state
        nodes.update(reaction.created)
        for to, message in reaction.sends:
            channels[name, to].append(message)
        messages += len(reaction.sends)
        if wrong := reaction.wrong or model.wrong(nodes):
            return ended(number, f"{name}: {what}: {wrong}")
    return ended(most_events, "it does not end")


def _choose(
    model: Model,
    nodes: dict[str, Any],
    channels: defaultdict[tuple[str, str], deque[Any]],
    rng: random.Random,
    slow_messages: float,
) -> tuple[str, Any] | None:
    waiting = sorted(pair for pair, content in channels.items() if content)
    if not waiting or rng.random() < slow_messages:
        names = [name for name in nodes if model.moves(name, nodes[name])]
        if names:
            name = rng.choice(names)
            return name, rng.choice(model.moves(name, nodes[name]))
    if not waiting:
        return None
    sender, receiver = rng.choice(waiting)
    return receiver, Received(sender, channels[sender, receiver].popleft())
