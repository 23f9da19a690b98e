"""Evidence: what several windows say together, where one alone would mislead.

Every ratio is one of sums over a horizon that adapts to what it is about:

arrivals      since the last step of the load, which is followed at once (`arrivals.py`)
selectivity   since its last step, which two windows must confirm; of an operator whose output comes in bursts (a
              window that fires, a trigger) over whole periods, so that where a period begins makes no difference
cost          the useful time of a record with the present parallelism, the median since its last step; where the
              operator was saturated by the count of its records, which is exact, while useful time is noisy
what waits    the least of the last period: what is there in every window is a standing queue, what comes with a
              burst and goes again is not

Each estimate has a relative standard error, from how much its windows scatter and how many there are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from statistics import median

from elastream.measurement.arrivals import Arrivals
from elastream.measurement.flow import is_saturated
from elastream.measurement.measurement import Measurement
from elastream.measurement.reading import Reading
from elastream.measurement.scatter import MEDIAN, Estimate, new_level, scatter, scatter_below
from elastream.measurement.snapshot import Snapshot

_MOST = 120  # windows that are kept
_LEAST_STEP = 0.2  # of a cost or a selectivity: what fires moves them by less; of a load that asks for a new plan
_SAME_SIZE = 0.1  # of the instances
_CONFIRMED = 2  # windows in a row that make a step of a cost or of a selectivity, and stops that make bursts
_STALLED = 2.0  # times what a record costs in other windows: a stall, unless the next window says the same
_BEFORE = 3  # windows that tell what it cost before a change
_QUIET = 0.1  # of the mean output: a window with less lies between two bursts
_IN_BURSTS = 0.15  # of the windows at least are quiet, where the output comes in bursts
_HOT, _HOT_FOR = 3, 20  # windows whose median tells of skew, and for how many it is believed
_OVERDUE = 3  # windows in a row: batches are counted when they end, and a window may lack one
_STANDS = 20  # windows at most that a queue must be there to be a standing one
_ALWAYS_BUSY = 0.95  # share of the time, by the median of the windows: it is measured with noise
_LUMPY, _LUMPY_SCATTER = (
    0.5,
    0.06,
)  # of the usual output more or less, in some windows and in most: it comes in lumps
_COUNTS = 0.97  # of the time: an operator that works for longer, while records wait, does all that it can
_COUNTED = 0.002  # the relative error of a capacity that was counted
_CUT_OFF = 0.999  # of the window
_SURE = 3.0  # standard errors


@dataclass(frozen=True, kw_only=True)
class Span:
    """What all instances of an operator did in one window. It is looked at in every window that it is kept for, so
    what follows from it is computed once."""

    window_s: float
    parallelism: int
    useful_s: float
    records_in: float
    records_out: Mapping[str, float]
    waiting: float | None
    """At its end; of engines that work in batches only what is overdue."""
    timed: bool
    """Not while it warms up: counts hold then, times do not."""
    saturated: bool
    """It worked all the time, as records waited for it all the time."""
    busy: float = 0.0
    """The share of the time that it worked. All of it in batches, between which the driver has its part: that
    something is overdue says there what being busy says elsewhere."""
    hottest: float | None = None
    """The share of the records that its hottest key has, by how much its fullest task or instance stood out."""

    @cached_property
    def has_cost(self) -> bool:
        return self.timed and self.records_in > 0

    @cached_property
    def cost_s(self) -> float | None:
        """Of a record; None where none was timed."""
        if not self.has_cost:
            return None
        return (self.parallelism * self.window_s if self.saturated else self.useful_s) / self.records_in

    @cached_property
    def out(self) -> float:
        return math.fsum(self.records_out.values())

    @cached_property
    def ratio(self) -> float | None:
        """Records out for each one in; None where none went in."""
        return self.out / self.records_in if self.records_in > 0 else None


@dataclass(frozen=True, kw_only=True)
class Trail:
    """The last windows of one operator, newest last."""

    spans: tuple[Span, ...] = ()
    same_cost: int = 0
    """So many of the newest in which a record cost about the same."""
    same_ratio: int = 0
    """So many of the newest in which about as many records came out for one that went in."""

    def with_span(self, span: Span) -> Trail:
        spans = (*self.spans, span)[-_MOST:]
        moved = bool(self.spans) and not _same_size(self.spans[-1].parallelism, span.parallelism)
        return Trail(
            spans=spans,
            same_cost=_still_alike([one.cost_s for one in spans[-1 if moved else -(self.same_cost + 1) :]]),
            same_ratio=_still_alike([one.ratio for one in spans[-(self.same_ratio + 1) :]]),
        )

    @cached_property
    def cost(self) -> Estimate | None:
        """The useful seconds of a record with the present parallelism; None where nothing was timed."""
        period = self._whole_periods
        if period is not None:
            return self._cost_over_periods(period)
        timed_spans = [span for span in self.spans[-self.same_cost :] if span.has_cost] if self.same_cost else []
        if not timed_spans:
            return None
        if self._in_lumps:
            return self._cost_over_periods(self.spans[-self.same_cost :])
        spans = self._believed(timed_spans)
        # not the mean: one stall would move it, and useful time is never longer than the window, so that of a busy
        # operator is cut off on one side
        costs = [span.useful_s / span.records_in for span in spans]
        spread = max(self._cost_scatter, scatter_below(costs))
        timed = Estimate(value=median(costs), error=MEDIAN * spread / math.sqrt(len(spans)))
        counted = _counted([span for span in spans if span.saturated])
        return timed if counted is None or _contradicts(timed, counted) else counted

    def _believed(self, spans: Sequence[Span]) -> Sequence[Span]:
        """Right after a change of parallelism there are too few windows to tell a stall from what a record costs
        now: of two so different ones the cheaper counts, and of one that is so much dearer than those before the
        change the next one will tell."""
        if len(spans) > _CONFIRMED:
            return spans
        usual = _STALLED * min(_known([span.cost_s for span in spans]))
        kept = [span for span in spans if (span.cost_s or 0.0) <= usual]
        before = [span for span in self.spans[: -self.same_cost] if span.has_cost][-_BEFORE:]
        dear = len(kept) == 1 and bool(before)
        if dear and (kept[0].cost_s or 0.0) > _STALLED * median(_known([span.cost_s for span in before])):
            return before
        return kept

    def selectivity(self, consumer: str) -> Estimate | None:
        """Records out for each one in; None where none went in."""
        spans = self._with_same_ratio
        records_in = math.fsum([span.records_in for span in spans])
        if records_in <= 0:
            return None
        out = math.fsum([span.records_out.get(consumer, 0.0) for span in spans])
        return Estimate(value=out / records_in, error=self.ratio_error)

    @cached_property
    def _with_same_ratio(self) -> Sequence[Span]:
        period = self._whole_periods
        return self.spans[-self.same_ratio :] if period is None and self.same_ratio else period or ()

    @cached_property
    def ratio_error(self) -> float:
        """The relative standard error of its selectivities; 0 where nothing is known of them."""
        spans = self._with_same_ratio
        ratios = _known([span.ratio for span in spans])
        if not ratios:
            return 0.0
        return _grain(spans) if self._ends or self._in_lumps else scatter(ratios) / math.sqrt(len(ratios))

    @property
    def age(self) -> int:
        """Windows since a record was last timed."""
        return next((i for i, span in enumerate(reversed(self.spans)) if span.has_cost), len(self.spans))

    @cached_property
    def period(self) -> int:
        """Windows from one burst to the next, at most; 1 where the output does not come in bursts."""
        ends = self._ends
        if not ends:
            return 1
        return max((after - before for before, after in pairwise(ends)), default=ends[0] + 1)

    @cached_property
    def same_size(self) -> int:
        """Windows since its parallelism was last changed."""
        now = self.spans[-1].parallelism
        others = (i for i, span in enumerate(reversed(self.spans)) if span.parallelism != now)
        return next(others, len(self.spans))

    def standing(self, windows: int) -> float | None:
        """What waited in each of so many windows. A queue that stands leaves no time without work: where the
        operator had some, the queue is that of a burst, whenever it was looked at."""
        last = self.spans[-windows:]
        waiting = [span.waiting for span in last if span.waiting is not None]
        if len(waiting) < len(last):
            return None
        return min(waiting) if median(span.busy for span in last) >= _ALWAYS_BUSY else 0.0

    @property
    def overdue_per_s(self) -> float | None:
        """What an operator in batches did in its last windows, where at both ends of each something was overdue:
        it had more to do all the time. None where that is not so, one key held it up, or a batch failed."""
        spans = self.spans[-min(_OVERDUE + 1, self.same_size) :]
        told = spans[1:]
        if len(told) < _OVERDUE or not all(one.timed and one.records_in > 0 and not one.hottest for one in told):
            return None
        if not all(one.waiting for one in spans):
            return None
        return math.fsum(one.records_in for one in told) / math.fsum(one.window_s for one in told)

    @property
    def hottest(self) -> float | None:
        """The share of the records that the hottest key has; None where no key stands out."""
        known = [span.hottest for span in self.spans[-_HOT_FOR:] if span.hottest is not None][-_HOT:]
        return median(known) or None if known else None

    @cached_property
    def in_bursts(self) -> bool:
        """Whether its output comes now and then, and nothing between; also where it comes in most windows and is
        missing in some."""
        return bool(self._ends) or len(_stops(self._quiet)) >= _CONFIRMED

    @property
    def is_uneven(self) -> bool:
        """Whether those behind it get much at once and then nothing, within a window or over several."""
        return self.in_bursts or self._in_lumps

    @cached_property
    def _in_lumps(self) -> bool:
        """Whether some windows have far more or less output than usual, though they are no bursts: what fires once
        in most windows fires twice or not at all in some."""
        ratios = _known([span.ratio for span in self.spans])
        usual = median(ratios) if ratios else 0.0
        if self._ends or usual <= 0:
            return False
        lumps = max(max(ratios) - usual, usual - min(ratios)) > _LUMPY * usual
        return lumps or scatter(ratios) > _LUMPY_SCATTER

    @cached_property
    def _quiet(self) -> Mapping[int, bool]:
        return _quiet(self.spans)

    @cached_property
    def _ends(self) -> Sequence[int]:
        return _burst_ends(self._quiet)

    @cached_property
    def _whole_periods(self) -> Sequence[Span] | None:
        ends = self._ends
        if not ends:
            return None
        begin = ends[0] + 1 if len(ends) > 1 else 0
        return self.spans[begin : ends[-1] + 1]

    def _cost_over_periods(self, period: Sequence[Span]) -> Estimate | None:
        """With the present parallelism, where it has seen a whole period."""
        now = self.spans[-1].parallelism
        others = (i for i, span in enumerate(reversed(self.spans)) if not _same_size(span.parallelism, now))
        changed = next(others, None)
        if changed is not None:
            since = replace(self, spans=self.spans[len(self.spans) - changed :])
            if len(since._ends) > 1:
                period = since._whole_periods or period
        records_in = math.fsum(span.records_in for span in period)
        if records_in <= 0:
            return None
        useful_s = math.fsum(span.useful_s for span in period)
        error = math.hypot(self._cost_scatter / math.sqrt(len(period)), _grain(period))
        return Estimate(value=useful_s / records_in, error=error)

    @cached_property
    def _cost_scatter(self) -> float:
        """Of a single window, whatever its parallelism: a change of that is a step, and no scatter."""
        timed = [span for span in self.spans if not span.saturated]
        if self._ends:  # what firing costs is no scatter
            timed = [span for span in timed if span.out <= 0]
        return scatter(_known([span.cost_s for span in timed]))


def _same_size(one: int, other: int) -> bool:
    """Whether a record costs about the same with so many instances, however the operator scales."""
    return abs(one - other) <= _SAME_SIZE * max(one, other)


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _contradicts(timed: Estimate, counted: Estimate) -> bool:
    """Whether the operator surely had time left: one that has not is seen busy for nearly all of it. In a burst it
    may look so once in a while, by the noise of a single window."""
    return _COUNTS * counted.value > timed.value * (1 + _SURE * timed.error)


def _counted(spans: Sequence[Span]) -> Estimate | None:
    """The cost of a record, of windows in which it was counted; None without any."""
    if not spans:
        return None
    costs = [(span.cost_s or 0.0, span.records_in) for span in spans]
    mean = math.fsum(cost_s * records for cost_s, records in costs) / math.fsum(records for _, records in costs)
    squares = math.fsum((cost_s / mean - 1) ** 2 for cost_s, _ in costs) if mean > 0 else 0.0
    return Estimate(value=mean, error=max(_COUNTED, math.sqrt(squares) / len(spans)))


def _still_alike(values: Sequence[float | None]) -> int:
    """How many of the newest values, unknown ones among them, are since the first that is about the same."""
    known = [index for index, value in enumerate(values) if value is not None]
    if not known:
        return 1
    return len(values) - known[new_level(_known(values), confirmed_by=_CONFIRMED, least=_LEAST_STEP)]


def _burst_ends(quiet: Mapping[int, bool]) -> list[int]:
    """The last window of each burst of output; none where it does not come in bursts.

    A burst that the newest window has may go on, and counts only if there are no others. Windows in which there
    was nothing to do say nothing.
    """
    if sum(quiet.values()) < max(1.0, _IN_BURSTS * len(quiet)):
        return []
    return _stops(quiet) or [max(quiet)]


def _stops(quiet: Mapping[int, bool]) -> list[int]:
    """The last window before each time that nothing came out any more."""
    return [index for (index, now), (_, after) in pairwise(quiet.items()) if after and not now]


def _quiet(spans: Sequence[Span]) -> Mapping[int, bool]:
    """Whether next to nothing came out, by window; of those in which there was something to do. Nothing if nothing
    ever came out."""
    outs = {index: span.out for index, span in enumerate(spans) if span.records_in > 0 or span.out > 0}
    least = _QUIET * math.fsum(outs.values()) / max(1, len(outs))
    return {index: out <= least for index, out in outs.items()} if least > 0 else {}


def _grain(spans: Sequence[Span]) -> float:
    """The relative error of a sum over whole periods, when periods are of different numbers of windows."""
    ends = _burst_ends(_quiet(spans))
    if not ends:
        outs = [span.out for span in spans]
        return (max(outs) - min(outs)) / (2 * math.fsum(outs)) if any(outs) else _UNSEEN
    lengths = [after - before for before, after in pairwise(ends)]
    return (max(lengths) - min(lengths)) / (2 * math.fsum(lengths)) if lengths else _UNSEEN


_UNSEEN = 0.1  # the relative error of a sum over a single burst


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A snapshot in which every number that decides is an estimate over its own horizon."""

    snapshot: Snapshot
    errors: Mapping[str, float] = field(default_factory=dict)
    """The relative standard error of what each operator needs."""
    hottest: Mapping[str, float] = field(default_factory=dict)
    """The share of the records that the hottest key has, of operators in which one stands out."""
    ages: Mapping[str, int] = field(default_factory=dict)
    """Windows since a record was last timed."""
    overdue_per_s: Mapping[str, float] = field(default_factory=dict)
    """What operators in batches do that had always something overdue: they cannot do more."""
    room: Mapping[str, float] = field(default_factory=dict)
    """The share by which the load of each source will rise until a decision is in force."""
    stepped_up: bool = False
    """Whether the load of a source did, in the newest window."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    trails: Mapping[str, Trail] = field(default_factory=dict)
    arrivals: Mapping[str, Arrivals] = field(default_factory=dict)

    def with_snapshot(self, snapshot: Snapshot, *, timed: bool = True) -> Evidence:
        """One more window; operators of which not all instances reported are passed over."""
        trails = {name: trail for name, trail in self.trails.items() if name in snapshot.dataflow}
        for name, measured in snapshot.measurements.items():
            if snapshot.is_complete_for(name):
                trail = trails.get(name, Trail())
                uneven = any(self.trails[one].is_uneven for one in self._before(snapshot, name)[1:])
                trails[name] = trail.with_span(_span(snapshot, name, measured, trail, timed=timed, uneven=uneven))
        arrivals = {
            name: self.arrivals.get(name, Arrivals()).with_rate(rate, snapshot.newest_rates.get(name))
            for name, rate in snapshot.source_rates.items()
        }
        return Evidence(trails=trails, arrivals=arrivals)

    def seen(self, snapshot: Snapshot) -> Seen:
        """The newest snapshot, which must be part of the evidence, in the light of those before."""
        if not self.arrivals:
            return Seen(snapshot=snapshot)
        known = snapshot.__dict__.get("_seen")
        if known is None or known[0] is not self:  # for everybody who asks in one window
            known = snapshot.__dict__["_seen"] = (self, self._seen(snapshot))
        return known[1]

    def _seen(self, snapshot: Snapshot) -> Seen:
        readings: list[Reading] = []
        for name, measured in snapshot.measurements.items():
            trail = self.trails.get(name)
            if trail is None or not snapshot.is_complete_for(name):
                readings += measured.readings
            else:
                readings.append(_estimated(snapshot, measured.totals, trail, self._windows(snapshot, name)))
        rates = {name: self.arrivals[name].rate.value for name in snapshot.source_rates if name in self.arrivals}
        return Seen(
            snapshot=replace(snapshot, readings=tuple(readings), source_rates={**snapshot.source_rates, **rates}),
            errors=self._errors(snapshot),
            hottest={name: hot for name, trail in self.trails.items() if (hot := trail.hottest) is not None},
            ages={name: trail.age for name, trail in self.trails.items()},
            overdue_per_s={
                name: per_s
                for name in snapshot.batch_costs
                if name in self.trails and (per_s := self.trails[name].overdue_per_s) is not None
            },
            room={name: arrivals.room for name, arrivals in self.arrivals.items()},
            stepped_up=any(arrivals.stepped_up for arrivals in self.arrivals.values()),
        )

    def was_at_its_limit(self, name: str) -> bool:
        """Whether the operator could not do more in the newest window, which the estimates then know."""
        trail = self.trails.get(name)
        return trail is not None and bool(trail.spans) and trail.spans[-1].saturated

    def is_uneven(self, snapshot: Snapshot, name: str) -> bool:
        """Whether what the operator gets comes in bursts, so that one window says nothing of what is missing."""
        return any(self.trails[one].in_bursts for one in self._before(snapshot, name))

    def _before(self, snapshot: Snapshot, name: str) -> Sequence[str]:
        """The operator and all before it, as far as there is evidence of them."""
        reached = [name]
        for one in reached:
            reached += [before for before in snapshot.dataflow.upstream(one) if before not in reached]
        return [one for one in reached if one in self.trails]

    def _windows(self, snapshot: Snapshot, name: str) -> int:
        """Over how many windows a queue must stand: since the load or the plan last changed, which makes a queue,
        and at least for the longest period of those that fill it."""
        before = self._before(snapshot, name)
        levels = [self.arrivals[one].level for one in before if one in self.arrivals]
        sizes = [self.trails[one].same_size for one in before]
        return max(min([_STANDS, *levels, *sizes]), *(self.trails[one].period for one in before), 1)

    def capacity_errors(self, snapshot: Snapshot) -> Mapping[str, float]:
        """The relative standard error of what each operator needs for arrivals that are known."""
        return self._errors(snapshot, of_arrivals=False)

    def _errors(self, snapshot: Snapshot, *, of_arrivals: bool = True) -> Mapping[str, float]:
        of_flow: dict[str, float] = {}
        errors: dict[str, float] = {}
        for name in snapshot.dataflow.order:
            trail, found = self.trails.get(name), []
            if of_arrivals and name in self.arrivals:
                found.append(self.arrivals[name].rate.error)
            for before in snapshot.dataflow.upstream(name):
                producer = self.trails.get(before)
                found.append(math.hypot(of_flow[before], 0.0 if producer is None else producer.ratio_error))
            of_flow[name] = max(found, default=0.0)
            cost = None if trail is None else trail.cost
            errors[name] = math.hypot(of_flow[name], 0.0 if cost is None else cost.error)
        return errors


NO_EVIDENCE = Evidence()


def _span(
    snapshot: Snapshot, name: str, measured: Measurement, trail: Trail, *, timed: bool, uneven: bool
) -> Span:
    """`uneven`: what it gets comes in bursts, between which it may be without work, however much waits in one."""
    totals = measured.totals
    waiting = totals.backlog if totals.overdue is None else totals.overdue
    before = trail.spans[-1].waiting if trail.spans else None
    enough = totals.records_in if uneven else measured.observed_per_s
    all_the_time = before is not None and before >= enough and measured.utilization >= _COUNTS
    # counts are exact, times are not: what took less than waited for it was never without
    never_without = totals.overdue is not None or (before is not None and before >= totals.records_in)
    return Span(
        window_s=totals.window_s,
        parallelism=snapshot.plan.get(name, totals.instances),
        useful_s=_useful_s(measured),
        records_in=totals.records_in,
        records_out={consumer: totals.records_out_to(consumer) for consumer in measured.consumers},
        waiting=waiting,
        timed=timed and name not in snapshot.unknown,
        saturated=all_the_time and is_saturated(snapshot, name),
        busy=1.0 if never_without else measured.utilization,
        hottest=measured.hottest_key,
    )


def _useful_s(measured: Measurement) -> float:
    """Of all instances. No window has more of it than its length: where times scatter, it cuts off those of some
    instances of a busy operator, and their sum is too small, while the middle one still has the right price."""
    totals, readings = measured.totals, measured.readings
    if not any(one.useful_s >= _CUT_OFF * one.window_s * one.instances for one in readings):
        return totals.useful_s
    prices = [one.useful_s / one.records_in for one in readings if one.records_in > 0]
    return max(totals.useful_s, median(prices) * totals.records_in) if prices else totals.useful_s


def _estimated(snapshot: Snapshot, totals: Reading, trail: Trail, windows: int) -> Reading:
    """The newest reading, with the useful time and the output that its records usually have."""
    records = totals.records_in or _mean_records(trail) * totals.window_s
    cost = trail.cost
    useful_s = totals.useful_s if cost is None else records * cost.value
    # what was counted at saturation may be a little more than fits: the ratios are what matters
    fits = min(1.0, totals.instances * totals.window_s / useful_s) if useful_s > 0 else 1.0
    records_out = {}
    for consumer in snapshot.dataflow.downstream(totals.operator):
        ratio = trail.selectivity(consumer)
        kept = totals.records_out_to(consumer) if ratio is None else records * ratio.value
        records_out[consumer] = fits * kept
    standing = trail.standing(windows)
    return replace(
        totals,
        useful_s=fits * useful_s,
        records_in=fits * records,
        records_out=records_out,
        backlog=totals.backlog if standing is None else standing,
    )


def _mean_records(trail: Trail) -> float:
    seconds = math.fsum([span.window_s for span in trail.spans])
    return math.fsum([span.records_in for span in trail.spans]) / seconds if seconds > 0 else 0.0
