"""Obeying what people ask for: check it, tell of it, and where it is an action, decide it like any other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from elastream.dataflow import Dataflow, Operator, Plan
from elastream.errors import nearest
from elastream.manager.decision import Decision, DecisionKind
from elastream.manager.events import Refusal, Steered
from elastream.manager.knobs import Knobs
from elastream.manager.moves import ManagerStep, decide
from elastream.manager.phase import PhaseTrigger
from elastream.manager.requests import (
    MOST_BY_HAND,
    Bounds,
    Controls,
    Pause,
    Request,
    Resume,
    RollBack,
    Scale,
    SetBounds,
    SetDryRun,
)
from elastream.manager.state import Barred
from elastream.policies.proposal import Reason, ReasonKind


class _RefusedError(Exception):
    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal


def obey(
    now: ManagerStep, at_s: float, request: Request, dataflow: Dataflow, plan: Plan, knobs: Knobs
) -> ManagerStep:
    """The graph is the engine's own, without the bounds that were set; the plan is the one in force."""
    try:
        match request:
            case Pause():
                return _set(now, at_s, "scaling is paused", paused=True)
            case Resume():
                # what was wanted before the pause is not what is wanted now
                return _set(now, at_s, "scaling goes on", paused=False).update(recent=(), seen=())
            case SetDryRun(on=on):
                what = "dry run: from now on nothing is carried out" if on else "dry run is off"
                return _set(now, at_s, what, dry_run=on).update(last_dry_run=None)
            case SetBounds():
                return _set_bounds(now, at_s, request, dataflow)
            case Scale(parallelism=parallelism):
                return _scale(now, at_s, parallelism, dataflow, plan, knobs)
            case RollBack():
                return _roll_back(now, at_s, dataflow, plan, knobs)
    except _RefusedError as error:
        what = f"refused: {error.refusal.why}"
        return now.tell(Steered(at_s=at_s, what=what, controls=now.state.controls, refusal=error.refusal))


def _set(now: ManagerStep, at_s: float, what: str, **changes: object) -> ManagerStep:
    controls: Controls = replace(now.state.controls, **changes)  # type: ignore[arg-type]
    return now.update(controls=controls).tell(Steered(at_s=at_s, what=what, controls=controls))


# Bounds


def _set_bounds(now: ManagerStep, at_s: float, request: SetBounds, dataflow: Dataflow) -> ManagerStep:
    name = request.operator
    operator = dataflow[_scalable(dataflow, name, "operator")]
    for field, wanted in (("least", request.least), ("most", request.most)):
        if wanted is not None:
            _check_fits(operator, wanted, field)
    if request.least is not None and request.most is not None and request.least > request.most:
        raise _invalid("least", f"{request.least} is above the most, {request.most}")
    bounds = {other: kept for other, kept in now.state.controls.bounds.items() if other != name}
    found = Bounds(least=request.least, most=request.most)
    if found != Bounds():
        bounds[name] = found
    return _set(now, at_s, f"{name}: {found}", bounds=bounds)


# Actions


def _scale(
    now: ManagerStep, at_s: float, parallelism: Mapping[str, int], dataflow: Dataflow, plan: Plan, knobs: Knobs
) -> ManagerStep:
    _may_act(now, knobs)
    narrowed = now.state.controls.narrowed(dataflow)
    for name, wanted in parallelism.items():
        operator = narrowed[_scalable(dataflow, name, f"parallelism.{name}")]
        _check_fits(operator, wanted, f"parallelism.{name}")
    after = plan.with_changes(parallelism)
    if after == plan:
        raise _not_now(f"this is what runs already: {plan}")
    return _decided(now, at_s, DecisionKind.BY_HAND, plan, after, "asked for by hand")


def _roll_back(now: ManagerStep, at_s: float, dataflow: Dataflow, plan: Plan, knobs: Knobs) -> ManagerStep:
    """Back to where the last action began; it is not proposed again until the load changes."""
    _may_act(now, knobs)
    last = now.state.last_done
    if last is None or not last.changes:
        raise _not_now("there is no action to take back")
    if last.kind is DecisionKind.ROLLBACK:
        raise _not_now(f"the last action, {last.number}, was a rollback itself")
    if any(plan.get(change.operator) != change.after for change in last.changes):
        raise _not_now(f"what runs is no longer what action {last.number} left: {plan}")
    narrowed = now.state.controls.narrowed(dataflow)
    back = {change.operator: narrowed[change.operator].clamp(change.before) for change in last.changes}
    after = plan.with_changes(back)
    if after == plan:
        raise _not_now(f"the bounds do not let action {last.number} be taken back")
    others = (barred for barred in now.state.barred if barred.plan != last.after)
    now = now.update(
        barred=(*others, Barred(plan=last.after, source_rates=now.state.last_load)),
        settled_load=now.state.last_load,
    )
    return _decided(now, at_s, DecisionKind.ROLLBACK, plan, after, f"action {last.number} is taken back by hand")


def _decided(
    now: ManagerStep, at_s: float, kind: DecisionKind, before: Plan, after: Plan, why: str
) -> ManagerStep:
    decision = Decision(
        number=now.state.decisions + 1,
        at_s=at_s,
        kind=kind,
        before=before,
        after=after,
        source_rates=now.state.last_load,
        reasons=(Reason(kind=ReasonKind.ASKED, text=why),),
        share_before=now.state.last_share,
    )
    told = Steered(at_s=at_s, what=f"{why}: {decision}", controls=now.state.controls)
    return decide(now.tell(told).update(useless=0, failures=0), decision, PhaseTrigger.ASKED_FOR)


def _may_act(now: ManagerStep, knobs: Knobs) -> None:
    if now.state.under_way is not None:
        raise _not_now(f"action {now.state.under_way.number} is still under way")
    if knobs.dry_run:
        raise _not_now("this is a dry run")


def _check_fits(operator: Operator, wanted: int, field: str) -> None:
    least, most = operator.min_parallelism, min(operator.most, max(MOST_BY_HAND, operator.min_parallelism))
    if not least <= wanted <= most:
        raise _invalid(field, f"{operator.name!r} takes {least} to {most:g} instances, found {wanted}")


def _scalable(dataflow: Dataflow, name: str, field: str) -> str:
    if name not in dataflow.scalable:
        what = "a source, which is not scaled" if name in dataflow else "not an operator of this pipeline"
        raise _invalid(field, f"{name!r} is {what}{nearest(name, dataflow.scalable)}")
    if dataflow[name].fixed:
        raise _invalid(field, f"the parallelism of {name!r} is fixed")
    return name


def _invalid(field: str, why: str) -> _RefusedError:
    return _RefusedError(Refusal(why=why, field=field))


def _not_now(why: str) -> _RefusedError:
    return _RefusedError(Refusal(why=why))
