"""Walks every interleaving of a small system of state machines.

A world is the state of every node and what is on the way between them. From a world lead the moves that a node may
make on its own, and the delivery of the first message of every channel. Worlds are visited breadth first, so that
the run that leads to a violation is a shortest one. Checked are: each world (`model.wrong`), each event (a machine
that refuses one has met what must not happen), and each end (`model.unfinished`).

Channels keep their order, unless the model says what its nodes say again (`Lossy`). Then the network loses,
repeats, delays and reorders as it likes: a message that was ever sent may arrive at any later time, any number of
times, or never. All that is sure is that what a node keeps saying gets there in the end.

An end is where nothing has to happen any more: faults (`Fault`) may come, and messages that nobody says again may
still arrive, but nobody can count on them. So a system that waits for a fault to go on is stuck, and found. Where
the worlds form no cycle, every run comes to an end under that fairness; then good ends mean that everybody who
asked got in, and that nobody floods the network.

Machines are pure, so the same event in the same state is computed once. States, messages and the contents of
channels are numbered, so that a world is a short tuple of numbers: millions of them fit.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

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


@dataclass(frozen=True, slots=True)
class Fault:
    """A move of a node that may happen and need not: a kill, a false suspicion."""

    what: Hashable

    def __str__(self) -> str:
        return str(self.what)


@dataclass(frozen=True, kw_only=True, slots=True)
class Reaction:
    """What an event does to a node."""

    state: Hashable
    sends: tuple[tuple[str, Hashable], ...] = ()
    created: tuple[tuple[str, Hashable], ...] = ()
    """Those that are there already stay as they are."""
    puts: tuple[tuple[str, Hashable], ...] = ()
    """Received at once, in the same step: what is written where the receiver has it, whether it lives or not."""
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


@runtime_checkable
class Lossy(Protocol):
    """A model whose network is not to be relied on."""

    def says(self, name: str, state: Any, /) -> Collection[tuple[str, Hashable]]:
        """What a node in this state sends again and again, to whom."""
        ...


@runtime_checkable
class Mortal(Protocol):
    """A model whose nodes die, with whatever they had said and nobody had heard."""

    def has_died(self, state: Any, /) -> bool: ...


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
    puts: tuple[tuple[int, int], ...] = ()
    """Slots of channels, and messages."""


class _Key(NamedTuple):
    """What leads from a world to another: a move of a node, or a message of a channel."""

    slot: int
    event: Any = None
    message: int = 0


class _Follows(NamedTuple):
    key: _Key
    world: World
    sure: bool
    """It will happen in the end, unless something else comes before; a fault need not."""


class _Walk:
    """The numbering of one exploration, and what follows a world."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.lossy = model if isinstance(model, Lossy) else None
        self.mortal = model if isinstance(model, Mortal) else None
        self.said_again: dict[tuple[int, int, int], bool] = {}
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

    def after(self, world: World) -> Iterator[_Follows]:
        """Every world that follows, with what leads to it."""
        for slot, number in enumerate(world):
            if not number:
                continue
            if slot in self.receivers:
                yield from self._delivered(world, slot, number)
            else:
                moves = self.moves_of.get((slot, number))
                if moves is None:
                    moves = self._moves(slot, number)
                for event, effect in moves:
                    after = self._next(world, slot, effect, 0)
                    yield _Follows(_Key(slot, event), after, not isinstance(event, Fault))

    def label(self, key: _Key) -> str:
        if key.event is not None:
            return f"{self.slots.values[key.slot]}: {key.event}"
        channel = self.slots.values[key.slot]
        return f"{channel.receiver}: {Received(channel.sender, self.messages.values[key.message])}"

    def _moves(self, slot: int, number: int) -> list[tuple[Any, _Effect]]:
        name, state = self.slots.values[slot], self.states.values[number]
        events = self.model.moves(name, state)
        found = self.moves_of[slot, number] = [(event, self._react(name, state, event)) for event in events]
        return found

    def _delivered(self, world: World, slot: int, content: int) -> Iterator[_Follows]:
        to = self.receivers[slot]
        state = world[to] if to < len(world) else 0
        if self.lossy is None:
            message = self.contents.values[content][0]
            delivery = self._delivery(slot, message, to, state)
            yield _Follows(_Key(slot, message=message), self._next(world, to, delivery, slot), sure=True)
            if self.mortal is not None and self._has_lost_its_sender(world, slot):
                rest = (*world[:slot], 0, *world[slot + 1 :])
                yield _Follows(_Key(slot, Fault("the rest is lost")), _trimmed(list(rest)), sure=False)
            return
        for message in self.contents.values[content]:
            after = self._next(world, to, self._delivery(slot, message, to, state), 0)
            if after != world:  # what says nothing new may arrive as often as it likes
                yield _Follows(_Key(slot, message=message), after, self._is_said_again(world, slot, message))

    def _has_lost_its_sender(self, world: World, slot: int) -> bool:
        assert self.mortal is not None
        sender = world[self.slots.of(self.slots.values[slot].sender)]
        return self.mortal.has_died(self.states.values[sender])

    def _is_said_again(self, world: World, slot: int, message: int) -> bool:
        channel = self.slots.values[slot]
        state = world[self.slots.of(channel.sender)]
        found = self.said_again.get((slot, message, state))
        if found is None:
            assert self.lossy is not None
            said = self.lossy.says(channel.sender, self.states.values[state])
            found = (channel.receiver, self.messages.values[message]) in said
            self.said_again[slot, message, state] = found
        return found

    def _delivery(self, slot: int, message: int, to: int, number: int) -> _Effect:
        effect = self.deliveries.get((slot, message, number))
        if effect is None:
            channel = self.slots.values[slot]
            event = Received(channel.sender, self.messages.values[message])
            if not number:
                what = f"{event.message} for {channel.receiver}, which does not exist"
                raise _Found(what, f"{channel.receiver}: {event}")
            effect = self._react(channel.receiver, self.states.values[number], event)
            self.deliveries[slot, message, number] = effect
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
            puts=tuple((self._slot_of(name, to), self.messages.of(message)) for to, message in reaction.puts),
        )

    def _slot_of(self, sender: str, receiver: str) -> int:
        to = self.slots.of(receiver)
        slot = self.slots.of(_Channel(sender, receiver))
        self.receivers[slot] = to
        return slot

    def _next(self, world: World, slot: int, effect: _Effect, delivered: int) -> World:
        changed = list(world)
        if delivered:
            rest = self.contents.values[changed[delivered]][1:]
            changed[delivered] = self.contents.of(rest) if rest else 0
        self._apply(changed, slot, effect)
        return _trimmed(changed)

    def _apply(self, world: list[int], slot: int, effect: _Effect) -> None:
        world[slot] = effect.state
        for who, state in effect.created:
            if who >= len(world) or not world[who]:
                self._put(world, who, state)
        for channel, message in effect.sends:
            self._put(world, channel, self._pushed(world, channel, message))
        for channel, message in effect.puts:
            to = self.receivers[channel]
            self._apply(world, to, self._delivery(channel, message, to, world[to] if to < len(world) else 0))

    def _pushed(self, world: list[int], channel: int, message: int) -> int:
        content = world[channel] if channel < len(world) else 0
        found = self.pushes.get((content, message))
        if found is None:
            before = self.contents.values[content] if content else ()
            pushed = (*before, message) if self.lossy is None else tuple(sorted({*before, message}))
            found = self.pushes[content, message] = self.contents.of(pushed)
        return found

    @staticmethod
    def _put(world: list[int], slot: int, number: int) -> None:
        if slot >= len(world):
            world.extend([0] * (slot + 1 - len(world)))
        world[slot] = number


def _trimmed(world: list[int]) -> World:
    while not world[-1]:
        world.pop()
    return tuple(world)


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
            if _is_end(walk, graph, at):
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


def _is_end(walk: _Walk, graph: _Graph, at: int) -> bool:
    """Find what follows a world, and whether nothing has to."""
    numbers, worlds = graph.numbers, graph.worlds
    end = True
    graph.begins.append(len(graph.reached))
    for _, after, sure in walk.after(worlds[at]):
        end = end and not sure
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
    return end


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
        key = next(key for key, after, _ in walk.after(world) if after == graph.worlds[number])
        lines.append(walk.label(key))
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
