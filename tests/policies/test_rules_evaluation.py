"""When triggers fire and what follows: histories, guard times, limits, edge and level. Nobody sleeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_strategies import rule_values

from elastream.manager.state import ManagerState, state_from_json, state_to_json
from elastream.policies.knowledge import Knowledge
from elastream.policies.rules import RuleSet, every_operator, minutes, records, rule, rules, seconds
from elastream.policies.rules.evaluation import NOTHING_REMEMBERED, Hole, OperatorReading, RulesMemory
from elastream.policies.rules.rule import AtTimesOriginal, By, ByFactor, Direction, Rule
from elastream.policies.rules.verdicts import Standing, verdicts, winner
from elastream.policies.sizes import Sizes

OPERATOR = "counts"
EVERY_S = 10.0
"""How often readings are to come, where a test does not say otherwise."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Action:
    at_s: float
    rule: str
    operator: str
    before: int
    after: int


def evaluate(
    rules: RuleSet, memory: RulesMemory, sizes: Mapping[str, Sizes], readings: Iterable[OperatorReading]
) -> tuple[RulesMemory, Mapping[str, Sizes], tuple[Action, ...]]:
    """Take readings one after the other and act at once on what the rules want, without a manager."""
    now, actions = dict(sizes), []
    for reading in readings:
        memory = memory.with_readings(rules, (reading,), interval_s=EVERY_S)
        size = now[reading.operator]
        found = winner(verdicts(rules, memory, reading.operator, size, reading.at_s), size.current)
        if found is not None:
            actions.append(
                Action(
                    at_s=reading.at_s,
                    rule=found.rule.name,
                    operator=reading.operator,
                    before=size.current,
                    after=found.target,
                )
            )
            now[reading.operator] = size.changed_to(found.target, reading.at_s)
    return memory, now, tuple(actions)


def reading(at_s: float, *queue: float | None, operator: str = OPERATOR, **metrics: float) -> OperatorReading:
    """The queue length of every instance, and other metrics of a single one."""
    values: dict[str, Mapping[int, float]] = {
        "queue_length": {instance: value for instance, value in enumerate(queue) if value is not None}
    }
    values |= {name: {0: value} for name, value in metrics.items()}
    return OperatorReading(operator=operator, at_s=at_s, values=values)


def begun(operator: Any = OPERATOR, *, by: int = 1, most: int = 100) -> Any:
    return rule("out").scale_out(operator).by(by).never_above(most)


def above(bound: float, time_s: float, *, of: Any = "average", **outliers: Any) -> Any:
    return begun().when("queue_length", of=of).above(bound).for_at_least(seconds(time_s), **outliers)


def actions(
    written: Any, readings: Sequence[OperatorReading], *, size: int = 1, original: int | None = None
) -> list[tuple[float, int]]:
    """When each action is taken, and to which size."""
    rule_set = written if isinstance(written, RuleSet) else rules(written)
    sizes = {name: Sizes.beginning_with(original or size) for name in {one.operator for one in readings}}
    sizes = {name: one.changed_to(size, -1e9) for name, one in sizes.items()}
    _, _, found = evaluate(rule_set, NOTHING_REMEMBERED, sizes, readings)
    return [(action.at_s, action.after) for action in found]


def fires(written: Any, *queues: float, every_s: float = 10.0) -> list[int]:
    """In which of the readings the triggers fire."""
    memory, found = NOTHING_REMEMBERED, []
    for number, queue in enumerate(queues):
        one = reading(number * every_s, queue)
        memory = memory.with_readings(rules(written), (one,), interval_s=EVERY_S)
        (verdict,) = verdicts(rules(written), memory, OPERATOR, Sizes.beginning_with(1), one.at_s)
        if verdict.standing is not Standing.WAITS:
            found.append(number)
    return found


class TestTime:
    def test_it_fires_when_the_history_covers_the_time(self) -> None:
        assert fires(above(5, 30), 9, 9, 9, 9, 9) == [3, 4]

    def test_between_two_readings_it_waits_for_the_one_that_covers_it(self) -> None:
        assert fires(above(5, 25), 9, 9, 9, 9, 9) == [3, 4]

    def test_one_reading_that_does_not_meet_the_value_starts_it_anew(self) -> None:
        assert fires(above(5, 30), 9, 9, 9, 5, 9, 9, 9, 9) == [7]

    def test_a_single_reading_never_covers_a_time(self) -> None:
        assert fires(above(5, 1e-6), 9) == []
        assert fires(above(5, 1), 9, 9) == [1]

    @pytest.mark.parametrize(("value", "is_above", "is_below"), [(4.9, 0, 1), (5, 0, 0), (5.1, 1, 0)])
    def test_bounds_are_strict(self, value: float, is_above: int, is_below: int) -> None:
        below = rule("in").scale_in(OPERATOR).by(1).when("queue_length").below(5).for_at_least(seconds(5))
        assert len(fires(above(5, 5), value, value)) == is_above
        assert len(fires(below, value, value)) == is_below

    def test_all_triggers_must_fire_but_need_not_begin_together(self) -> None:
        written = above(5, 30).and_when("latency").above(seconds(1)).for_at_least(seconds(10))
        readings = [reading(10.0 * n, 9, latency=2 if n >= 4 else 0) for n in range(8)]
        assert actions(written.once_each_time(), readings) == [(50, 2)]

    def test_without_a_reading_of_its_metric_it_does_not_fire(self) -> None:
        readings = [reading(0, 9), reading(20, 9), reading(30, 9), reading(40, None), reading(50, 9)]
        assert [at_s for at_s, _ in actions(above(5, 30), readings)] == [30, 50]

    def test_a_reading_given_twice_changes_nothing(self) -> None:
        readings = [reading(0, 9), reading(20, 9), reading(20, 0), reading(30, 9)]
        assert [at_s for at_s, _ in actions(above(5, 30), readings)] == [30]


class TestBlindSpots:
    """Nobody acts on what nobody saw."""

    def test_two_readings_with_ten_minutes_between_them_are_not_five_minutes_above(self) -> None:
        assert actions(above(1_000, 300), [reading(0, 2_000), reading(620, 2_000)]) == []

    def test_it_is_covered_again_once_readings_cover_the_time(self) -> None:
        times_s = [0.0, *(620.0 + 10 * n for n in range(4))]
        assert actions(above(5, 30), [reading(at_s, 9) for at_s in times_s]) == [(650, 2)]

    @pytest.mark.parametrize("outliers", [{"share": 0.5}, {"median": True}])
    def test_a_cold_reading_after_a_blind_spot_is_no_reason_to_scale(self, outliers: Any) -> None:
        """Ten hot readings within ten seconds, 296 s of nothing, one cold one: counted, most were hot."""
        hot = [reading(float(n), 9) for n in range(10)]
        assert actions(above(5, 300, **outliers), [*hot, reading(305, 0)]) == []

    @pytest.mark.parametrize("outliers", [{"share": 0.5}, {"median": True}])
    def test_a_statistic_is_weighted_by_time(self, outliers: Any) -> None:
        """Of 60 s five were of one kind, by five readings, and the others of the other, by three."""
        few, many = [20.0, 40.0, 60.0], [41.0, 42.0, 43.0, 44.0, 45.0]
        for long, short, expected in ((0, 9, []), (9, 0, [(60, 2)])):
            queues = {0.0: long, **dict.fromkeys(few, long), **dict.fromkeys(many, short)}
            readings = [reading(at_s, queues[at_s]) for at_s in sorted(queues)]
            assert actions(above(5, 60, **outliers), readings) == expected

    def test_two_intervals_are_tolerated_and_a_little_for_jitter(self) -> None:
        for gap_s, expected in ((20.0, True), (21.9, True), (22.1, False), (30.0, False)):
            readings = [reading(0, 9), reading(10, 9), reading(10 + gap_s, 9)]
            assert bool(actions(above(5, 10 + gap_s), readings)) is expected

    def test_a_rule_may_state_another_longest_hole(self) -> None:
        readings = [reading(0, 9), reading(100, 9)]
        assert actions(above(5, 100), readings) == []
        assert actions(above(5, 100, longest_hole=seconds(100)), readings) == [(100, 2)]

    def test_the_window_that_a_reading_tells_of_is_no_hole(self) -> None:
        """An engine measures what happened since the last time, however long that was."""
        long_ago, now = reading(0, 9), replace(reading(100, 9), window_s=85.0)
        assert actions(above(5, 100), [long_ago, now]) == [(100, 2)]
        assert actions(above(5, 100), [long_ago, replace(now, window_s=75.0)]) == []

    def test_of_any_the_one_instance_must_have_been_seen(self) -> None:
        readings = [reading(10.0 * n, 0, 9 if n in (0, 4) else None) for n in range(5)]
        assert actions(above(5, 40, of="any"), readings) == []
        one_missing = [reading(10.0 * n, 0, 9 if n != 2 else None) for n in range(5)]
        assert actions(above(5, 40, of="any"), one_missing) == [(40, 2)]

    def test_what_is_missing_can_be_named(self) -> None:
        memory = NOTHING_REMEMBERED
        for at_s in (0.0, 10.0, 310.0):
            memory = memory.with_readings(rules(above(5, 600)), (reading(at_s, 9),), interval_s=EVERY_S)
        (history,) = memory.evaluator(above(5, 600).rule, OPERATOR).histories
        assert history.holes == (Hole(from_s=10, to_s=310),)
        assert history.covers_s == 0


class TestLate:
    """Readings that come after later ones are put where they belong."""

    def test_it_counts_where_it_belongs(self) -> None:
        readings = [reading(0, 9), reading(20, 0), reading(10, 0), reading(30, 9)]
        assert actions(above(5, 30), readings) == []

    def test_it_closes_a_hole(self) -> None:
        in_time = [reading(0, 9), reading(10, 9), reading(60, 9)]
        late = [reading(at_s, 9) for at_s in (40.0, 20.0, 30.0, 50.0)]
        assert actions(above(5, 70), [*in_time, reading(70, 9)]) == []
        assert actions(above(5, 70), [*in_time, *late, reading(70, 9)]) == [(70, 2)]

    def test_it_does_not_act_by_itself(self) -> None:
        readings = [reading(0, 9), reading(40, 9), reading(20, 9)]
        assert actions(above(5, 40), readings) == []

    def test_instances_that_come_one_by_one_are_taken_together(self) -> None:
        """The average of 12 and 0 is above 5, that of 0 alone is not."""
        in_time = [reading(0, 12, 0), reading(50, 12, 0)]
        first = [reading(10.0 * n, None, 0) for n in range(1, 5)]
        second = [reading(10.0 * n + 1, 12, None) for n in range(1, 5)]
        assert actions(above(5, 50), [*in_time, *first, reading(60, 12, 0)]) == []
        assert actions(above(5, 50), [*in_time, *first, *second, reading(60, 12, 0)]) == [(60, 2)]

    def test_while_nobody_watched_time_passed(self) -> None:
        written = above(5, 30)
        memory = NOTHING_REMEMBERED
        for at_s in (0.0, 10.0, 20.0):
            memory = memory.with_readings(rules(written), (reading(at_s, 9),), interval_s=EVERY_S)
        for away_s, expected in ((0.0, True), (10.0, True), (60.0, False)):
            after = memory.aged(away_s).with_readings(rules(written), (reading(30, 9),), interval_s=EVERY_S)
            assert after.evaluator(written.rule, OPERATOR).holds(30) is expected


class TestOutliers:
    def test_a_share_passes_over_an_odd_reading(self) -> None:
        queues = [9.0] * 5 + [0.0] + [9.0] * 6
        assert fires(above(5, 90), *queues) == []
        assert fires(above(5, 90, share=0.85), *queues) == [9, 10, 11]

    def test_no_more_than_the_share_allows(self) -> None:
        assert fires(above(5, 90, share=0.85), *[9.0, 0.0, 9.0, 0.0], *[9.0] * 8) == [10, 11]

    def test_the_median_passes_over_odd_readings_of_any_size(self) -> None:
        assert fires(above(5, 40, median=True), 9, 0, 9, 9, 9) == [4]
        assert fires(above(5, 40, median=True), 0, 1e6, 0, 0, 0) == []

    def test_the_newest_reading_may_be_the_odd_one(self) -> None:
        """The very case of section 5.4: all but the most recent sample are above."""
        assert fires(above(5, 90, share=0.85), *[9.0] * 9, 0.0) == [9]


class TestInstances:
    @pytest.mark.parametrize(
        ("of", "queues", "expected"),
        [
            ("average", (0, 12), True),
            ("average", (0, 8), False),
            ("max", (0, 8), True),
            ("max", (0, 4), False),
            ("min", (6, 8), True),
            ("min", (4, 100), False),
            ("any", (0, 8), True),
            ("any", (0, 4), False),
        ],
    )
    def test_their_readings_are_combined(self, of: str, queues: tuple[float, ...], expected: bool) -> None:
        readings = [reading(at_s, *queues) for at_s in (0.0, 15.0, 30.0)]
        assert bool(actions(above(5, 30, of=of), readings)) is expected

    def test_any_is_one_and_the_same_instance_for_the_whole_time(self) -> None:
        taking_turns = [reading(0, 9, 0), reading(10, 0, 9), reading(20, 9, 0), reading(30, 0, 9)]
        assert actions(above(5, 20, of="any"), taking_turns) == []
        assert actions(above(5, 20, of="max"), taking_turns) != []

    def test_an_instance_that_came_later_has_not_been_seen_for_the_whole_time(self) -> None:
        readings = [reading(0, 0), reading(10, 0, 9), reading(20, 0, 9), reading(30, 0, 9)]
        assert actions(above(5, 30, of="any"), readings) == []


class TestEveryOperator:
    def test_operators_are_not_mixed(self) -> None:
        """Of each operator only every second reading is above; mixed into one history all of one time would be."""
        written = begun(every_operator).when("queue_length").above(5).for_at_least(seconds(20))
        readings = [
            reading(10.0 * n, 9 if (n % 2 == 0) == (operator == "a") else 0, operator=operator)
            for n in range(9)
            for operator in ("a", "b")
        ]
        assert actions(written, readings) == []

    def test_an_operators_own_rules_stand_beside_the_ones_for_all(self) -> None:
        own = rule("own").scale_out("a").by(3).never_above(9).when("latency").above(1).for_at_least(seconds(10))
        every = begun(every_operator).when("queue_length").above(5).for_at_least(seconds(10))
        readings = [reading(10.0 * n, 9, operator=name, latency=2) for n in range(2) for name in ("a", "b")]
        assert actions(rules(own, every), readings) == [(10, 4), (10, 2)]


class TestEdgeAndLevel:
    def test_on_the_level_it_acts_as_long_as_it_holds(self) -> None:
        readings = [reading(10.0 * n, 9) for n in range(5)]
        assert actions(above(5, 20), readings) == [(20, 2), (30, 3), (40, 4)]

    def test_on_the_edge_it_acts_once_each_time(self) -> None:
        queues = [9, 9, 9, 9, 9, 0, 9, 9, 9, 9]
        readings = [reading(10.0 * n, queue) for n, queue in enumerate(queues)]
        assert actions(above(5, 20).once_each_time(), readings) == [(20, 2), (80, 3)]

    def test_an_edge_within_a_guard_time_is_not_lost(self) -> None:
        queues = [9, 9, 9, 0, 9, 9, 9, 9, 9, 9]
        readings = [reading(10.0 * n, queue) for n, queue in enumerate(queues)]
        written = above(5, 20).unless_scaled_out_within(seconds(50)).once_each_time()
        assert actions(written, readings) == [(20, 2), (70, 3)]


class TestGuardTimes:
    def test_it_keeps_still_after_an_action_of_the_same_kind(self) -> None:
        readings = [reading(10.0 * n, 9) for n in range(9)]
        written = above(5, 20).unless_scaled_out_within(seconds(25))
        assert [at_s for at_s, _ in actions(written, readings)] == [20, 50, 80]

    def test_it_keeps_still_after_an_action_of_the_other_kind(self) -> None:
        out = above(100, 5)
        in_ = rule("in").scale_in(OPERATOR).by(1).when("queue_length").below(1).for_at_least(seconds(5))
        readings = [reading(10.0 * n, 200 if n < 2 else 0) for n in range(9)]
        assert actions(rules(out, in_), readings) == [(10, 2), (30, 1)]
        guarded = in_.unless_scaled_out_within(minutes(1))
        assert actions(rules(out, guarded), readings) == [(10, 2), (70, 1)]


class TestSizes:
    @pytest.mark.parametrize(
        ("direction", "by", "current", "target"),
        [
            (Direction.OUT, By(instances=3), 2, 5),
            (Direction.OUT, ByFactor(factor=2), 3, 6),
            (Direction.OUT, ByFactor(factor=1.1), 3, 4),
            (Direction.IN, By(instances=3), 5, 2),
            (Direction.IN, By(instances=3), 2, 1),
            (Direction.IN, ByFactor(factor=2), 5, 3),
            (Direction.IN, ByFactor(factor=2), 3, 2),
            (Direction.IN, ByFactor(factor=1.1), 3, 2),
            (Direction.IN, ByFactor(factor=2), 1, 1),
        ],
    )
    def test_absolute_and_relative_factors(
        self, direction: Direction, by: By | ByFactor, current: int, target: int
    ) -> None:
        (trigger,) = above(5, 5).rule.triggers
        limit = AtTimesOriginal(factor=99) if direction is Direction.OUT else None
        made = Rule(name="a", operator=None, direction=direction, by=by, triggers=(trigger,), limit=limit)
        assert made.target(current, 1) == target

    @pytest.mark.parametrize(("original", "most"), [(1, 2), (2, 4)])
    def test_a_relative_limit_counts_from_the_original_size(self, original: int, most: int) -> None:
        """The example of section 4.2: a relative constraint of 2 is 2 from a single instance and 4 from two."""
        written = rule("a").scale_out(OPERATOR).by(5).never_above_times_original(2).when("queue_length")
        readings = [reading(10.0 * n, 9) for n in range(4)]
        found = actions(written.above(5).for_at_least(seconds(10)), readings, size=original)
        assert [after for _, after in found] == [most]

    def test_beyond_its_limit_already_it_changes_nothing(self) -> None:
        readings = [reading(10.0 * n, 9) for n in range(4)]
        written = begun(most=3).when("queue_length").above(5).for_at_least(seconds(10))
        assert actions(written, readings, size=5) == []

    def test_a_scale_out_goes_before_a_scale_in_and_the_larger_before_the_smaller(self) -> None:
        one, two = above(5, 10), rule("two").scale_out(OPERATOR).by(2).never_above(9)
        in_ = rule("in").scale_in(OPERATOR).by(4).when("latency").below(1).for_at_least(seconds(10))
        rule_set = rules(in_, one, two.when("queue_length").above(7).for_at_least(seconds(10)))
        readings = [reading(10.0 * n, 9, latency=0) for n in range(2)]
        assert actions(rule_set, readings, size=5) == [(10, 7)]


class TestHistory:
    def test_it_is_bounded_by_the_time_with_one_reading_older(self) -> None:
        memory = NOTHING_REMEMBERED
        written = rules(above(5, 60, share=0.5))
        for n in range(100):
            memory = memory.with_readings(written, (reading(7.0 * n, n % 20),), interval_s=EVERY_S)
        (history,) = memory.evaluator(written.rules[0], OPERATOR).histories
        newest_s = history.samples[-1].at_s
        assert [sample.at_s < newest_s - 60 for sample in history.samples].count(True) == 1
        assert len(history.samples) == 10

    def test_a_day_at_a_reading_a_second_is_kept_in_a_few(self) -> None:
        memory, written = NOTHING_REMEMBERED, rules(above(5, 86_400))
        for n in range(2_000):
            memory = memory.with_readings(written, (reading(float(n), 9),), interval_s=EVERY_S)
        (history,) = memory.evaluator(written.rules[0], OPERATOR).histories
        assert history.covers_s == 1_999
        assert len(history.samples) == 1

    def test_unchanged_triggers_keep_theirs_when_rules_change(self) -> None:
        before = above(5, 60)
        memory = NOTHING_REMEMBERED
        for n in range(6):
            memory = memory.with_readings(rules(before), (reading(10.0 * n, 9),), interval_s=EVERY_S)
        stricter = before.unless_scaled_out_within(minutes(5))
        more = before.and_when("queue_length").above(records(6)).for_at_least(seconds(10))
        for changed, kept in ((stricter, [6]), (more, [6, 1])):
            after = memory.with_readings(rules(changed), (reading(60, 9),), interval_s=EVERY_S)
            histories = after.evaluator(changed.rule, OPERATOR).histories
            assert [h.covers_s for h in histories] == [60 if kept_to == 6 else 0 for kept_to in kept]
        gone = memory.with_readings(rules(), (reading(60, 9),), interval_s=EVERY_S)
        assert gone == RulesMemory(evaluators={})


# Properties

small_times = st.sampled_from([5.0, 10.0, 25.0, 60.0])


@st.composite
def small_rules(draw: st.DrawFn) -> RuleSet:
    """Rules over small numbers, so that readings meet them often."""
    found = []
    for number in range(draw(st.integers(1, 3))):
        direction = draw(st.sampled_from(["scale_out", "scale_in"]))
        operator = draw(st.sampled_from(["a", "b", every_operator]))
        sized = getattr(rule(f"rule {number}"), direction)(operator).by(draw(st.integers(1, 3)))
        limited = sized.never_above(draw(st.integers(2, 9))) if direction == "scale_out" else sized
        bounded = limited.when("queue_length", of=draw(st.sampled_from(["average", "max", "any"])))
        compared = getattr(bounded, draw(st.sampled_from(["above", "below"])))(draw(st.integers(1, 4)))
        outliers = draw(st.sampled_from([{}, {"share": 0.7}, {"median": True}]))
        written = compared.for_at_least(seconds(draw(small_times)), **outliers)
        if draw(st.booleans()):
            written = written.unless_scaled_out_within(seconds(draw(small_times)))
        if draw(st.booleans()):
            written = written.unless_scaled_in_within(seconds(draw(small_times)))
        found.append(written.once_each_time() if draw(st.booleans()) else written)
    return rules(*found)


@st.composite
def small_readings(draw: st.DrawFn) -> list[OperatorReading]:
    at_s, found = 0.0, []
    for _ in range(draw(st.integers(1, 25))):
        at_s += draw(st.sampled_from([1.0, 5.0, 7.0, 30.0]))
        for operator in draw(st.sampled_from(["a", "b", "ab"])):
            queues = draw(st.lists(st.integers(0, 5), min_size=1, max_size=3))
            found.append(reading(at_s, *map(float, queues), operator=operator))
    return found


START = {name: Sizes.beginning_with(2) for name in ("a", "b")}


def in_batches(
    rule_set: RuleSet, batches: Sequence[Sequence[OperatorReading]], *, restart: bool = False
) -> list[Action]:
    memory, sizes, found = NOTHING_REMEMBERED, dict(START), []
    for batch in batches:
        if restart:
            memory, sizes = restarted(memory, sizes)
        memory, after, acted = evaluate(rule_set, memory, sizes, batch)
        sizes, found = dict(after), [*found, *acted]
    return found


def restarted(memory: RulesMemory, sizes: dict[str, Sizes]) -> tuple[RulesMemory, dict[str, Sizes]]:
    """As the manager's store writes and reads them."""
    state = ManagerState(knowledge=Knowledge(rules=memory, sizes=sizes))
    found = state_from_json(state_to_json(state), place="memory").knowledge
    return found.rules, dict(found.sizes)


@given(rule_set=small_rules(), readings=small_readings(), data=st.data())
@settings(max_examples=150, deadline=None)
def test_however_readings_are_cut_into_batches_the_actions_are_the_same(
    rule_set: RuleSet, readings: list[OperatorReading], data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(readings)), max_size=6)))
    edges = [0, *cuts, len(readings)]
    batches = [readings[begin:end] for begin, end in pairwise(edges)]
    assert in_batches(rule_set, batches) == in_batches(rule_set, [readings])


@given(rule_set=small_rules(), readings=small_readings())
@settings(max_examples=60, deadline=None)
def test_a_restart_between_any_two_readings_changes_nothing(
    rule_set: RuleSet, readings: list[OperatorReading]
) -> None:
    one_by_one = [[one] for one in readings]
    assert in_batches(rule_set, one_by_one, restart=True) == in_batches(rule_set, one_by_one)


@given(rule_set=small_rules(), readings=small_readings())
@settings(max_examples=150, deadline=None)
def test_no_action_is_taken_within_a_guard_time_or_beyond_a_limit(
    rule_set: RuleSet, readings: list[OperatorReading]
) -> None:
    by_name = {rule.name: rule for rule in rule_set.rules}
    last: dict[tuple[str, bool], float] = {}
    for action in in_batches(rule_set, [readings]):
        found, grows = by_name[action.rule], action.after > action.before
        for guard_s, grew in ((found.not_within_s_of_scale_out, True), (found.not_within_s_of_scale_in, False)):
            if guard_s is not None and (action.operator, grew) in last:
                assert action.at_s - last[action.operator, grew] >= guard_s
        assert grows is (found.direction is Direction.OUT)
        assert action.after >= 1
        assert not grows or action.after <= found.limit_size(2)
        last[action.operator, grows] = action.at_s


@given(found=rule_values(), current=st.integers(1, 10_000), original=st.integers(1, 100))
@settings(max_examples=150, deadline=None)
def test_a_target_lies_in_the_rules_direction_and_within_its_limit(
    found: Rule, current: int, original: int
) -> None:
    target = found.target(current, original)
    if found.direction is Direction.OUT:
        assert target >= current
        assert target == current or target <= found.limit_size(original) + 1e-6
    else:
        assert 1 <= target <= current
        assert target == current or target >= found.limit_size(original) - 1e-6
