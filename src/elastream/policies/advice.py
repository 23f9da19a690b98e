"""What all policies say in the same way: what was measured, what is missing, what a bound changed.

A policy starts from `measured`, which keeps the present parallelism, adds what its formula gave with `because`,
and ends with `bounded`; where a measurement that it needs is missing it ends with `no_data` instead.
"""

from __future__ import annotations

import math
from dataclasses import replace

from elastream.dataflow import Operator
from elastream.measurement import Snapshot
from elastream.policies.proposal import Advice, Reason, ReasonKind
from elastream.texts import number_text, rate_text

_ROUNDING = 1e-9  # relative: what floating point may add to a need that is a whole number


def measured(snapshot: Snapshot, name: str) -> Advice:
    """The present parallelism with what is known of the operator; no opinion where it has no readings."""
    rates, current = snapshot.measurements.get(name), snapshot.plan[name]
    if rates is None:
        return no_data(Advice(operator=name, current=current, parallelism=None), "no readings in this window")
    if rates.totals.metrics is not None:
        return _read_by_agents(snapshot, name)
    advice = Advice(
        operator=name,
        current=current,
        parallelism=current,
        true_per_s=rates.true_per_s,
        true_per_instance_per_s=rates.true_per_instance,
        observed_per_s=rates.observed_per_s,
        utilization=rates.utilization,
        backlog=rates.totals.backlog,
    )
    text = _measured_text(advice, window_s=rates.totals.window_s, reported=rates.instances)
    return because(advice, ReasonKind.MEASURED, text)


def _read_by_agents(snapshot: Snapshot, name: str) -> Advice:
    """Agents read what they are asked for, and of the rest nothing is known."""
    advice = Advice(operator=name, current=snapshot.plan[name], parallelism=snapshot.plan[name])
    totals = snapshot.measurements[name].totals
    means = [f"{metric} {number_text(mean)}" for metric, mean in sorted((totals.metrics or {}).items())]
    of = f"agents of {totals.instances} of {advice.current} instances read"
    return because(advice, ReasonKind.MEASURED, f"{of} {', '.join(means) or 'nothing'}")


def because(advice: Advice, kind: ReasonKind, text: str) -> Advice:
    """The same advice with one more reason."""
    return replace(advice, reasons=(*advice.reasons, Reason(kind=kind, text=text)))


def no_data(advice: Advice, text: str) -> Advice:
    """No opinion, for want of a measurement that the text names."""
    return because(replace(advice, parallelism=None), ReasonKind.NO_DATA, text)


def bounded(operator: Operator, advice: Advice, wanted: int) -> Advice:
    """The advice to have so many instances, or as near to that as the operator allows."""
    allowed = advice.current if operator.fixed else operator.clamp(wanted)
    advice = replace(advice, parallelism=allowed)
    if allowed == wanted:
        return advice
    return because(advice, ReasonKind.CLAMPED, f"{wanted:,} wanted, but {_bound_text(operator, wanted)}")


def whole(need: float) -> int:
    """Instances for a need: rounded up, but not for the last digits of floating point, and at least one."""
    return max(1, math.ceil(need * (1 - _ROUNDING)))


def _measured_text(advice: Advice, *, window_s: float, reported: int) -> str:
    parts = [f"processes {rate_text(advice.observed_per_s or 0.0)} in {number_text(window_s)} s"]
    if reported < advice.current:
        parts.append(f"readings of {reported} of {advice.current} instances")
    parts.append(f"utilization {100 * (advice.utilization or 0.0):.0f} %")
    if advice.true_per_s is None or advice.true_per_instance_per_s is None:
        parts.append("no useful time, so no true rate")
    else:
        each = rate_text(advice.true_per_instance_per_s)
        parts.append(f"true rate {rate_text(advice.true_per_s)} ({each} an instance)")
    return ", ".join(parts)


def _bound_text(operator: Operator, wanted: int) -> str:
    if operator.fixed:
        return "its parallelism is fixed"
    if wanted < operator.min_parallelism:
        return f"it has at least {operator.min_parallelism:,} (min_parallelism)"
    by_state = operator.state_partitions == operator.most and not operator.movable_state
    return f"it has at most {operator.most:,.0f} ({'state_partitions' if by_state else 'max_parallelism'})"
