"""What the manager did and why, as values: the log, the recording and every page that shows them say the same."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, get_args

from pydantic import TypeAdapter

from elastream.manager.decision import Decision
from elastream.manager.engine import Outcome
from elastream.manager.phase import Phase
from elastream.manager.requests import Controls
from elastream.policies.proposal import Proposal


class Verdict(StrEnum):
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
    outcome: Outcome
    event: Literal["acted"] = "acted"


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What a decision was expected to achieve, and what it did."""

    at_s: float
    number: int
    verdict: Verdict
    share_before: float | None
    share_after: float | None
    expected_share: float | None
    event: Literal["judged"] = "judged"


@dataclass(frozen=True, kw_only=True)
class PhaseChanged:
    at_s: float
    before: Phase
    after: Phase
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


Event = Ignored | Proposed | Held | Decided | Acted | Judged | PhaseChanged | Renewed | Trouble | Steered

EVENT_KINDS: frozenset[str] = frozenset(kind.event for kind in get_args(Event))

_EVENT: TypeAdapter[Event] = TypeAdapter(Event)


def event_to_json(event: Event) -> dict[str, Any]:
    found: dict[str, Any] = _EVENT.dump_python(event, mode="json")
    return {"event": found.pop("event"), **found}


def event_from_json(data: dict[str, Any]) -> Event:
    return _EVENT.validate_python(data)
