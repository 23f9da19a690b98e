"""Flink's autoscaler, that of the Flink Kubernetes operator, by its published rule and with its defaults.

    factor = capacity(target utilization) / true rate,    p' = ceil(factor · p)

where the factor is at least 0.4. It acts when the true rate of an operator that is to change lies outside of
[capacity at the highest utilization, capacity at the lowest], and then changes all. To shrink takes the highest
recommendation of an hour. What it measures is in `flink_metrics.py`, what it keeps in `flink_memory.py`.

Its window of metrics begins when the job has stabilized, and must be full before it does anything: by default that
is 20 minutes after every start and every action.

Departures are listed in docs/policies/flink.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from elastream.dataflow import Operator
from elastream.durations import text as duration
from elastream.errors import InvalidInput
from elastream.measurement import Snapshot
from elastream.options import check_bounds, option
from elastream.policies.advice import because, measured, no_data, whole
from elastream.policies.catalog import policy
from elastream.policies.flink_memory import FlinkMemory, PastScaling, Wish
from elastream.policies.flink_metrics import Observing, Vertex, aligned, evaluated, sample_of, scalability
from elastream.policies.knowledge import NOTHING_KNOWN, Knowledge
from elastream.policies.proposal import Advice, Proposal, Reason, ReasonKind
from elastream.texts import number_text, rate_text

_CLOCK_S = 0.001  # that windows may be shorter than they are meant to be
_KEPT_SCALINGS, _KEPT_FOR_S = 3, 86_400.0  # Flink's history.max.count and history.max.age


@policy(
    "flink",
    summary="Flink's autoscaler: true rates over 15 minutes, 70 % of the capacity, an hour to shrink",
    needs="useful time, records in and out of every operator, backlog; source rates",
    good_for="comparing: what the same pipeline would get there",
    knobs={
        "interval_s": 60,
        "warm_up_intervals": 0,
        "scale_down_delay_s": 0,
        "target_rate_ratio": 0,
        "rollback_drop": None,
        "decision_limit": 1_000_000,
    },
)
@dataclass(frozen=True, kw_only=True)
class Flink:
    metrics_window_s: float = option(900.0, "metrics.window: over which rates are taken", unit="s", least=0.001)
    stabilization_s: float = option(
        300.0, "stabilization.interval: after a restart nothing is measured for so long", unit="s", least=0
    )
    utilization_target: float = option(0.7, "utilization.target", unit="share", least=0.01, most=1)
    utilization_max: float = option(1.0, "utilization.max: above it the job grows", unit="share", least=0.01)
    utilization_min: float = option(0.4, "utilization.min: below it the job shrinks", unit="share", least=0)
    catch_up_duration_s: float = option(
        1800.0, "catch-up.duration: within which a lag is to be gone; 0 leaves lags alone", unit="s", least=0
    )
    restart_time_s: float = option(300.0, "restart.time: how long a restart is taken to last", unit="s", least=0)
    scale_up_max_factor: float = option(100_000.0, "scale-up.max-factor: to grow by, at most", least=0)
    scale_down_max_factor: float = option(0.6, "scale-down.max-factor: to shrink by, at most", least=0, most=1)
    scale_down_interval_s: float = option(
        3600.0, "scale-down.interval: shrinking takes the highest recommendation of so long", unit="s", least=0
    )
    vertex_min_parallelism: int = option(1, "vertex.min-parallelism", unit="instances", least=1)
    vertex_max_parallelism: int = option(200, "vertex.max-parallelism", unit="instances", least=1)
    source_partitions: int | None = option(
        None, "of what the operators that read a source read, to align with; none is not known", least=1
    )
    backlog_lag_threshold_s: float = option(
        300.0, "backlog-processing.lag-threshold: with more lag nothing shrinks", unit="s", least=0
    )
    observed_lag_threshold_s: float = option(
        30.0, "observed-true-processing-rate.lag-threshold: from which on a rate is observed", unit="s", least=0
    )
    observed_least_looks: int = option(2, "observed-true-processing-rate.min-observations", least=1)
    observed_switch: float = option(
        0.15,
        "observed-true-processing-rate.switch-threshold: it counts where busy time tells so much more",
        unit="share",
        least=0,
    )
    effectiveness_detection: bool = option(
        False, "scaling.effectiveness.detection.enabled: no more growth where the last had no effect"
    )
    effectiveness_threshold: float = option(
        0.1, "scaling.effectiveness.threshold: of what was expected, less is no effect", unit="share", least=0
    )
    observed_scalability: bool = option(
        False, "observed-scalability.enabled: ask for more where past scalings gained less than linearly"
    )
    heap_usage_threshold: float = option(
        1.0, "memory.heap-usage.threshold: nothing is scaled above it", unit="share", least=0
    )

    def __post_init__(self) -> None:
        check_bounds(self)
        if not self.utilization_min <= self.utilization_target <= self.utilization_max:
            raise InvalidInput(
                f"utilization_target ({self.utilization_target:g}) must be from utilization_min "
                f"({self.utilization_min:g}) to utilization_max ({self.utilization_max:g})"
            )
        if self.vertex_min_parallelism > self.vertex_max_parallelism:
            raise InvalidInput(
                f"vertex_min_parallelism ({self.vertex_min_parallelism}) must be at most vertex_max_parallelism "
                f"({self.vertex_max_parallelism})"
            )

    def __call__(self, snapshot: Snapshot, knowledge: Knowledge = NOTHING_KNOWN) -> Proposal:
        memory = knowledge.flink
        vertices = self._vertices(snapshot, memory)
        advice = {name: self._advice(snapshot, memory, vertices, name) for name in snapshot.dataflow.scalable}
        why = self._not_yet(memory) or self._heap_is_full(snapshot) or self._all_within(snapshot, vertices, advice)
        if why is None:
            return Proposal(policy="flink", advice=advice)
        held = {name: _held(one, why) for name, one in advice.items()}
        return Proposal(policy="flink", advice=held, reasons=(Reason(kind=ReasonKind.HELD, text=why),))

    def remember(self, snapshot: Snapshot, knowledge: Knowledge) -> Knowledge:
        now_s = knowledge.watched_s
        memory = self._restarted(knowledge.flink, snapshot, knowledge)
        sample = sample_of(snapshot, now_s)
        samples = [
            one for one in memory.samples if one.at_s - one.lasts_s >= now_s - self.metrics_window_s - _CLOCK_S
        ]
        if now_s - sample.lasts_s >= memory.restarted_s + self.stabilization_s - _CLOCK_S:
            samples.append(sample)
        memory = replace(memory, now_s=now_s, samples=tuple(samples), plan=dict(snapshot.plan))
        vertices = self._vertices(snapshot, memory)
        rates = {name: found.true_per_s for name, found in vertices.items() if found.true_per_s is not None}
        memory = replace(memory, true_per_s=rates if samples else memory.true_per_s)
        if self._not_yet(memory) is None:
            memory = replace(memory, wishes=self._wishes(snapshot, memory, vertices))
        return replace(knowledge, flink=memory)

    # What is kept

    def _restarted(self, memory: FlinkMemory, snapshot: Snapshot, knowledge: Knowledge) -> FlinkMemory:
        """The memory, begun anew where the plan is another one than it was."""
        sizes = knowledge.sizes.values()
        changed_s = [at_s for size in sizes for at_s in (size.scaled_out_s, size.scaled_in_s) if at_s is not None]
        if memory.plan == dict(snapshot.plan):
            return memory
        since_s = max(changed_s, default=0.0)
        scalings = dict(memory.scalings)
        for name, before in memory.plan.items():
            after, rate = snapshot.plan.get(name, before), memory.true_per_s.get(name)
            if after != before and rate is not None:
                past = PastScaling(at_s=since_s, before=before, after=after, true_per_s=rate)
                scalings[name] = (*self._recent(memory, name), past)[-_KEPT_SCALINGS:]
        return FlinkMemory(restarted_s=since_s, scalings=scalings)

    def _recent(self, memory: FlinkMemory, name: str) -> tuple[PastScaling, ...]:
        return tuple(one for one in memory.scalings.get(name, ()) if one.at_s >= memory.now_s - _KEPT_FOR_S)

    def _wishes(
        self, snapshot: Snapshot, memory: FlinkMemory, vertices: Mapping[str, Vertex]
    ) -> Mapping[str, Wish]:
        """A recommendation to grow, or to stay, ends the wish to shrink."""
        wishes = {}
        for name in snapshot.dataflow.scalable:
            sized = self._sized(snapshot, memory, vertices, name)
            if sized is not None and sized.wanted < snapshot.plan[name]:
                known = memory.wishes.get(name, Wish(first_s=memory.now_s))
                wishes[name] = known.again(sized.wanted, now_s=memory.now_s, within_s=self.scale_down_interval_s)
        return wishes

    # What is recommended

    def _vertices(self, snapshot: Snapshot, memory: FlinkMemory) -> Mapping[str, Vertex]:
        """Over the window; before it has begun, to tell something, over what was measured last."""
        observing = Observing(
            lag_s=self.observed_lag_threshold_s,
            least_looks=self.observed_least_looks,
            switch=self.observed_switch,
        )
        samples = memory.samples or (sample_of(snapshot, memory.now_s),)
        return evaluated(snapshot.dataflow, samples, catch_up_s=self.catch_up_duration_s, observing=observing)

    def _sized(
        self, snapshot: Snapshot, memory: FlinkMemory, vertices: Mapping[str, Vertex], name: str
    ) -> _Sized | None:
        vertex, current = vertices[name], snapshot.plan[name]
        if vertex.true_per_s is None or vertex.target_per_s is None:
            return None
        capacity = vertex.capacity(
            self.utilization_target, restart_s=self.restart_time_s, catch_up_s=self.catch_up_duration_s
        )
        linear = scalability(_points(self._recent(memory, name))) if self.observed_scalability else 1.0
        factor = capacity / vertex.true_per_s / linear if vertex.true_per_s > 0 else math.inf
        factor = min(max(factor, 1 - self.scale_down_max_factor), 1 + self.scale_up_max_factor)
        operator = snapshot.dataflow[name]
        if operator.fixed:
            return _Sized(capacity=capacity, factor=factor, need=factor * current, wanted=current)
        least, most = self._bounds(operator, current)
        wanted = aligned(
            max(least, min(whole(factor * current), most)), self._partitions(snapshot, operator), most
        )
        return _Sized(capacity=capacity, factor=factor, need=factor * current, wanted=wanted)

    def _bounds(self, operator: Operator, current: int) -> tuple[int, int]:
        """What is out of its range already is not forced into it."""
        least = max(self.vertex_min_parallelism, operator.min_parallelism)
        most = int(min(self.vertex_max_parallelism, operator.most))
        return min(current, least), max(current, most)

    def _partitions(self, snapshot: Snapshot, operator: Operator) -> int | None:
        """Of its keyed state, else of the source that it reads."""
        if operator.state_partitions is not None:
            return None if operator.movable_state else operator.state_partitions
        reads_source = any(snapshot.dataflow[one].source for one in snapshot.dataflow.upstream(operator.name))
        return self.source_partitions if reads_source else None

    def _advice(
        self, snapshot: Snapshot, memory: FlinkMemory, vertices: Mapping[str, Vertex], name: str
    ) -> Advice:
        vertex, sized = vertices[name], self._sized(snapshot, memory, vertices, name)
        advice = replace(measured(snapshot, name), target_per_s=vertex.target_per_s)
        if sized is None:
            return no_data(advice, _unknown(vertex))
        advice = replace(advice, need=sized.need, parallelism=sized.wanted)
        for kind, text in _reasons(vertex, sized, advice.current):
            advice = because(advice, kind, text)
        if sized.wanted > advice.current:
            return self._effective(advice, memory, vertex)
        return self._delayed(advice, memory, vertices) if sized.wanted < advice.current else advice

    def _effective(self, advice: Advice, memory: FlinkMemory, vertex: Vertex) -> Advice:
        """Whether the last growth had an effect; if not, it is told, and held back where that is asked for."""
        past = self._recent(memory, advice.operator)[-1:]
        if not past or past[0].after <= past[0].before or past[0].after != advice.current:
            return advice
        expected = past[0].expected_per_s - past[0].true_per_s
        gained = (vertex.true_per_s or 0.0) - past[0].true_per_s
        if not math.isfinite(expected) or gained >= self.effectiveness_threshold * expected:
            return advice
        share = f"{gained / expected:.0%} of what was expected"
        text = f"ineffective: from {past[0].before} to {past[0].after} gained {share}"
        if not self.effectiveness_detection:
            return because(advice, ReasonKind.NOT_PARALLEL, f"{text}; Flink tells it, and grows on by default")
        return because(replace(advice, parallelism=advice.current), ReasonKind.NOT_PARALLEL, text)

    def _delayed(self, advice: Advice, memory: FlinkMemory, vertices: Mapping[str, Vertex]) -> Advice:
        """Nothing shrinks while a lag is worked off, nor before the highest wish of the interval is known."""
        behind = {name: one.lag_s for name, one in vertices.items() if one.lag_s > self.backlog_lag_threshold_s}
        kept = replace(advice, parallelism=advice.current)
        if behind:
            name, lag_s = max(behind.items(), key=lambda item: item[1])
            lag = duration(lag_s) if math.isfinite(lag_s) else "endless"
            return because(kept, ReasonKind.HELD, f"nothing shrinks: the lag of {name} is {lag}")
        if self.scale_down_interval_s == 0:
            return advice
        wish = memory.wishes.get(advice.operator)
        passed_s = 0.0 if wish is None else memory.now_s - wish.first_s
        within = duration(self.scale_down_interval_s)
        if wish is None or passed_s < self.scale_down_interval_s - _CLOCK_S:
            text = f"to shrink waits for {within}, of which {duration(passed_s)} have passed"
            return because(kept, ReasonKind.HELD, text)
        text = f"{wish.highest:,} is the highest recommendation of {within}"
        return because(replace(advice, parallelism=wish.highest), ReasonKind.FORMULA, text)

    # Whether to act

    def _not_yet(self, memory: FlinkMemory) -> str | None:
        full_s, passed_s = self.stabilization_s + self.metrics_window_s, memory.now_s - memory.restarted_s
        if memory.samples and passed_s >= full_s - _CLOCK_S:
            return None
        return (
            f"its window of metrics is not full: it acts {duration(full_s)} after a start or an action, and "
            f"{duration(max(0.0, passed_s))} have passed"
        )

    def _heap_is_full(self, snapshot: Snapshot) -> str | None:
        used = [reading.heap_utilization for reading in snapshot.readings if reading.heap_utilization is not None]
        if not used or max(used) <= self.heap_usage_threshold:
            return None
        return f"{max(used):.0%} of the heap is in use, more than {self.heap_usage_threshold:.0%}"

    def _all_within(
        self, snapshot: Snapshot, vertices: Mapping[str, Vertex], advice: Mapping[str, Advice]
    ) -> str | None:
        changing = [n for n, one in advice.items() if one.parallelism not in (None, snapshot.plan[n])]
        if not changing or any(self.is_out(vertices[name]) for name in changing):
            return None
        least, most = 100 * self.utilization_min, 100 * self.utilization_max
        return f"{', '.join(changing)} would change, but all are within {least:g} to {most:g} % of their capacity"

    def is_out(self, vertex: Vertex) -> bool:
        """Whether what it can do is too little at the highest utilization, or too much at the lowest."""
        if vertex.true_per_s is None:
            return False
        catch_up_s = self.catch_up_duration_s
        too_few = vertex.capacity(self.utilization_max)
        enough = vertex.capacity(self.utilization_min, restart_s=self.restart_time_s, catch_up_s=catch_up_s)
        return vertex.true_per_s < too_few or vertex.true_per_s > enough


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sized:
    capacity: float
    """That it is to have."""
    factor: float
    need: float
    wanted: int
    """Within the bounds, and aligned."""


def _points(past: tuple[PastScaling, ...]) -> list[tuple[int, float]]:
    return [(one.before, one.true_per_s) for one in past if math.isfinite(one.true_per_s)]


def _reasons(vertex: Vertex, sized: _Sized, current: int) -> list[tuple[ReasonKind, str]]:
    found = []
    if vertex.true_per_s == vertex.observed_true_per_s and vertex.true_per_s is not None:
        by_busy = rate_text(vertex.by_busy_per_s or 0.0)
        text = f"under lag it was seen to do {rate_text(vertex.true_per_s)}, which counts in place of {by_busy}"
        found.append((ReasonKind.MEASURED, text))
    if vertex.catch_up_per_s > 0:
        found.append((ReasonKind.CATCH_UP, f"{rate_text(vertex.catch_up_per_s)} more work off what waits"))
    can = "anything, as it had no input" if vertex.true_per_s == math.inf else rate_text(vertex.true_per_s or 0.0)
    text = (
        f"is to be able to do {rate_text(sized.capacity)} and can do {can}: {number_text(sized.factor)} times "
        f"{current:,} are {sized.need:,.2f}, so {sized.wanted:,}"
    )
    return [*found, (ReasonKind.FORMULA, text)]


def _unknown(vertex: Vertex) -> str:
    if vertex.in_per_s is None:
        return "no readings in its window of metrics"
    if vertex.true_per_s is None:
        return "nobody measured how busy it was, so what it can do is not known"
    return "what it must process is not known: an operator before it was not seen at work"


def _held(advice: Advice, why: str) -> Advice:
    if advice.parallelism in (None, advice.current):
        return advice
    return because(replace(advice, parallelism=advice.current), ReasonKind.HELD, why)
