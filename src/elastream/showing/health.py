"""How an operator does, in one word and the reason for it.

behind    it does not keep up: records that it should have processed wait for it; or it does not work at all
strained  it keeps up, but with little room, or something holds it back
ok        neither; an operator that gets too little because others fall behind is not the one to look at
unknown   it was not measured, or only in part
"""

from __future__ import annotations

from collections.abc import Iterator

from elastream.measurement import Snapshot
from elastream.measurement.flow import flow, is_saturated
from elastream.measurement.measurement import Measurement
from elastream.measurement.thresholds import BUSY, HELD_BACK, NO_CORE, STANDING
from elastream.policies.imbalance import imbalance
from elastream.showing.views import Health
from elastream.texts import number_text, rate_text

_OVERDUE_S = 0.5  # of what it does: with less overdue it is as good as there
_SHORT = 0.95  # a smaller share of what it must process is not the edge of a window


def health(snapshot: Snapshot, name: str) -> tuple[Health, str]:
    if name in snapshot.failing:
        return Health.BEHIND, f"does not work: {snapshot.failing[name]}"
    if snapshot.dataflow[name].source:
        return _of_source(snapshot, name)
    rates = snapshot.measurements.get(name)
    if rates is None:
        return Health.UNKNOWN, "no readings in this window"
    if rates.instances < snapshot.plan[name]:
        return Health.UNKNOWN, f"readings of {rates.instances} of {snapshot.plan[name]} instances"
    required = flow(snapshot).required_per_s.get(name)
    behind = _behind(snapshot, name, required)
    if behind is not None:
        return Health.BEHIND, behind
    strains = list(_strains(snapshot, name))
    if strains:
        return Health.STRAINED, "; ".join(strains)
    return Health.OK, _content(snapshot, name, required)


def achieved_at_source(snapshot: Snapshot, name: str) -> float | None:
    """Records per second that the pipeline took in; an engine may count what comes in, what goes out, or both."""
    rates = snapshot.measurements.get(name)
    if rates is None:
        return None
    return max(rates.observed_per_s, *rates.observed_output_per_s.values(), 0.0)


def _of_source(snapshot: Snapshot, name: str) -> tuple[Health, str]:
    offered, achieved = snapshot.source_rates[name], achieved_at_source(snapshot, name)
    if achieved is None:
        return Health.UNKNOWN, "no readings in this window"
    if achieved < _SHORT * offered:
        return Health.BEHIND, f"{rate_text(achieved)} of {rate_text(offered)} get in: the pipeline holds it back"
    return Health.OK, f"all of {rate_text(offered)} get in"


def _behind(snapshot: Snapshot, name: str, required: float | None) -> str | None:
    rates = snapshot.measurements[name]
    if rates.totals.overdue is not None:
        return _overdue(rates)
    waiting = "" if rates.totals.backlog is None else f", {number_text(rates.totals.backlog)} records wait"
    if is_saturated(snapshot, name):
        done = rate_text(rates.observed_per_s)
        return f"busy {rates.utilization:.0%} of the time, and does {done}{waiting}"
    if required is None or rates.observed_per_s >= _SHORT * required or not _backlog_stands(snapshot, name):
        return None
    return f"does {rate_text(rates.observed_per_s)} of {rate_text(required)}{waiting}"


def _overdue(rates: Measurement) -> str | None:
    """In micro-batches some records always wait, and being busy is no sign: what waits for too long is."""
    overdue = rates.totals.overdue or 0.0
    if overdue < max(1.0, _OVERDUE_S * rates.observed_per_s):
        return None
    late = f"{number_text(overdue)} records wait for longer than a batch may take"
    return f"does {rate_text(rates.observed_per_s)}, and {late}"


def _backlog_stands(snapshot: Snapshot, name: str) -> bool:
    rates = snapshot.measurements[name]
    waiting = rates.totals.backlog or 0.0
    return waiting > 0 and waiting >= STANDING * rates.totals.window_s * rates.observed_per_s


def _strains(snapshot: Snapshot, name: str) -> Iterator[str]:
    rates = snapshot.measurements[name]
    if rates.utilization >= BUSY:
        yield f"busy {rates.utilization:.0%} of the time"
    if (rates.wait_out_share or 0.0) >= HELD_BACK:
        yield f"held back by the operators after it {rates.wait_out_share:.0%} of the time"
    if (rates.wait_core_share or 0.0) >= NO_CORE:
        yield f"without a core {rates.wait_core_share:.0%} of the time that it wanted one"
    if _backlog_stands(snapshot, name):
        yield f"{number_text(rates.totals.backlog or 0.0)} records wait for it"
    yield from (reason.text for reason in imbalance(rates))


def _content(snapshot: Snapshot, name: str, required: float | None) -> str:
    rates = snapshot.measurements[name]
    if required is not None and rates.observed_per_s < _SHORT * required:
        got = rate_text(rates.observed_per_s)
        return f"gets {got} of {rate_text(required)}: others fall behind"
    return f"keeps up, busy {rates.utilization:.0%} of the time"
