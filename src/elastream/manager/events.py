"""What the manager did and why, as values: the log, the recording and every page that shows them say the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal, get_args

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from elastream._version import __version__
from elastream.errors import InvalidInput, shown
from elastream.formats import what, where
from elastream.manager.decision import Decision
from elastream.manager.engine import RescaleOutcome
from elastream.manager.phase import ManagerPhase
from elastream.manager.requests import Controls
from elastream.measurement.accounts import Accounts
from elastream.policies.proposal import Proposal


class ActionVerdict(StrEnum):
    EFFECTIVE = "effective"
    USELESS = "useless"
    HARMFUL = "harmful"
    UNCLEAR = "unclear"


@dataclass(frozen=True, kw_only=True)
class Ignored:
    """A window that led to nothing: warm-up, gaps in the measurements, a clock that went back."""

    at_s: float
    why: str
    event: Literal["ignored"] = "ignored"


@dataclass(frozen=True, kw_only=True)
class Proposed:
    at_s: float
    proposal: Proposal
    event: Literal["proposed"] = "proposed"


@dataclass(frozen=True, kw_only=True)
class Held:
    """The policy wants a change that a knob does not let through yet."""

    at_s: float
    why: str
    event: Literal["held"] = "held"


@dataclass(frozen=True, kw_only=True)
class Decided:
    at_s: float
    decision: Decision
    dry_run: bool = False
    event: Literal["decided"] = "decided"


@dataclass(frozen=True, kw_only=True)
class Acted:
    at_s: float
    number: int
    outcome: RescaleOutcome
    event: Literal["acted"] = "acted"


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What a decision was expected to achieve, and what it did."""

    at_s: float
    number: int
    verdict: ActionVerdict
    share_before: float | None
    share_after: float | None
    expected_share: float | None
    event: Literal["judged"] = "judged"


@dataclass(frozen=True, kw_only=True)
class PhaseChanged:
    at_s: float
    before: ManagerPhase
    after: ManagerPhase
    why: str
    event: Literal["phase"] = "phase"


@dataclass(frozen=True, kw_only=True)
class Renewed:
    """The policy was changed while it ran; what was learned and what is unchanged in it goes on."""

    at_s: float
    what: str
    event: Literal["renewed"] = "renewed"


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """Something outside failed (the engine, the store); the loop goes on."""

    at_s: float
    what: str
    event: Literal["trouble"] = "trouble"


@dataclass(frozen=True, kw_only=True)
class Refusal:
    why: str
    field: str | None = None
    """What of the request is wrong; None where it is right, but cannot be done now."""


@dataclass(frozen=True, kw_only=True)
class Steered:
    """Someone asked for something; or, at a start, what was asked for before still holds."""

    at_s: float
    what: str
    controls: Controls
    refusal: Refusal | None = None
    event: Literal["steered"] = "steered"


@dataclass(frozen=True, kw_only=True)
class Accounted:
    """The end of a run: where every record went."""

    at_s: float
    accounts: Accounts
    event: Literal["accounted"] = "accounted"


Event = (
    Ignored | Proposed | Held | Decided | Acted | Judged | PhaseChanged | Renewed | Trouble | Steered | Accounted
)

_KINDS = tuple(kind.event for kind in get_args(Event))

TELLING = ("decided", "acted", "judged", "phase", "renewed", "trouble", "steered")
"""Kinds that tell of something that happened; the others may come with every window."""

LATE_READING = "late_reading"
"""A kind of line in the recording of a monitoring master that is no event: a reading that came after its round."""

_EVENT: TypeAdapter[Event] = TypeAdapter(
    Annotated[Event, Field(discriminator="event")], config=ConfigDict(allow_inf_nan=False)
)


def event_to_json(event: Event) -> dict[str, Any]:
    found: dict[str, Any] = _EVENT.dump_python(event, mode="json")
    return {"event": found.pop("event"), **found}


def event_from_json(data: Any) -> Event:
    kind = data.get("event") if isinstance(data, dict) else None
    if kind not in _KINDS:
        raise InvalidInput(
            f"this version of elastream ({__version__}) does not know events of the kind {shown(kind)}; "
            "the recording may be from a newer one"
        )
    try:
        return _EVENT.validate_python(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = where(first["loc"][1:])  # after the kind
        raise InvalidInput(f"not an event of the kind {shown(kind)}: {place}{what(first)}") from None
    except InvalidInput as error:
        raise error.at(f"not an event of the kind {shown(kind)}") from None


def event_of_line(line: Mapping[str, Any]) -> Event | None:
    """What a line of a recording tells of, which is neither a snapshot nor the beginning of a run."""
    return None if line.get("event") == LATE_READING else event_from_json(dict(line))
