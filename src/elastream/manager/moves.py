"""The step in the making: a state with what happened on the way to it, and what judging and asking share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from elastream.manager.decision import Decision
from elastream.manager.events import Decided, Event, PhaseChanged
from elastream.manager.phase import PhaseTrigger, following
from elastream.manager.state import ManagerState
from elastream.measurement import Snapshot
from elastream.measurement.flow import flow, shares

KEEPS_UP = 0.999  # a smaller achieved share means that the pipeline falls behind


@dataclass(frozen=True, kw_only=True)
class ManagerStep:
    """A state, and what happened on the way to it. `decision` is to be carried out."""

    state: ManagerState
    events: tuple[Event, ...] = ()
    decision: Decision | None = None

    def tell(self, *events: Event) -> ManagerStep:
        return replace(self, events=(*self.events, *events))

    def update(self, **changes: object) -> ManagerStep:
        return replace(self, state=replace(self.state, **changes))  # type: ignore[arg-type]

    def shares(self, snapshot: Snapshot) -> Mapping[str, float]:
        """Of what each operator must process, by all that is known, the share that it did in this window.

        One that gets its records in bursts does nothing in one window and cannot do all in the next: passed over.
        """
        evidence = self.state.knowledge.evidence
        found = shares(snapshot, flow(evidence.seen(snapshot).snapshot).required_per_s)
        return {name: share for name, share in found.items() if not evidence.is_uneven(snapshot, name)}

    def share(self, snapshot: Snapshot) -> float | None:
        """That of the slowest; None where nothing can be said."""
        return min(self.shares(snapshot).values(), default=None)

    def go(self, trigger: PhaseTrigger, at_s: float, why: str = "") -> ManagerStep:
        """Move along the transition table; a change of phase is told."""
        before, after = self.state.phase, following(self.state.phase, trigger)
        moved = self.update(phase=after)
        if before is after:
            return moved
        return moved.tell(PhaseChanged(at_s=at_s, before=before, after=after, why=why or str(trigger)))


def decide(now: ManagerStep, decision: Decision, trigger: PhaseTrigger = PhaseTrigger.DECIDED) -> ManagerStep:
    now = now.go(trigger, decision.at_s, str(decision)).tell(Decided(at_s=decision.at_s, decision=decision))
    now = now.update(under_way=decision, decisions=decision.number, recent=())
    return replace(now, decision=decision)


def allowed(snapshot: Snapshot, name: str, wanted: int) -> int:
    """As near to what is wanted as the operator's bounds are; a policy need not know them."""
    operator = snapshot.dataflow[name]
    return snapshot.plan[name] if operator.fixed else operator.clamp(wanted)


def growth(before: Mapping[str, float], now: Mapping[str, float]) -> float:
    """By how much the load grew, at the source where it grew most; at least 1."""
    return max((1.0, *(rate / before[name] for name, rate in now.items() if before.get(name, 0.0) > 0)))


def load_changed(before: Mapping[str, float], now: Mapping[str, float], share: float) -> bool:
    return any(abs(rate - before.get(name, 0.0)) > share * before.get(name, 0.0) for name, rate in now.items())
