"""What agents and their master say to each other, and how each message stands in a frame.

A message is a list: its kind, then its fields in the order in which they are declared here, which is why they are
tuples with names. Names of metrics stand once in a message, and what is said of each operator refers to them: so
whatever an agent reads for, one sample and one subscription fit into a frame.

Agents begin with a `Hello`; the master answers with `Welcome` or `Refused`, or closes without a word where the
token is wrong. From then on the agent sends `Readings`, the master `Acknowledged` after each round and
`Subscribed` when it wants something else than before.

    agent                                   master
      Hello ─────────────────────────────────▶        who, for which operators, what it can read
      ◀───────────────────────────────── Welcome      instances, metrics, interval, when the next round is
      Readings ──────────────────────────────▶        what was asked for, and nothing else
      ◀──────────────────────────── Acknowledged      up to which reading, when the next round is
      ◀────────────────────────────── Subscribed      after a change of the rules

A change that an older peer would misread needs a new `VERSION`; the first field of a `Hello` stays its version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from elastream.agents.numbers import MOST_RANGES
from elastream.agents.wire import MOST_ITEMS, WireError, encode
from elastream.errors import shown
from elastream.formats import where
from elastream.measurement.amounts import MOST_AMOUNT

VERSION = 2
MOST_OPERATORS = 64
"""That one agent reads for."""
MOST_METRICS = 64
MOST_SAMPLES = 64
"""In one message; it has fewer where they would not fit into a frame."""
MOST_NAME_BYTES = 200
MOST_METRIC_BYTES = 64


def _printable(name: str) -> str:
    """What is written to a terminal or a log is one line, and no escape sequence."""
    if not name.isprintable():
        raise ValueError("a name can be printed in a line")
    return _short(name, MOST_NAME_BYTES)


def _metric(name: str) -> str:
    return _short(name, MOST_METRIC_BYTES)


def _short(name: str, most: int) -> str:
    if len(name.encode()) > most:
        raise ValueError(f"a name has at most {most} bytes")
    return name


Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_printable)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, le=MOST_AMOUNT, allow_inf_nan=False)]
Span = Annotated[float, Field(ge=0, le=366 * 86_400, allow_inf_nan=False)]
MetricName = Annotated[Name, AfterValidator(_metric)]
Metrics = Annotated[tuple[MetricName, ...], Field(max_length=MOST_METRICS)]
Values = Annotated[tuple[Amount | None, ...], Field(max_length=MOST_METRICS)]
Indexes = Annotated[tuple[Annotated[int, Field(ge=0, lt=MOST_METRICS)], ...], Field(max_length=MOST_METRICS)]
Number = Annotated[int, Field(ge=0, lt=2**53)]
Instance = Annotated[int, Field(ge=0, lt=2**31)]
PerOperator = Field(min_length=1, max_length=MOST_OPERATORS)


class Claim(NamedTuple):
    """An agent reads for this instance of this operator; without a number the master gives it one."""

    operator: Name
    instance: Instance | None = None
    must: bool = True
    """Whether it has to be that number, or only was it before the connection broke."""

    def __str__(self) -> str:
        return self.operator if self.instance is None else f"{self.operator}:{self.instance}"


class Hello(NamedTuple):
    version: int
    token: Annotated[str, Field(max_length=1000)]
    agent: Name
    """Its identity: no two agents have the same."""
    run: Name
    """Drawn when the agent starts: tells an agent that is back from another one with the same name."""
    claims: Annotated[tuple[Claim, ...], PerOperator]
    offers: Metrics
    """What it can read."""
    at_s: Finite
    """What its clock shows."""


class Sample(NamedTuple):
    """What was read at one time, for each claim in the order of the `Hello`."""

    number: Number
    age_ms: Number
    """When it was sent, by a monotonic clock; whole, so that a fresh one takes a single byte."""
    values: Annotated[tuple[Values, ...], PerOperator]
    """For each of the names in the message; none where it was not asked for, or not read."""

    @property
    def age_s(self) -> float:
        return self.age_ms / 1000


class Readings(NamedTuple):
    at_s: Finite
    """What the agent's clock shows when it sends them."""
    names: Metrics
    samples: Annotated[tuple[Sample, ...], Field(min_length=1, max_length=MOST_SAMPLES)]
    thinned: Number = 0
    """How many samples this run of the agent gave up so far, as an outage was longer than its memory."""


class Welcome(NamedTuple):
    version: int
    instances: Annotated[tuple[Instance, ...], PerOperator]
    """One for each claim."""
    interval_s: Annotated[float, Field(gt=0, le=86_400)]
    names: Metrics
    wanted: Annotated[tuple[Indexes, ...], PerOperator]
    """Which of the names, for each claim."""
    next_in_s: Span


class Subscribed(NamedTuple):
    names: Metrics
    wanted: Annotated[tuple[Indexes, ...], PerOperator]


class Acknowledged(NamedTuple):
    received: Annotated[tuple[tuple[Number, Number], ...], Field(max_length=MOST_RANGES)]
    """The samples that have had their effect: from the first to the last number of each range."""
    next_in_s: Span
    """Until the next round, for which the agent reads again: so agents keep in step with the master."""


class Refused(NamedTuple):
    why: Annotated[str, Field(max_length=1000)]


FromAgent = Hello | Readings
FromMaster = Welcome | Subscribed | Acknowledged | Refused

_KINDS: Mapping[int, type[Any]] = {
    1: Hello,
    2: Readings,
    3: Welcome,
    4: Subscribed,
    5: Acknowledged,
    6: Refused,
}
_NUMBERS = {kind: number for number, kind in _KINDS.items()}
_SHAPES: Mapping[int, TypeAdapter[Any]] = {number: TypeAdapter(kind) for number, kind in _KINDS.items()}

assert max(MOST_OPERATORS, MOST_METRICS, MOST_SAMPLES) <= MOST_ITEMS, "no list is longer than the wire allows"


def names_and_wanted(
    wanted: Sequence[Iterable[str]],
) -> tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]:
    """The names of all metrics that are wanted, and which of them, for each claim."""
    names = tuple(sorted(frozenset().union(*wanted)))
    places = {name: place for place, name in enumerate(names)}
    return names, tuple(tuple(sorted(places[name] for name in own)) for own in wanted)


def wanted_of(message: Welcome | Subscribed) -> tuple[frozenset[str], ...]:
    """The inverse of `names_and_wanted`."""
    try:
        return tuple(frozenset(message.names[place] for place in own) for own in message.wanted)
    except IndexError:
        raise WireError(f"{type(message).__name__}: a metric without a name is wanted") from None


def sample_of(number: int, age_ms: int, values: Sequence[Mapping[str, float]], names: Sequence[str]) -> Sample:
    return Sample(number, age_ms, tuple(tuple(found.get(name) for name in names) for found in values))


_NUMBER_BYTES = 9  # at most, as msgpack writes them
_LIST_BYTES = 3
_MESSAGE_BYTES = 4 * _LIST_BYTES + 3 * _NUMBER_BYTES


def sample_bytes(values: Sequence[Mapping[str, float]], names: int) -> int:
    """At most, in a message with so many names."""
    rows = sum(_LIST_BYTES + names + (_NUMBER_BYTES - 1) * len(found) for found in values)
    return 2 * _LIST_BYTES + 2 * _NUMBER_BYTES + rows


def message_bytes(names: Iterable[str]) -> int:
    """At most, of `Readings` with these names and without its samples."""
    return _MESSAGE_BYTES + sum(_LIST_BYTES + len(name.encode()) for name in names)


def frame(message: FromAgent | FromMaster) -> bytes:
    return encode((_NUMBERS[type(message)], *message))


class WrongVersionError(WireError):
    """The only mistake that an agent gets a message about: it is the one that its user can mend."""


def agent_message(value: Any) -> FromAgent:
    match value:
        case (1, int(version), *_) if version != VERSION:
            raise WrongVersionError(f"the master speaks version {VERSION} of the protocol, the agent {version}")
    found = _message(value)
    if not isinstance(found, Hello | Readings):
        raise WireError(f"an agent does not send {type(found).__name__}")
    return found


def master_message(value: Any) -> FromMaster:
    found = _message(value)
    if isinstance(found, Hello | Readings):
        raise WireError(f"a master does not send {type(found).__name__}")
    return found


def _message(value: Any) -> FromAgent | FromMaster:
    if not isinstance(value, tuple) or not value or type(value[0]) is not int or value[0] not in _KINDS:
        raise WireError(f"a message is a list that begins with its kind, 1 to {len(_KINDS)}, found {shown(value)}")
    number = value[0]
    kind = _KINDS[number]
    try:
        found: FromAgent | FromMaster = _SHAPES[number].validate_python(value[1:], strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        # not what was found: a token may be part of it
        raise WireError(f"{kind.__name__}: {_field(kind, first['loc'])}{first['msg']}") from None
    return found


def _field(kind: type[Any], location: tuple[int | str, ...]) -> str:
    """Where something is wrong, with the name of the field in the place of its number."""
    first, *rest = location or (-1,)
    names: tuple[str, ...] = kind._fields
    return where((names[first], *rest)) if isinstance(first, int) and 0 <= first < len(names) else ""
