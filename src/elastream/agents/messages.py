"""What agents and their master say to each other, and how each message stands in a frame.

A message is a list: its kind, then its fields in the order in which they are declared here, which is why they are
tuples with names. Agents begin with a `Hello`; the master answers with `Welcome` or `Refused`, or closes without a
word where the token is wrong. From then on the agent sends `Readings`, the master `Acknowledged` after each round
and `Subscribed` when it wants something else than before.

    agent                                   master
      Hello ─────────────────────────────────▶        who, for which operators, what it can read
      ◀───────────────────────────────── Welcome      instances, metrics, interval, when the next round is
      Readings ──────────────────────────────▶        what was asked for, and nothing else
      ◀──────────────────────────── Acknowledged      up to which reading, when the next round is
      ◀────────────────────────────── Subscribed      after a change of the rules

A change that an older peer would misread needs a new `VERSION`; the first field of a `Hello` stays its version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from elastream.agents.wire import MOST_ITEMS, WireError, encode
from elastream.formats import shown, where
from elastream.measurement.amounts import MOST_AMOUNT

VERSION = 1
MOST_OPERATORS = 64
"""That one agent reads for."""
MOST_METRICS = 64
MOST_SAMPLES = 64
"""In one message."""


def _printable(name: str) -> str:
    """What is written to a terminal or a log is one line, and no escape sequence."""
    if not name.isprintable():
        raise ValueError("a name can be printed in a line")
    return name


Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_printable)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, le=MOST_AMOUNT, allow_inf_nan=False)]
Span = Annotated[float, Field(ge=0, le=366 * 86_400, allow_inf_nan=False)]
Metrics = Annotated[tuple[Name, ...], Field(max_length=MOST_METRICS)]
Values = Annotated[dict[str, Amount], Field(max_length=MOST_METRICS)]
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

    @property
    def age_s(self) -> float:
        return self.age_ms / 1000


class Readings(NamedTuple):
    at_s: Finite
    """What the agent's clock shows when it sends them."""
    samples: Annotated[tuple[Sample, ...], Field(min_length=1, max_length=MOST_SAMPLES)]


class Welcome(NamedTuple):
    version: int
    instances: Annotated[tuple[Instance, ...], PerOperator]
    """One for each claim."""
    interval_s: Annotated[float, Field(gt=0, le=86_400)]
    metrics: Annotated[tuple[Metrics, ...], PerOperator]
    """What is wanted, for each claim."""
    next_in_s: Span


class Subscribed(NamedTuple):
    metrics: Annotated[tuple[Metrics, ...], PerOperator]


class Acknowledged(NamedTuple):
    up_to: Number
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
