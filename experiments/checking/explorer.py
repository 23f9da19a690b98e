"""Walks every interleaving of a small system of state machines over channels that keep their order.

A world is the state of every node and what is on the way between them. From a world lead the moves that a node may
make on its own, and the delivery of the first message of every channel. Worlds are visited breadth first, so that
the run that leads to a violation is a shortest one. Checked are: each world (`model.wrong`), each event (a machine
that refuses one has met what must not happen), and each end, from where nothing leads on (`model.unfinished`).
Where the worlds form no cycle, every run comes to an end; then a good end of every run means that everybody who
asked got in and that nobody floods the network, with no appeal to fairness.

Machines are pure, so the same event in the same state is computed once. States, messages and the contents of
channels are numbered, so that a world is a short tuple of numbers: millions of them fit.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from elastream.decentralized.errors import IllegalEvent

World = tuple[int, ...]
"""A number for the state of every node and the content of every channel, each in its slot; 0 is absent or empty.

Slots are handed out when first needed. What follows the last slot in use is left out, so that equal worlds are
equal tuples."""


@dataclass(frozen=True, slots=True)
class Received:
    sender: str
    message: Hashable

    def __str__(self) -> str:
        return f"gets {self.message} from {self.sender}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Reaction:
    """What an event does to a node."""

    state: Hashable
    sends: tuple[tuple[str, Hashable], ...] = ()
    created: tuple[tuple[str, Hashable], ...] = ()
    wrong: str = ""
    """What must never happen has happened."""


class Model(Protocol):
    """A system to be explored."""

    def nodes(self) -> Mapping[str, Hashable]:
        """The states that it begins with."""
        ...

    def moves(self, name: str, state: Any, /) -> Sequence[Hashable]:
        """What the node may do on its own."""
        ...

    def react(self, name: str, state: Any, event: Any, /) -> Reaction:
        """A move of its own or a `Received`. An IllegalEvent is a violation."""
        ...

    def wrong(self, nodes: Mapping[str, Any], /) -> str:
        """What is wrong with these states at any time; nothing if all is well."""
        ...

    def unfinished(self, nodes: Mapping[str, Any], /) -> str:
        """What is wrong with these states at the end, when nothing is on the way and nobody can move."""
        ...


@dataclass(frozen=True, kw_only=True)
class Violation:
    what: str
    run: tuple[str, ...]
    """The shortest run that leads to it, one event for each line."""

    def __str__(self) -> str:
        return "\n".join((self.what, *(f"  {number}. {line}" for number, line in enumerate(self.run, 1))))


@dataclass(frozen=True, kw_only=True)
class Exploration:
    worlds: int
    ends: int
    complete: bool
    """False where the limit was reached, or a violation stopped it."""
    violation: Violation | None = None
    most_on_the_way: int = 0
    """The most messages that were on the way at the same time."""
    longest_run: int = 0
    """The most events that a run can have; only where the exploration is complete."""


@dataclass
class _Numbers:
    """Gives every value a number from 1 on, and back."""

    values: list[Any] = field(default_factory=lambda: [None])
    numbers: dict[Any, int] = field(default_factory=dict)

    def of(self, value: Hashable) -> int:
        number = self.numbers.get(value)
        if number is None:
            number = self.numbers[value] = len(self.values)
            self.values.append(value)
        return number


class _Found(Exception):  # noqa: N818 - leaves the walk, is no error
    def __init__(self, what: str, event: str = "") -> None:
        self.what, self.event = what, event


@dataclass(frozen=True, slots=True)
class _Channel:
    sender: str
    receiver: str


@dataclass(frozen=True, slots=True)
class _Effect:
    """A reaction in numbers."""

    state: int
    sends: tuple[tuple[int, int], ...]
    """Slots of channels, and messages."""
    created: tuple[tuple[int, int], ...]
    """Slots of nodes, and their states."""


class _Walk:
    """The numbering of one exploration, and what follows a world."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.states, self.messages, self.contents = _Numbers(), _Numbers(), _Numbers()
        self.slots = _Numbers()  # a name is a node, a _Channel a channel
        self.receivers: dict[int, int] = {}  # from a channel's slot to its receiver's
        self.moves_of: dict[tuple[int, int], list[tuple[Any, _Effect]]] = {}
        self.deliveries: dict[tuple[int, int, int], _Effect] = {}
        self.pushes: dict[tuple[int, int], int] = {}
        self.judged: set[World] = set()

    def first(self) -> World:
        world = [0]
        for name, state in self.model.nodes().items():
            self._put(world, self.slots.of(name), self.states.of(state))
        return tuple(world)

    def decoded(self, world: World) -> dict[str, Any]:
        slots = self.slots.values
        return {
            slots[slot]: self.states.values[number]
            for slot, number in enumerate(world)
            if number and slot not in self.receivers
        }

    def on_the_way(self, world: World) -> int:
        contents = self.contents.values
        return sum(len(contents[world[slot]]) for slot in self.receivers if slot < len(world) and world[slot])

    def check(self, world: World) -> None:
        nodes = tuple(number for slot, number in enumerate(world) if slot not in self.receivers)
        if nodes not in self.judged:
            self.judged.add(nodes)
            if wrong := self.model.wrong(self.decoded(world)):
                raise _Found(wrong)

    def after(self, world: World) -> Iterator[tuple[Any, World]]:
        """Every world that follows, with the event that leads to it: (slot, event) or (slot, None)."""
        receivers = self.receivers
        for slot, number in enumerate(world):
            if not number:
                continue
            if slot not in receivers:
                moves = self.moves_of.get((slot, number))
                if moves is None:
                    moves = self._moves(slot, number)
                for event, effect in moves:
                    yield (slot, event), self._next(world, slot, effect, 0)
            else:
                to = receivers[slot]
                state = world[to] if to < len(world) else 0
                delivery = self.deliveries.get((slot, number, state))
                if delivery is None:
                    delivery = self._delivery(slot, number, to, state)
                yield (slot, None), self._next(world, to, delivery, slot)

    def label(self, world: World, key: tuple[int, Any]) -> str:
        slot, event = key
        if event is not None:
            return f"{self.slots.values[slot]}: {event}"
        channel = self.slots.values[slot]
        message = self.messages.values[self.contents.values[world[slot]][0]]
        return f"{channel.receiver}: {Received(channel.sender, message)}"

    def _moves(self, slot: int, number: int) -> list[tuple[Any, _Effect]]:
        name, state = self.slots.values[slot], self.states.values[number]
        events = self.model.moves(name, state)
        found = self.moves_of[slot, number] = [(event, self._react(name, state, event)) for event in events]
        return found

    def _delivery(self, slot: int, content: int, to: int, number: int) -> _Effect:
        channel = self.slots.values[slot]
        message = self.messages.values[self.contents.values[content][0]]
        event = Received(channel.sender, message)
        if not number:
            raise _Found(f"{message} for {channel.receiver}, which does not exist", f"{channel.receiver}: {event}")
        effect = self._react(channel.receiver, self.states.values[number], event)
        self.deliveries[slot, content, number] = effect
        return effect

    def _react(self, name: str, state: Any, event: Any) -> _Effect:
        try:
            reaction = self.model.react(name, state, event)
        except IllegalEvent as error:
            raise _Found(f"{name} refuses: {error}", f"{name}: {event}") from None
        if reaction.wrong:
            raise _Found(reaction.wrong, f"{name}: {event}")
        return _Effect(
            state=self.states.of(reaction.state),
            sends=tuple((self._slot_of(name, to), self.messages.of(message)) for to, message in reaction.sends),
            created=tuple((self.slots.of(who), self.states.of(new)) for who, new in reaction.created),
        )

    def _slot_of(self, sender: str, receiver: str) -> int:
        to = self.slots.of(receiver)
        slot = self.slots.of(_Channel(sender, receiver))
        self.receivers[slot] = to
        return slot

    def _next(self, world: World, slot: int, effect: _Effect, delivered: int) -> World:
        changed = list(world)
        changed[slot] = effect.state
        if delivered:
            rest = self.contents.values[changed[delivered]][1:]
            changed[delivered] = self.contents.of(rest) if rest else 0
        for who, state in effect.created:
            self._put(changed, who, state)
        for channel, message in effect.sends:
            self._put(changed, channel, self._pushed(changed, channel, message))
        while not changed[-1]:
            changed.pop()
        return tuple(changed)

    def _pushed(self, world: list[int], channel: int, message: int) -> int:
        content = world[channel] if channel < len(world) else 0
        found = self.pushes.get((content, message))
        if found is None:
            before = self.contents.values[content] if content else ()
            found = self.pushes[content, message] = self.contents.of((*before, message))
        return found

    @staticmethod
    def _put(world: list[int], slot: int, number: int) -> None:
        if slot >= len(world):
            world.extend([0] * (slot + 1 - len(world)))
        world[slot] = number


@dataclass
class _Graph:
    """The worlds found so far and the ways between them."""

    numbers: dict[World, int]
    worlds: list[World]
    came_from: array[int]
    reached: array[int]
    """What each world leads to, one after the other; `begins` says where each begins."""
    begins: array[int]

    @classmethod
    def of(cls, first: World) -> _Graph:
        return cls(
            numbers={first: 0}, worlds=[first], came_from=array("l", [0]), reached=array("l"), begins=array("l")
        )


def explore(model: Model, *, most_worlds: int = 2_000_000) -> Exploration:
    """Visit every world, or as many as the limit allows; stop at the first violation."""
    walk = _Walk(model)
    graph = _Graph.of(walk.first())
    at, ends, most = 0, 0, 0
    try:
        walk.check(graph.worlds[0])
        while at < len(graph.worlds) and len(graph.worlds) <= most_worlds:
            most = max(most, walk.on_the_way(graph.worlds[at]))
            if not _visit(walk, graph, at):
                ends += 1
                if unfinished := model.unfinished(walk.decoded(graph.worlds[at])):
                    raise _Found(unfinished)
            at += 1
    except _WrongAt as found:
        return _stopped(walk, graph, found.number, found.found, ends, most)
    except _Found as found:
        return _stopped(walk, graph, at, found, ends, most)
    count = len(graph.worlds)
    if at < count:
        return Exploration(worlds=count, ends=ends, complete=False, most_on_the_way=most)
    longest, cycle = _longest_run(graph)
    if cycle is not None:
        violation = Violation(what="a run that never ends", run=_run_to(walk, graph, cycle))
        return Exploration(worlds=count, ends=ends, complete=True, violation=violation, most_on_the_way=most)
    return Exploration(worlds=count, ends=ends, complete=True, most_on_the_way=most, longest_run=longest)


class _WrongAt(Exception):  # noqa: N818 - leaves the walk, is no error
    def __init__(self, number: int, found: _Found) -> None:
        self.number, self.found = number, found


def _visit(walk: _Walk, graph: _Graph, at: int) -> bool:
    """Find what follows a world; false where nothing does."""
    numbers, worlds = graph.numbers, graph.worlds
    before = len(graph.reached)
    graph.begins.append(before)
    for _, after in walk.after(worlds[at]):
        number = numbers.get(after)
        if number is None:
            number = numbers[after] = len(worlds)
            worlds.append(after)
            graph.came_from.append(at)
            try:
                walk.check(after)
            except _Found as found:
                raise _WrongAt(number, found) from None
        graph.reached.append(number)
    return len(graph.reached) > before


def _stopped(walk: _Walk, graph: _Graph, at: int, found: _Found, ends: int, most: int) -> Exploration:
    run = (*_run_to(walk, graph, at), *([found.event] if found.event else []))
    return Exploration(
        worlds=len(graph.worlds),
        ends=ends,
        complete=False,
        violation=Violation(what=found.what, run=run),
        most_on_the_way=most,
    )


def _run_to(walk: _Walk, graph: _Graph, number: int) -> tuple[str, ...]:
    """The events of the run that found a world first, made again."""
    lines = []
    while number:
        before = graph.came_from[number]
        world = graph.worlds[before]
        key = next(key for key, after in walk.after(world) if after == graph.worlds[number])
        lines.append(walk.label(world, key))
        number = before
    return tuple(reversed(lines))


def _longest_run(graph: _Graph) -> tuple[int, int | None]:
    """The length of the longest path from the first world, or a world on a cycle (Kahn's algorithm)."""
    count, reached = len(graph.worlds), graph.reached
    begins = [*graph.begins, len(reached)]
    arriving = [0] * count
    for number in reached:
        arriving[number] += 1
    length = [0] * count
    ready = [number for number in range(count) if arriving[number] == 0]
    for number in ready:
        for after in reached[begins[number] : begins[number + 1]]:
            length[after] = max(length[after], length[number] + 1)
            arriving[after] -= 1
            if arriving[after] == 0:
                ready.append(after)
    if len(ready) == count:
        return max(length), None
    return 0, next(number for number in range(count) if arriving[number] > 0)
