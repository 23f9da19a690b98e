"""DS2: the parallelism of every operator at once, from true rates (Kalavri et al., OSDI 2018, §3.2).

    (7) π_i = ⌈ Σ_j o_j[λo]* / (o_i[λp] / p_i) ⌉      what must be processed, by what one instance can do
    (8) o_j[λo]* = (o_j[λo] / o_j[λp]) · Σ_u o_u[λo]*   what operator j puts out when it keeps up

Beyond the paper: rates and selectivities are estimates over several windows (`measurement/evidence.py`), and what
does not stand out from their scatter changes nothing; a standing queue is worked off in `catch_up_s` (`drain.py`);
the capacity may follow a learned curve, and is bounded by the hottest key (`curve.py`); an operator that cannot
grow caps what is asked of those before and after it (`bottleneck.py`). `ds2-paper` does none of the first two.
Options: only `target_utilization` of the capacity is used, `tolerance` lets a need lie over a whole number.

Departures from the paper are listed in docs/policies/ds2.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property

from elastream.dataflow import Operator
from elastream.dataflow.graph import MOST_INSTANCES
from elastream.durations import text as duration_text
from elastream.measurement import Snapshot
from elastream.measurement.batch_cost import BatchCost
from elastream.measurement.evidence import Seen
from elastream.measurement.flow import Flow, behind, flow, flow_at
from elastream.measurement.thresholds import HELD_BACK, NO_CORE
from elastream.options import check_bounds, option
from elastream.policies.advice import because, bounded, measured, no_data, whole
from elastream.policies.bottleneck import ROUNDING, Asked, Caps, caps, expected_share, limits, moved
from elastream.policies.catalog import policy
from elastream.policies.curve import Curve, EvenCurve, LearnedCurve, Linear, Skewed, learn
from elastream.policies.drain import BacklogDrain, drain_s, drains, room_for_action
from elastream.policies.foresight import NOTHING_FORESEEN, Foresight, foresee
from elastream.policies.imbalance import imbalance
from elastream.policies.knowledge import NOTHING_KNOWN, CapacityPoint, Knowledge
from elastream.policies.proposal import Advice, Proposal, Reason, ReasonKind
from elastream.texts import number_text, rate_text

_NO_GAIN = 0.1  # of the growth that linear scaling would give: below it, an operator is not data-parallel
_STALE = 100  # windows: by then an operator that was not data-parallel deserves another try
_TELLING_GROWTH = 1.5  # smaller growth than this says nothing, as noise is of the same size
_WAITING = (
    0.25  # of that time, with the most instances that are of use: more than the share that makes it believed
)
_SURE = 3.0  # standard errors by which a need must stand out to grow
_SURE_TO_SHRINK = 4.0  # as nothing is lost by waiting
_WORTH = 0.05  # of the instances must be saved for an action to pay
_WORTH_IN_ALL = 0.02  # of the instances of all operators together
_CATCH_UP_WINDOWS = 2.0  # windows in which a queue is to be gone
_MOSTLY_STATE = 0.5  # of the work of a batch
_MOST_DEARER = 1.5  # times what its batches say: beyond that something else holds it up
_TELLING_ROOM = 0.01  # less is told to nobody
_TELLING_RESERVE = 0.001
_BEHIND_S = 1.0  # of what it must process: with more waiting in every window, it is behind


class _Queue(Enum):
    """What waits for an operator in every window."""

    NONE = "none"
    GOES = "goes"
    """Soon enough, with the instances that there are."""
    STAYS = "stays"


@policy(
    "ds2-paper",
    summary="DS2 as published: each window alone, a backlog left alone, every change carried out",
    needs="useful time, records in and out of every operator; source rates",
    good_for="comparing with the paper, and loads without noise, periods or stalls",
    preset={"single_window": True},
    knobs={"scale_down_delay_s": 0, "rollback_intervals": 1},
)
@policy(
    "ds2-learned",
    summary="DS2 with a capacity curve learned from the parallelisms that were seen",
    needs="useful time, records in and out of every operator; source rates",
    good_for="operators that scale sub-linearly: right after two steps, where ds2 creeps up",
    preset={"learned_curve": True},
)
@policy(
    "ds2-forecast",
    summary="DS2 that sizes for the load that is expected, as far as its forecasts have earned trust",
    needs="useful time, records in and out of every operator; source rates",
    good_for="loads that come again every day or hour; where an action, or being late for a rise, is expensive",
    preset={"short_costs": 30.0, "target_utilization": 0.7},
)
@policy(
    "ds2",
    summary="the least parallelism of all operators at once, from true rates and the graph",
    needs="useful time, records in and out of every operator; source rates",
    good_for="the default: one action to the right size, up or down",
)
@dataclass(frozen=True, kw_only=True)
class DS2:
    target_utilization: float = option(
        1.0, "the share of the capacity that is meant to be used", unit="share", least=0.01, most=1.0
    )
    tolerance: float = option(
        0.0,
        "how far over a whole number the need may lie before one more is taken",
        unit="instances",
        least=0,
        most=1,
    )
    catch_up_s: float | None = option(
        None, "how fast a standing backlog should be gone; none is two intervals", unit="s", least=0.001
    )
    shared_workers: bool = option(False, "the engine's workers run every operator (Timely): sum the needs")
    learned_curve: bool = option(False, "fit α·n^β to what was seen, in place of linear scaling")
    short_costs: float | None = option(
        None,
        "look ahead: how many times as bad a missing instance is as an idle one; none is not to",
        unit="times",
        least=1,
        most=1e6,
    )
    single_window: bool = option(
        False, "decide by the last window alone, and with no catch_up_s leave a backlog alone, as published"
    )

    def __post_init__(self) -> None:
        check_bounds(self)

    def __call__(self, snapshot: Snapshot, knowledge: Knowledge = NOTHING_KNOWN) -> Proposal:
        seen = Seen(snapshot=snapshot) if self.single_window else knowledge.evidence.seen(snapshot)
        ahead = self._ahead(seen, knowledge)
        curves = {name: self._curve(seen, knowledge, name) for name in snapshot.dataflow.scalable}
        stuck = {name: text for name in curves if (text := _not_parallel(snapshot, knowledge.of(name), name))}
        limit = {} if self.shared_workers else limits(seen.snapshot, curves, stuck)
        asked = self._asked(snapshot, seen, knowledge, curves, ahead)
        capped = caps(seen.snapshot, asked, limit)
        sizing = _Sizing(
            raw=snapshot,
            seen=seen,
            stuck=stuck,
            asked=asked,
            caps=capped,
            flow=_flow(seen, asked, capped),
            steady=_flow(seen, self._steadily(seen, knowledge, ahead), capped),
            ahead=ahead,
            reserves=_reserves(snapshot, knowledge, ahead),
            later=_flow(seen, self._later(asked, knowledge, ahead), capped) if ahead.sources else None,
        )
        advice = {name: self._advice(sizing, name, curve) for name, curve in curves.items()}
        if any(one.parallelism not in (None, one.current) for one in advice.values()):
            grows = any((one.parallelism or 0) > one.current for one in advice.values())
            sizing = replace(sizing, acts=True, grows=grows)
            advice = {name: self._advice(sizing, name, curve) for name, curve in curves.items()}
        if seen.errors and (why := _saves_too_little(snapshot, advice)) is not None:
            advice = {name: _kept(one, why) for name, one in advice.items()}
        proposal = Proposal(
            policy=self._name,
            advice=advice,
            reasons=(*asked.reasons, *capped.reasons),
            expected_share=expected_share(seen.snapshot, limit),
            outlook=ahead.outlooks,
        )
        return self._shared(snapshot, proposal) if self.shared_workers else proposal

    @property
    def _name(self) -> str:
        if self.short_costs is not None:
            return "ds2-forecast"
        return "ds2-learned" if self.learned_curve else "ds2-paper" if self.single_window else "ds2"

    def remember(self, snapshot: Snapshot, knowledge: Knowledge) -> Knowledge:
        return knowledge.forecasting(snapshot, wanted=self.short_costs is not None)

    def _curve(self, seen: Seen, knowledge: Knowledge, name: str) -> Curve | None:
        """What the operator can do with n instances; None where nothing was measured."""
        even = self._even_curve(seen.snapshot, knowledge, name)
        hottest = seen.hottest.get(name)
        if even is None or hottest is None:
            return _as_counted(even, seen, name) if isinstance(even, BatchCost) else even
        if isinstance(even, BatchCost):
            even = replace(even, balance=1.0)  # that of uneven tasks is what the hottest key makes of it
        return Skewed(even, hottest)

    def _even_curve(self, snapshot: Snapshot, knowledge: Knowledge, name: str) -> EvenCurve | None:
        if name in snapshot.batch_costs:
            cost = snapshot.batch_costs[name]
            return cost if self.learned_curve else cost.linear
        learned = learn(knowledge.of(name)) if self.learned_curve else None
        if learned is not None:
            return learned
        rates = snapshot.measurements.get(name)
        if rates is None or not rates.true_per_instance:
            return None
        return Linear(rates.true_per_instance)

    def _asked(
        self,
        newest: Snapshot,
        seen: Seen,
        knowledge: Knowledge,
        curves: Mapping[str, Curve | None],
        ahead: Foresight,
    ) -> Asked:
        """What is asked of the sources, and of every operator on top of what reaches it."""
        snapshot = seen.snapshot
        corrections = {name: knowledge.correction(name) for name in snapshot.source_rates}
        reasons = [
            Reason(
                kind=ReasonKind.CORRECTED,
                text=f"asks for {ratio:.2f} times the rate of {name}: the last plan fell short of its model",
            )
            for name, ratio in corrections.items()
            if ratio != 1.0
        ]
        reasons += [
            Reason(
                kind=ReasonKind.ROOM, text=f"has room for {share:.0%} more of {name}: so much does its load move"
            )
            for name, share in seen.room.items()
            if share >= _TELLING_ROOM and name not in ahead.sources
        ]
        reasons += ahead.reasons(snapshot.source_rates)
        steadily = self._steadily(seen, knowledge, ahead).source_rates
        waiting: Mapping[str, BacklogDrain] = {}
        catch_up_s = self._catch_up_s(snapshot)
        if catch_up_s is not None:
            within_s = drain_s(catch_up_s, knowledge.action_s)
            waiting = drains(snapshot, newest, curves, within_s=within_s)
        if waiting:
            records = number_text(math.fsum(drain.records for drain in waiting.values()))
            gone_in_s = max(drain.gone_in_s for drain in waiting.values())
            text = f"a backlog of {records} records is to be gone in {duration_text(gone_in_s)}"
            reasons.append(Reason(kind=ReasonKind.CATCH_UP, text=text))
        extra = {name: drain.extra_per_s for name, drain in waiting.items()}
        sources = {name: rate * corrections[name] for name, rate in steadily.items()}
        return Asked(source_rates=sources, extra_per_s=extra, reasons=tuple(reasons))

    def _catch_up_s(self, snapshot: Snapshot) -> float | None:
        if self.catch_up_s is not None:
            return self.catch_up_s
        return None if self.single_window else _CATCH_UP_WINDOWS * snapshot.window_s

    def _ahead(self, seen: Seen, knowledge: Knowledge) -> Foresight:
        if self.single_window:
            return NOTHING_FORESEEN
        ready = self._steadily(seen, knowledge, NOTHING_FORESEEN).source_rates
        return foresee(seen.snapshot, knowledge, ready, short_costs=self.short_costs, used=self.target_utilization)

    def _steadily(self, seen: Seen, knowledge: Knowledge, ahead: Foresight) -> Asked:
        """What arrives, with the room to work off what an action of the usual length leaves waiting; and what is
        about to arrive."""
        catch_up_s = self._catch_up_s(seen.snapshot)
        room = 0.0 if catch_up_s is None else room_for_action(catch_up_s, knowledge.action_s)
        rates = {
            n: (1 + max(room, seen.room.get(n, 0.0))) * rate for n, rate in seen.snapshot.source_rates.items()
        }
        soon = {name: one.soon_per_s for name, one in ahead.sources.items()}
        return Asked(source_rates={**rates, **soon}, extra_per_s={})

    def _later(self, asked: Asked, knowledge: Knowledge, ahead: Foresight) -> Asked:
        """What arrives for as long as a new size is meant to last."""
        later = {n: one.later_per_s * knowledge.correction(n) for n, one in ahead.sources.items()}
        return Asked(source_rates={**asked.source_rates, **later}, extra_per_s={})

    def _advice(self, sizing: _Sizing, name: str, curve: Curve | None) -> Advice:
        snapshot, target = sizing.raw, sizing.flow.required_per_s.get(name)
        advice = replace(measured(snapshot, name), target_per_s=target)
        operator = snapshot.dataflow[name]
        if name not in snapshot.measurements:
            return advice
        if (why := sizing.undecided(name, curve)) is not None:
            return no_data(advice, why)
        reserved = 1 + sizing.reserves.get(name, 0.0)
        need = self._need(operator, curve, reserved * (target or 0.0))
        if not need <= MOST_INSTANCES:
            return no_data(advice, "what it can do is next to nothing, so instances cannot be counted")
        advice = replace(advice, need=need)
        reasons = self._reasons(sizing, advice, curve)
        advice = replace(advice, reasons=(*advice.reasons, *reasons))
        if name in sizing.stuck:
            kept = replace(advice, parallelism=advice.current)
            return because(kept, ReasonKind.NOT_PARALLEL, sizing.stuck[name])
        error = sizing.seen.errors.get(name, 0.0)
        wanted = self._calm(
            operator,
            advice.current,
            need,
            curve,
            error=error,
            queue=sizing.queue(name),
            sure=0.0 if sizing.seen.stepped_up else _SURE * (1 - sizing.ahead.trusted),
            acts=sizing.acts,
        )
        if sizing.later is not None:
            later = self._need(operator, curve, reserved * sizing.later.required_per_s.get(name, 0.0))
            enough = self._instances(operator, later, curve)
            wanted = sizing.ahead.sized(advice.current, wanted, enough, grows=sizing.grows)
            advice = replace(advice, least_saving=sizing.ahead.least_saving(advice.current))
        held = _held(advice, self._instances(operator, need, curve), wanted, error, queue=sizing.queue(name))
        advice = advice if held is None else because(advice, ReasonKind.HELD, held)
        steady_need = self._need(operator, curve, reserved * sizing.steady.required_per_s.get(name, 0.0))
        steady = self._calm(operator, advice.current, steady_need, curve, error=error)
        advice = bounded(operator, *_within_cores(snapshot, advice, wanted))
        return replace(advice, steady=min(steady, advice.parallelism or steady))

    def _need(self, operator: Operator, curve: Curve | None, records_per_s: float) -> float:
        if curve is None:
            return 0.0
        asked = records_per_s / self.target_utilization
        need = curve.needed(asked)
        return max(need, moved(operator, curve, need).needed(asked))

    def _calm(
        self,
        operator: Operator,
        current: int,
        need: float,
        curve: Curve | None,
        *,
        error: float,
        queue: _Queue = _Queue.NONE,
        sure: float = _SURE,
        acts: bool = False,
    ) -> int:
        """A need must stand out from its scatter to change anything. A queue that stays speaks for itself, and
        after a step of the load the present size was meant for another one: nothing speaks for keeping it. What
        is foreseen has its scatter in it. Where the pipeline `acts` anyway, what can surely be saved is, however
        little: it pays for no action of its own."""
        wanted = self._instances(operator, need, curve)
        if queue is _Queue.STAYS or self._instances(operator, need * (1 - sure * error), curve) > current:
            return max(current, wanted)
        if queue is _Queue.GOES:
            return current
        enough = self._instances(operator, need * (1 + _SURE_TO_SHRINK * error), curve)
        # what is saved must be more than what is not known, and worth an action
        least = max(_SURE_TO_SHRINK * error * need, _WORTH * current) if error > 0 else 0.0
        return enough if current - enough >= least or (acts and enough < current) else current

    def _instances(self, operator: Operator, need: float, curve: Curve | None) -> int:
        """Equation 7's rounding: up, but not for a rounding error or for what the tolerance allows."""
        lenient = need * (1 - ROUNDING) - self.tolerance
        if lenient > operator.most:
            return math.ceil(lenient)  # the bounds will say so
        # how evenly a batch divides was measured; else the partitions of the state tell
        in_batches = isinstance(curve.even if isinstance(curve, Skewed) else curve, BatchCost)
        return max(1, math.ceil(lenient)) if in_batches else operator.enough_for(lenient)

    def _reasons(self, sizing: _Sizing, advice: Advice, curve: Curve | None) -> list[Reason]:
        """How the need came about."""
        name, operator = advice.operator, sizing.raw.dataflow[advice.operator]
        need, target = advice.need or 0.0, advice.target_per_s or 0.0
        reasons = [Reason(kind=ReasonKind.FORMULA, text=self._formula(sizing, name, curve, need))]
        if isinstance(curve, LearnedCurve):
            points = ", ".join(f"{n:.0f}: {rate_text(capacity)}" for n, capacity in curve.points)
            reasons.append(Reason(kind=ReasonKind.LEARNED, text=f"its capacity grows as {curve.law} ({points})"))
        if (age := sizing.seen.ages.get(name, 0)) > 0:
            windows = "a window" if age == 1 else f"{age} windows"
            rates = sizing.raw.measurements.get(name)
            waits = rates is not None and rates.totals.backlog  # a batch that takes longer than a window
            what = (
                f"finished nothing for {windows}, though records wait"
                if waits
                else f"had nothing to do for {windows}"
            )
            text = f"it {what}: what a record costs is from before"
            reasons.append(Reason(kind=ReasonKind.INFERRED, text=text))
        if any(consumer == name for _, consumer in sizing.flow.inferred):
            text = "an operator before it has no readings, so its input was taken from what it counted itself"
            reasons.append(Reason(kind=ReasonKind.INFERRED, text=text))
        wanted = self._instances(operator, need, curve)
        if need * (1 - ROUNDING) > wanted:
            text = f"a need of {need:.2f} is taken as {wanted:,} (tolerance {self.tolerance:g})"
            reasons.append(Reason(kind=ReasonKind.TOLERATED, text=text))
        if operator.state_partitions is not None and max(1, math.ceil(need * (1 - ROUNDING))) < wanted:
            does = operator.effective(wanted)
            text = f"{operator.state_partitions} state partitions: {wanted:,} instances do the work of {does:.3g}"
            reasons.append(Reason(kind=ReasonKind.CLAMPED, text=text))
        if name in sizing.caps.bottlenecks:
            share = sizing.caps.bottlenecks[name]
            text = f"it can take {share:.0%} of what its sources bring, so the rest is sized for that"
            reasons.append(Reason(kind=ReasonKind.BOTTLENECK, text=text))
        if isinstance(curve, Skewed):
            reasons.append(_skew(curve))
        batch = curve.even if isinstance(curve, Skewed) else curve
        if isinstance(batch, BatchCost) and need > 1 and batch.state_share(target) > _MOSTLY_STATE:
            reasons.append(_state(batch, target))
        kinds = {reason.kind for reason in reasons}
        reasons += [r for r in imbalance(sizing.raw.measurements[name]) if r.kind not in kinds]
        return reasons

    def _formula(self, sizing: _Sizing, name: str, curve: Curve | None, need: float) -> str:
        if curve is None:
            return "nothing reaches it, so the least will do"
        reserve = sizing.reserves.get(name, 0.0)
        more = f" and {reserve:.1%} more, as well as its cost is known" if reserve >= _TELLING_RESERVE else ""
        must = f"must process {rate_text(sizing.flow.required_per_s.get(name) or 0.0)}{more}"
        at = f" at {self.target_utilization:.0%} of it" if self.target_utilization < 1 else ""
        if isinstance(curve, Linear):
            each = rate_text(curve.per_instance_per_s)
            return f"{must}, an instance can do {each}{at}: {need:.2f} instances"
        if isinstance(curve, Skewed):
            return f"{must}{at}: {need:.2f} instances with keys as uneven as they are"
        if isinstance(curve, BatchCost):
            return f"{must}{at}: {need:.2f} instances, as {curve}"
        return f"{must}{at}: {need:.2f} instances by its learned curve"

    def _shared(self, snapshot: Snapshot, proposal: Proposal) -> Proposal:
        """For workers that run every operator (§4.3): as many as all the needs together."""
        needs = {name: advice.need for name, advice in proposal.advice.items()}
        unknown = [name for name, need in needs.items() if need is None]
        if unknown:
            text = f"the workers cannot be counted: {', '.join(unknown)} without a need"
            silent = {name: no_data(advice, text) for name, advice in proposal.advice.items()}
            return replace(proposal, advice=silent)
        total = math.fsum(need for need in needs.values() if need is not None)
        workers = max(1, math.ceil(total * (1 - ROUNDING) - self.tolerance))
        text = f"the workers are shared: the needs sum to {total:.2f}, so {workers}"
        advice = {
            name: bounded(snapshot.dataflow[name], because(advice, ReasonKind.FORMULA, text), workers)
            for name, advice in proposal.advice.items()
        }
        return replace(proposal, advice=advice, workers=workers)


AS_PUBLISHED = DS2(single_window=True)


@dataclass(frozen=True, kw_only=True)
class _Sizing:
    """What the sizes of all operators are derived from."""

    raw: Snapshot
    """The last window as it is."""
    seen: Seen
    stuck: Mapping[str, str]
    asked: Asked
    caps: Caps
    flow: Flow
    steady: Flow
    """Without what waits."""
    ahead: Foresight
    later: Flow | None
    """What is foreseen, where anything is."""
    reserves: Mapping[str, float] = field(default_factory=dict)
    """The share of what is foreseen that operators are to be ready for beyond it."""
    acts: bool = False
    """Whether some operator is to change."""
    grows: bool = False
    """Whether some operator is to grow."""

    def queue(self, name: str) -> _Queue:
        if not self.seen.errors:
            return _Queue.NONE  # of one window nobody can tell
        if name in self._draining:
            return _Queue.STAYS
        return _Queue.GOES if self._is_behind(name) else _Queue.NONE

    @cached_property
    def _draining(self) -> Set[str]:
        """Operators with a queue that is to be worked off, and all behind them, through which it will come."""
        queued = {name for name in self.asked.extra_per_s if self._is_behind(name)}
        return queued.union(*(behind(self.raw, name) for name in queued))

    def _is_behind(self, name: str) -> bool:
        snapshot = self.seen.snapshot
        waiting = snapshot.measurements[name].totals.backlog or 0.0
        return waiting > max(1.0, _BEHIND_S * flow(snapshot).required_per_s.get(name, 0.0))

    def undecided(self, name: str, curve: Curve | None) -> str | None:
        """Why nothing can be said of an operator."""
        target = self.flow.required_per_s.get(name)
        if name in self.raw.unknown:
            return self.raw.unknown[name]
        if self.seen.errors and not self.raw.is_complete_for(name):
            return "not all of its instances reported, so nothing is decided for it"  # there will be other windows
        if target is None:
            return "what it must process is not known: an operator before it was not seen at work"
        if target > 0 and curve is None:
            return "it had no useful time, so what it can do is not known"
        return None


def _reserves(snapshot: Snapshot, knowledge: Knowledge, ahead: Foresight) -> Mapping[str, float]:
    if not ahead.trusted:
        return {}
    errors = knowledge.evidence.capacity_errors(snapshot)
    return {name: ahead.reserve(error) for name, error in errors.items()}


def _saves_too_little(snapshot: Snapshot, advice: Mapping[str, Advice]) -> str | None:
    """What is to be taken away together must pay for an action, too: of many large operators one or another could
    do with an instance less every few hours, by what its times scatter."""
    changes = [one.parallelism - one.current for one in advice.values() if one.parallelism is not None]
    total = math.fsum(snapshot.plan.values())
    if not min(changes, default=0) < 0 >= max(changes) or -sum(changes) >= _WORTH_IN_ALL * total:
        return None
    return f"{-sum(changes)} of {total:,.0f} instances could be saved in all, which does not pay for an action"


def _kept(advice: Advice, why: str) -> Advice:
    if advice.parallelism in (None, advice.current):
        return advice
    return because(replace(advice, parallelism=advice.current), ReasonKind.HELD, why)


def _as_counted(cost: BatchCost, seen: Seen, name: str) -> BatchCost:
    """What it did while something was always overdue is counted, and surer than what its batches seem to cost: by
    those a queue may seem to be as good as gone that never goes. Not where it was held back."""
    counted, rates = seen.overdue_per_s.get(name), seen.snapshot.measurements.get(name)
    if counted is None or rates is None or (rates.wait_out_share or 0.0) > HELD_BACK:
        return cost
    dearer = cost.capacity(seen.snapshot.plan[name]) / counted
    return replace(cost, per_record_s=cost.per_record_s * min(_MOST_DEARER, dearer)) if dearer > 1 else cost


def _flow(seen: Seen, asked: Asked, capped: Caps) -> Flow:
    return flow_at(
        seen.snapshot,
        source_rates=asked.source_rates,
        extra_per_s=asked.extra_per_s,
        limit_per_s=capped.per_s,
    )


def _held(advice: Advice, wanted: int, kept: int, error: float, *, queue: _Queue) -> str | None:
    if kept != advice.current or wanted == kept:
        return None
    if queue is not _Queue.NONE and wanted < kept:
        return f"{wanted:,} would do, but it is behind: nothing is taken from it until what waits is gone"
    scatters = f"{advice.need:.2f} ± {(advice.need or 0.0) * error:.2f}"
    return f"a need of {scatters} does not stand out from its scatter, so it stays at {kept:,} and not {wanted:,}"


def _skew(curve: Skewed) -> Reason:
    best = rate_text(curve.capacity(curve.worthwhile))
    text = (
        f"skew: its hottest key has {curve.hottest:.0%} of the records and is on one instance, so more than "
        f"{curve.worthwhile:,} instances hardly help, and it does no more than {best}; a salted or finer key, or "
        "a partial aggregate before it, would"
    )
    return Reason(kind=ReasonKind.SKEW, text=text)


def _state(cost: BatchCost, records_per_s: float) -> Reason:
    text = (
        f"its state takes {cost.state_share(records_per_s):.0%} of the work of a batch, however little comes in: "
        "a longer latency, fewer state partitions, or memory that holds the state may help more than instances"
    )
    return Reason(kind=ReasonKind.STATE, text=text)


def _not_parallel(snapshot: Snapshot, points: tuple[CapacityPoint, ...], name: str) -> str | None:
    """A message where its true rate did not move when it was last given more instances."""
    now = next((point for point in points if point.parallelism == snapshot.plan[name]), None)
    fewer = [p for p in points if p.parallelism * _TELLING_GROWTH <= snapshot.plan[name] and p.age <= _STALE]
    if now is None or not fewer:
        return None
    before = max(fewer, key=lambda point: point.parallelism)
    gained = now.true_per_s / before.true_per_s - 1
    expected = now.parallelism / before.parallelism - 1
    if gained >= _NO_GAIN * expected:
        return None
    return (
        f"not data-parallel: {rate_text(before.true_per_s)} with {before.parallelism}, "
        f"{rate_text(now.true_per_s)} with {now.parallelism}; left alone, as more instances do not help"
    )


def _within_cores(snapshot: Snapshot, advice: Advice, wanted: int) -> tuple[Advice, int]:
    """No more instances than keep the cores busy that the operator gets.

    A few more than those cores, so that all are still in use, and seen to be, when the answer is followed.
    """
    waiting = snapshot.measurements[advice.operator].wait_core_share or 0.0
    if waiting < NO_CORE:
        return advice, wanted
    cores = advice.current * (1 - waiting)
    of_use = max(round(cores) + 1, whole(cores / (1 - _WAITING)))
    if wanted < of_use:
        return advice, wanted
    more = f" ({wanted:,} wanted)" if wanted > of_use else ""
    text = (
        f"no core is free: its {advice.current:,} instances wait for one {waiting:.0%} of the time and get "
        f"{cores:.1f} cores, so more than {of_use:,} do not help{more}"
    )
    return because(advice, ReasonKind.NO_CORES, text), of_use
