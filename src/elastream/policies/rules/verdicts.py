"""What a rule wants for one operator, now: nothing, or a size, and why. Guard times, limits, edge and level.

    wants a size  ⇔  all triggers fire
                     and now − last scale-out ≥ its guard time after a scale-out
                     and now − last scale-in  ≥ its guard time after a scale-in
                     and the size that it leads to, within its limit, is not the present one
                     and, on the edge, the operator was not yet scaled its way since the triggers began to fire

An edge that finds a guard time in its way is not lost: the rule acts when the time is over, if it still holds.
Of several rules that want something for one operator a scale-out goes before a scale-in, since what is
overloaded holds up the rest; of several of one kind, the one that changes most.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from elastream.policies.rules.evaluation import ROUNDING_S, Evaluator, RulesMemory
from elastream.policies.rules.rule import Acts, Direction, Rule, RuleSet
from elastream.policies.sizes import Sizes


class Standing(StrEnum):
    WAITS = "waits"
    """Not all triggers fire."""
    GUARDED = "guarded"
    AT_LIMIT = "at its limit"
    DONE = "done"
    """On the edge: it has acted already since its triggers began to fire."""
    ACTS = "acts"


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleVerdict:
    rule: Rule
    standing: Standing
    evaluator: Evaluator
    target: int
    guard_left_s: float = 0.0


def verdicts(
    rules: RuleSet, memory: RulesMemory, operator: str, sizes: Sizes, now_s: float
) -> tuple[RuleVerdict, ...]:
    """Of every rule that applies to the operator."""
    return tuple(
        _verdict(rule, memory.evaluator(rule, operator), sizes, now_s)
        for rule in rules.rules
        if rule.applies_to(operator)
    )


def winner(found: Iterable[RuleVerdict], current: int) -> RuleVerdict | None:
    """The rule that is followed, of those that want something; the first of equals."""
    acting = [verdict for verdict in found if verdict.standing is Standing.ACTS]

    def urgency(verdict: RuleVerdict) -> tuple[bool, int]:
        return verdict.rule.direction is Direction.OUT, abs(verdict.target - current)

    return max(acting, key=urgency, default=None)


def _verdict(rule: Rule, evaluator: Evaluator, sizes: Sizes, now_s: float) -> RuleVerdict:
    target = rule.target(sizes.current, sizes.original)
    left_s = _guard_left_s(rule, sizes, now_s)
    if not evaluator.holds(now_s):
        standing = Standing.WAITS
    elif rule.acts is Acts.EDGE and _acted(rule, evaluator, sizes):
        standing = Standing.DONE
    elif left_s > 0:
        standing = Standing.GUARDED
    else:
        standing = Standing.AT_LIMIT if target == sizes.current else Standing.ACTS
    return RuleVerdict(rule=rule, standing=standing, evaluator=evaluator, target=target, guard_left_s=left_s)


def _guard_left_s(rule: Rule, sizes: Sizes, now_s: float) -> float:
    left = [
        last_s + guard_s - now_s
        for last_s, guard_s in (
            (sizes.scaled_out_s, rule.not_within_s_of_scale_out),
            (sizes.scaled_in_s, rule.not_within_s_of_scale_in),
        )
        if last_s is not None and guard_s is not None
    ]
    return max((0.0, *(left_s for left_s in left if left_s > ROUNDING_S)))


def _acted(rule: Rule, evaluator: Evaluator, sizes: Sizes) -> bool:
    last_s = sizes.scaled_out_s if rule.direction is Direction.OUT else sizes.scaled_in_s
    return last_s is not None and evaluator.holds_since_s is not None and last_s >= evaluator.holds_since_s
