"""Everything that the manager remembers between two intervals, as one value that can be saved and loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import TypeAdapter, ValidationError

from elastream.dataflow import Plan
from elastream.errors import InvalidInput
from elastream.manager.decision import Decision
from elastream.manager.knobs import Knobs
from elastream.manager.phase import ManagerPhase
from elastream.manager.requests import UNTOUCHED, Controls
from elastream.policies.knowledge import NOTHING_KNOWN, Knowledge


@dataclass(frozen=True, kw_only=True)
class WantedParallelism:
    """What one proposal asked for."""

    at_s: float
    parallelism: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Barred:
    """A plan that was taken back, and the load under which it did harm."""

    plan: Plan
    source_rates: Mapping[str, float]
    windows: int = 0
    """How many have been seen since."""
    lasts: int | None = None
    """So many windows: the harm may have had another cause, so it is tried again; None until the load changes."""

    @property
    def holds(self) -> bool:
        return self.lasts is None or self.windows < self.lasts


@dataclass(frozen=True, kw_only=True)
class ManagerState:
    phase: ManagerPhase = ManagerPhase.WARMING_UP
    warm_up_left: int = 0
    last_at_s: float | None = None
    boot: str = ""
    last_steady_s: float | None = None
    """When it was watched last, by the steady clock of that boot of the machine, which nobody can set."""
    knowledge: Knowledge = NOTHING_KNOWN
    recent: tuple[WantedParallelism, ...] = ()
    """The last proposals, as many as are combined."""
    seen: tuple[WantedParallelism, ...] = ()
    """The proposals of the scale-down delay, and one older, which shows that the delay is covered."""
    decisions: int = 0
    under_way: Decision | None = None
    """Decided and handed to the engine, with the outcome not yet known."""
    to_judge: Decision | None = None
    harmful: int = 0
    """Windows in a row in which the action to judge looked harmful."""
    useless: int = 0
    """Actions in a row that gained almost nothing."""
    failures: int = 0
    """Actions in a row that the engine could not carry out."""
    short: int = 0
    """Windows in a row in which the rate was not achieved although the model says it should be."""
    waiting: Mapping[str, float] | None = None
    """Records that waited for each operator before those windows; None where that is not known."""
    barred: tuple[Barred, ...] = ()
    settled_load: Mapping[str, float] = field(default_factory=dict)
    """The load when the manager last gave up, rolled back or corrected its model."""
    last_dry_run: Plan | None = None
    last_load: Mapping[str, float] = field(default_factory=dict)
    """The source rates of the last window, and below what was achieved in it: what is asked for by hand is
    judged by them."""
    last_share: float | None = None
    last_done: Decision | None = None
    """The last action that was carried out, which may be taken back by hand."""
    controls: Controls = UNTOUCHED


def initial_state(knobs: Knobs) -> ManagerState:
    return ManagerState(warm_up_left=knobs.warm_up_intervals)


_STATE: TypeAdapter[ManagerState] = TypeAdapter(ManagerState)


def state_to_json(state: ManagerState) -> str:
    # not dump_json, which writes an infinite rate as null, and null is no rate when it is read again
    return json.dumps(_STATE.dump_python(state, mode="json"))


def state_from_json(text: str, *, place: str) -> ManagerState:
    try:
        return _STATE.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidInput(f"{place}: not a state of the manager: {where}: {first['msg']}") from None
