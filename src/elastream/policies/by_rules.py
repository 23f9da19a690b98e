"""The policy `rules`: scale as the rules in a file say. What a rule is and does stands in the modules beside this.

It is pure like every policy. What rules remember of earlier windows is part of the knowledge that the manager
hands in and keeps on disk, and so is when each operator was last scaled: a restart loses neither. Only `renewed`
looks at the file, and only the loop calls it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from elastream.dataflow import Dataflow
from elastream.durations import text as duration_text
from elastream.errors import InvalidInput
from elastream.measurement import Reading, Snapshot
from elastream.options import option
from elastream.policies.advice import because, bounded, measured
from elastream.policies.catalog import Renewal, policy
from elastream.policies.knowledge import NOTHING_KNOWN, Knowledge
from elastream.policies.proposal import Advice, Proposal, Reason, ReasonKind
from elastream.policies.rules.check import check_usable, unknown_operator
from elastream.policies.rules.evaluation import OperatorReading, TriggerHistory
from elastream.policies.rules.files import read_rules, version_of
from elastream.policies.rules.metrics import Metric, metric_named
from elastream.policies.rules.rule import NO_RULES, RuleSet
from elastream.policies.rules.sentences import bound_text, metric_text
from elastream.policies.rules.verdicts import RuleVerdict, Standing, verdicts, winner
from elastream.policies.sizes import Sizes
from elastream.texts import listed_text, number_text

_TIME_TO_BRING = 3  # intervals, before a metric that nobody brought is told of


@policy(
    "rules",
    summary="As the rules say that you write: when a metric is above or below a value for a time, scale",
    needs="the metrics that the rules name",
    good_for="saying in your own words when to scale",
    # the rules say themselves what to wait for, and nobody takes back what a person asked for
    knobs={
        "interval_s": 5,
        "warm_up_intervals": 0,
        "target_rate_ratio": 0,
        "rollback_drop": None,
        "scale_down_delay_s": 0,
    },
)
@dataclass(frozen=True, kw_only=True)
class Rules:
    file: str = option("", "the rules, in YAML or in Python; read again when it changes")
    rules: RuleSet = NO_RULES
    dataflow: Dataflow | None = None
    """The pipeline that the rules are for, where it is known: then names are checked when the rules are read."""
    version: str = ""
    """Of the file, when it was last read."""

    def __post_init__(self) -> None:
        if self.file and not self.version:
            version = version_of(Path(self.file))
            object.__setattr__(self, "rules", self._read())
            object.__setattr__(self, "version", version)
        check_usable(self.rules, self.dataflow)

    def remember(self, snapshot: Snapshot, knowledge: Knowledge) -> Knowledge:
        readings = operator_readings(snapshot, self.rules, knowledge.watched_s)
        interval_s = knowledge.interval_s or snapshot.window_s
        memory = knowledge.rules.with_readings(self.rules, readings, interval_s=interval_s)
        return replace(knowledge, rules=memory)

    def __call__(self, snapshot: Snapshot, knowledge: Knowledge = NOTHING_KNOWN) -> Proposal:
        advice = {name: self._advice(snapshot, knowledge, name) for name in snapshot.dataflow.scalable}
        reasons = (*self._reasons(snapshot.dataflow), *self._unbrought(snapshot.dataflow, knowledge))
        return Proposal(policy="rules", advice=advice, reasons=reasons)

    def for_pipeline(self, dataflow: Dataflow) -> Rules:
        """The same for a pipeline that is known; a rule for an operator that it does not have is refused."""
        try:
            return replace(self, dataflow=dataflow)
        except InvalidInput as error:
            raise error.at(self.file) if self.file else error from None

    def renewed(self) -> Renewal | None:
        version = version_of(Path(self.file)) if self.file else self.version
        if version == self.version:
            return None
        try:
            rules = self._read()
            return Renewal(policy=replace(self, rules=rules, version=version), what=_news(self, rules))
        except InvalidInput as error:
            what = f"the rules stay as they were: {error}"
            return Renewal(policy=replace(self, version=version), what=what, refused=True)

    def _read(self) -> RuleSet:
        rules = read_rules(Path(self.file))
        try:
            check_usable(rules, self.dataflow)
        except InvalidInput as error:
            raise error.at(self.file) from None
        return rules

    def _reasons(self, dataflow: Dataflow) -> Iterator[Reason]:
        if not self.rules.rules:
            yield Reason(kind=ReasonKind.HELD, text="there are no rules, so nothing changes")
        for rule in self.rules.rules:
            for text in unknown_operator(rule, dataflow):
                yield Reason(kind=ReasonKind.NO_DATA, text=f"the rule {rule.name!r} does nothing: {text}")

    def _unbrought(self, dataflow: Dataflow, knowledge: Knowledge) -> Iterator[Reason]:
        """Metrics of which there never was a reading, once there was time for some."""
        if knowledge.watched_s < _TIME_TO_BRING * knowledge.interval_s:
            return
        for rule in self.rules.rules:
            seen = knowledge.rules.evaluators.get(rule.key, {})
            names = [name for name in dataflow.scalable if rule.applies_to(name)]
            for metric in sorted({trigger.metric for trigger in rule.triggers}):
                lacking = [name for name in names if name not in seen or not seen[name].has_read(metric)]
                if lacking:
                    of = "" if lacking == names else f" of {listed_text(lacking)}"
                    text = f"the rule {rule.name!r} waits for {metric}, which nobody brings{of} so far"
                    yield Reason(kind=ReasonKind.NO_DATA, text=text)

    def _advice(self, snapshot: Snapshot, knowledge: Knowledge, name: str) -> Advice:
        advice = measured(snapshot, name)
        current, now_s = snapshot.plan[name], knowledge.watched_s
        sizes = knowledge.sizes.get(name, Sizes.beginning_with(current))
        found = verdicts(self.rules, knowledge.rules, name, sizes, now_s)
        if advice.parallelism is None or not found:
            return advice
        chosen = winner(found, current)
        for verdict in sorted(found, key=lambda verdict: verdict is not chosen):  # the telling one first
            advice = because(advice, *_reason(verdict, chosen, current, now_s))
        return advice if chosen is None else bounded(snapshot.dataflow[name], advice, chosen.target)


def operator_readings(snapshot: Snapshot, rules: RuleSet, at_s: float) -> Iterator[OperatorReading]:
    """What the rules look at, of every operator that may be scaled; what came late first, as it is older."""
    for late in snapshot.late:
        if late.operator in snapshot.dataflow.scalable:
            yield OperatorReading(operator=late.operator, at_s=at_s - late.age_s, values=late.values)
    metrics = [metric for name in sorted(rules.metrics) if (metric := metric_named(name)) is not None]
    for operator in snapshot.dataflow.scalable:
        if operator in snapshot.measurements:
            readings = snapshot.measurements[operator].readings
            values = {metric.name: dict(_by_instance(metric, readings)) for metric in metrics}
            # an agent reads in a moment, an engine measures a window
            windows_s = (reading.window_s for reading in readings if reading.metrics is None)
            yield OperatorReading(
                operator=operator, at_s=at_s, values=values, window_s=min(windows_s, default=0.0)
            )


def _by_instance(metric: Metric, readings: Iterable[Reading]) -> Iterator[tuple[int, float]]:
    """Where several were measured together, each is taken to be like their mean."""
    for reading in readings:
        if (value := metric.read(reading.mean)) is not None:
            for instance in range(reading.instance, reading.instance + reading.instances):
                yield instance, value


def _reason(
    verdict: RuleVerdict, chosen: RuleVerdict | None, current: int, now_s: float
) -> tuple[ReasonKind, str]:
    name = f"the rule {verdict.rule.name!r}"
    match verdict.standing:
        case Standing.WAITS:
            return _waiting(verdict, now_s)
        case Standing.GUARDED:
            return ReasonKind.HELD, f"{name} fires, but its guard time has {verdict.guard_left_s:.3g} s left"
        case Standing.AT_LIMIT:
            return ReasonKind.CLAMPED, f"{name} fires, but is at its limit with {current}"
        case Standing.DONE:
            return ReasonKind.HELD, f"{name} has acted since its triggers began to fire"
        case Standing.ACTS if verdict is chosen or chosen is None:
            fired = ", and ".join(_status(history) for history in verdict.evaluator.histories)
            return ReasonKind.FORMULA, f"{name}: {fired}; so {current} → {verdict.target}"
        case Standing.ACTS:
            return ReasonKind.HELD, f"{name} wants {verdict.target}, but {chosen.rule.name!r} goes before it"


def _waiting(verdict: RuleVerdict, now_s: float) -> tuple[ReasonKind, str]:
    """The first trigger that does not fire is what the rule waits for."""
    name = f"the rule {verdict.rule.name!r}"
    for history in verdict.evaluator.histories:
        if not history.samples or history.samples[-1].at_s != now_s:
            return ReasonKind.NO_DATA, f"{name}: no reading of {history.trigger.metric} in this window"
        if not history.fires(now_s):
            return ReasonKind.MEASURED, f"{name} waits: {_status(history)}"
    return ReasonKind.MEASURED, f"{name} waits for a reading"


def _status(history: TriggerHistory) -> str:
    trigger, latest = history.trigger, history.samples[-1].values
    value = max(latest.values()) if trigger.is_met_by(max(latest.values())) else min(latest.values())
    now = f"{metric_text(trigger)} is {number_text(value)} {trigger.unit}".rstrip()
    if not history.meets():
        return f"{now}, and it was not {bound_text(trigger)} throughout"
    wanted = duration_text(trigger.for_at_least_s)
    held = f"{now}, {bound_text(trigger)} for {duration_text(history.covers_s)} of {wanted}"
    return f"{held}{_holes_text(history)}"


def _holes_text(history: TriggerHistory) -> str:
    """What is missing, so that the time is not covered."""
    if history.covers_s >= history.trigger.for_at_least_s or not history.holes:
        return ""
    last, now_s = history.holes[-1], history.samples[-1].at_s
    length, ago = duration_text(last.to_s - last.from_s), duration_text(now_s - last.to_s)
    tolerated = duration_text(history.longest_hole_s)
    return f"; {length} without a reading, which ended {ago} ago, are more than the {tolerated} that are tolerated"


def _news(before: Rules, rules: RuleSet) -> str:
    was, now = set(before.rules.rules), set(rules.rules)
    parts = [
        f"{len(now - was)} new or changed",
        f"{len(was - now)} gone or changed",
        f"{len(was & now)} as before",
    ]
    return f"{before.file} was changed; rules: {', '.join(parts)}"
