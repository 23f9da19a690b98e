"""Any rule that can be written, for the property tests of rules."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from elastream.policies.rules.metrics import METRICS, Unit, unit_of
from elastream.policies.rules.rule import (
    EVERY_OPERATOR,
    Acts,
    AtInstances,
    AtTimesOriginal,
    By,
    ByFactor,
    Comparison,
    Direction,
    OverInstances,
    Rule,
    RuleSet,
    RuleTrigger,
)

_printable = st.characters(exclude_categories=("C", "Zl", "Zp", "Zs"), include_characters=" ")
texts = st.text(_printable, min_size=1, max_size=20).filter(lambda text: text.strip() and text != EVERY_OPERATOR)
times_s = st.integers(1, 100_000).map(float) | st.floats(1e-6, 1e7)


@st.composite
def triggers(draw: st.DrawFn) -> RuleTrigger:
    metric = draw(st.sampled_from([*sorted(METRICS), 'promql:sum(rate(x-y{a="b"}[1m]))']))
    unit = unit_of(metric)
    most = 100.0 if unit is Unit.PERCENT else 1e12
    share = draw(st.just(1.0) | st.floats(0.01, 1.0))
    return RuleTrigger(
        metric=metric,
        comparison=draw(st.sampled_from(Comparison)),
        value=draw(st.integers(0, int(most)).map(float) | st.floats(0, most)),
        unit=unit,
        for_at_least_s=draw(times_s),
        share=share,
        median=share == 1 and draw(st.booleans()),
        instances=draw(st.sampled_from(OverInstances)),
        longest_hole_s=draw(st.none() | times_s),
    )


@st.composite
def rule_values(draw: st.DrawFn) -> Rule:
    direction = draw(st.sampled_from(Direction))
    counts = st.integers(1, 1000)
    limits: Any = st.builds(AtInstances, instances=counts) | st.builds(AtTimesOriginal, factor=st.floats(0.1, 99))
    return Rule(
        name=draw(texts),
        operator=draw(st.none() | texts),
        direction=direction,
        by=draw(st.builds(By, instances=counts) | st.builds(ByFactor, factor=st.floats(1.001, 99))),
        triggers=tuple(draw(st.lists(triggers(), min_size=1, max_size=3))),
        limit=draw(limits if direction is Direction.OUT else st.none() | limits),
        not_within_s_of_scale_out=draw(st.none() | times_s),
        not_within_s_of_scale_in=draw(st.none() | times_s),
        acts=draw(st.sampled_from(Acts)),
    )


rule_sets = st.lists(rule_values(), max_size=3, unique_by=lambda rule: rule.key).map(
    lambda found: RuleSet(tuple(found))
)
