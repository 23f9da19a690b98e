"""The six simulated-stream cases of the SEEP thesis, sections 5.2.2 to 5.2.7: their queries and their rules.

Rates, rules, peaks and troughs are the thesis's. What it does not say is assumed here: that a source begins with a
trough, how often the short peaks of 5.2.5 come and how long they are, and that an action takes no time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from elastream.arrivals.load import Load, Steps
from elastream.dataflow import Dataflow, Operator, Plan
from elastream.engines.simulated.capacity import PowerLaw
from elastream.engines.simulated.engine_model import DowntimeScope, EngineModel, OperatorModel, SourceModel
from elastream.policies.rules import RuleSet, minutes, records, rule, rules, seconds
from elastream.policies.rules.rule import Acts

OPERATOR = "SimpleStatelessOperator"
FIRST, SECOND = f"{OPERATOR}1", f"{OPERATOR}2"
SOURCE, SINK = "source", "LoggingSink"
_SINK_PER_S = 1_000.0  # it only logs
_STEP_S = 0.5

BASE_PER_S, PEAK_PER_S = 10.0, 20.0
PEAK_S, TROUGH_S = 20.0, 40.0
PERIOD_S = PEAK_S + TROUGH_S

# Assumed: a peak of 5.2.5 comes once a minute, the first lasts 5 s as its text says, the others from 1 to 10 s
_SHORT_PEAKS_S = (1.0, 10.0)
_FIRST_SHORT_PEAK_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Case:
    section: str
    title: str
    rules: RuleSet
    load: tuple[tuple[float, float], ...]
    """From when on how many records a second."""
    rates_per_s: Mapping[str, float]
    """Of an instance of each operator, which follow each other."""
    duration_s: float

    @property
    def model(self) -> EngineModel:
        """For the simulated engine."""
        return query(Steps(steps=self.load), dict(self.rates_per_s))

    def on_the_edge(self) -> Case:
        """The same, with rules that act once each time that their triggers begin to fire."""
        return replace(self, rules=RuleSet(tuple(replace(one, acts=Acts.EDGE) for one in self.rules.rules)))


def above_300(operator: str, *, by: int, most: int) -> RuleSet:
    """Source Code 5.1, 5.2 and 5.3."""
    return rules(
        rule("Queue length is above 300 for 30 seconds")
        .scale_out(operator)
        .by(by)
        .never_above(most)
        .when("queue_length")
        .above(records(300))
        .for_at_least(seconds(30))
        .unless_scaled_out_within(minutes(5))
    )


def above_for_a_minute(bound: int) -> RuleSet:
    """Source Code 5.4 with 10,000; the control has a lower bound."""
    return rules(
        rule(f"Queue length is above {bound} for 60 seconds")
        .scale_out(OPERATOR)
        .by(2)
        .never_above(3)
        .when("queue_length")
        .above(records(bound))
        .for_at_least(seconds(60))
    )


def out_and_in(*, guard_s: float | None) -> RuleSet:
    """Source Code 5.5 without a guard time, 5.6 with one of 5 minutes."""
    out = (
        rule("Queue length is above 100 for 5 seconds")
        .scale_out(OPERATOR)
        .by(2)
        .never_above(3)
        .when("queue_length")
        .above(records(100))
        .for_at_least(seconds(5))
    )
    back = (
        rule("Queue length is below 1 for 5 seconds")
        .scale_in(OPERATOR)
        .by(2)
        .never_below(1)
        .when("queue_length")
        .below(records(1))
        .for_at_least(seconds(5))
    )
    return rules(out, back if guard_s is None else back.unless_scaled_out_within(seconds(guard_s)))


def cases() -> tuple[Case, ...]:
    """As the thesis has them, in its order."""
    constant = ((0.0, BASE_PER_S),)
    two = RuleSet((*above_300(FIRST, by=2, most=3).rules, *above_300(SECOND, by=2, most=3).rules))
    return (
        Case(
            section="5.2.2",
            title="scale-out",
            rules=above_300(OPERATOR, by=1, most=2),
            load=constant,
            rates_per_s={OPERATOR: 5},
            duration_s=240,
        ),
        Case(
            section="5.2.3",
            title="with additional capacity",
            rules=above_300(OPERATOR, by=2, most=3),
            load=constant,
            rates_per_s={OPERATOR: 5},
            duration_s=240,
        ),
        Case(
            section="5.2.4",
            title="two operators",
            rules=two,
            load=constant,
            rates_per_s={FIRST: 20, SECOND: 5},
            duration_s=240,
        ),
        short_peaks(10_000, seed=0),
        long_peaks("5.2.6", "out and in", guard_s=None, duration_s=TROUGH_S + 5 * PERIOD_S),
        long_peaks("5.2.7", "hysteresis", guard_s=300, duration_s=TROUGH_S + 7 * PERIOD_S),
    )


def short_peaks(bound: int, *, seed: int) -> Case:
    return Case(
        section="5.2.5",
        title="short peaks",
        rules=above_for_a_minute(bound),
        load=tuple(_short_peaks(random.Random(f"peaks {seed}"), 10)),
        rates_per_s={OPERATOR: BASE_PER_S},
        duration_s=600,
    )


def long_peaks(section: str, title: str, *, guard_s: float | None, duration_s: float) -> Case:
    turns = [(0.0, BASE_PER_S)]
    for number in range(round(duration_s / PERIOD_S) + 1):
        begins_s = TROUGH_S + number * PERIOD_S
        turns += [(begins_s, PEAK_PER_S), (begins_s + PEAK_S, BASE_PER_S)]
    return Case(
        section=section,
        title=title,
        rules=out_and_in(guard_s=guard_s),
        load=tuple(turns),
        rates_per_s={OPERATOR: BASE_PER_S},
        duration_s=duration_s,
    )


def query(load: Load, rates_per_s: dict[str, float]) -> EngineModel:
    """source → stateless operators, each with so many records a second for an instance → sink."""
    names = (SOURCE, *rates_per_s, SINK)
    rates_per_s = {**rates_per_s, SINK: _SINK_PER_S}
    return EngineModel(
        dataflow=Dataflow.of((Operator(name=name, source=name == SOURCE) for name in names), pairwise(names)),
        operators={
            name: OperatorModel(capacity=PowerLaw(per_instance_per_s=rate)) for name, rate in rates_per_s.items()
        },
        sources={SOURCE: SourceModel(load=load)},
        initial_plan=Plan(dict.fromkeys(rates_per_s, 1)),
        step_s=_STEP_S,
        downtime_scope=DowntimeScope.OPERATOR,
    )


def followed(changes: Sequence[tuple[float, int, int]], peaks: int) -> int:
    """Peaks with one scale-out from 1 to 3 before they ended and, before the next began, one scale-in to 1.

    More instances that come when the peak is over followed nothing.
    """
    count = 0
    for number in range(peaks):
        begins_s = TROUGH_S + number * PERIOD_S
        its = [change for change in changes if begins_s <= change[0] < begins_s + PERIOD_S]
        in_time = bool(its) and its[0][0] <= begins_s + PEAK_S
        count += in_time and [(before, after) for _, before, after in its] == [(1, 3), (3, 1)]
    return count


def _short_peaks(rng: random.Random, count: int) -> Iterator[tuple[float, float]]:
    yield 0.0, BASE_PER_S
    for number in range(count):
        lasts_s = rng.uniform(*_SHORT_PEAKS_S) if number else _FIRST_SHORT_PEAK_S
        begins_s = TROUGH_S + number * PERIOD_S
        yield begins_s, PEAK_PER_S
        yield begins_s + lasts_s, BASE_PER_S
