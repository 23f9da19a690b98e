"""What several windows of an operator say together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastream.dataflow import Dataflow, Operator, Plan
from elastream.measurement import Reading, Snapshot
from elastream.measurement.evidence import NO_EVIDENCE, Span, Trail

INSTANCES = 5
WINDOW_S = 30.0
COMES_IN = 1_000.0 * WINDOW_S
ALL_S = INSTANCES * WINDOW_S


def window(busy: float, *, waiting: float = 2_000.0, saturated: bool = False) -> Span:
    return Span(
        window_s=WINDOW_S,
        parallelism=INSTANCES,
        useful_s=busy * ALL_S,
        records_in=COMES_IN,
        records_out={},
        waiting=waiting,
        timed=True,
        saturated=saturated,
        busy=busy,
    )


def seen(*windows: Span) -> Trail:
    trail = Trail()
    for one in windows:
        trail = trail.with_span(one)
    return trail


def needed(trail: Trail) -> float:
    """Instances for what comes in."""
    assert trail.cost is not None
    return trail.cost.value * COMES_IN / WINDOW_S


SCATTERED = [0.90 + off for off in (-0.04, 0.03, 0.0, -0.01, 0.02, -0.03, 0.01, 0.04, -0.02, 0.0)]


class TestCost:
    def test_what_was_counted_goes_before_what_was_timed(self) -> None:
        trail = seen(
            *(window(0.98, saturated=True) for _ in range(2)), *(window(0.97, waiting=0) for _ in range(20))
        )
        assert needed(trail) == pytest.approx(5.0)

    def test_one_window_that_only_looked_busy_does_not_speak_against_all_others(self) -> None:
        """5 → 6 → 5 ..., six actions an hour, where 4.5 are needed: bursts leave records waiting whenever it is
        looked at, and with 5 % noise one window in ten looks as if the operator had worked all the time."""
        trail = seen(*map(window, SCATTERED), window(0.98, saturated=True), *map(window, SCATTERED))
        assert needed(trail) == pytest.approx(4.5, rel=0.01)

    def test_right_after_a_change_of_parallelism_one_dear_window_is_not_believed_and_two_are(self) -> None:
        """8 → 78: a stall, or the price of now, which nobody can tell from one window."""
        before = [replace(window(0.9), parallelism=2 * INSTANCES) for _ in range(3)]
        usual, dear = window(0.9), replace(window(0.9), records_in=COMES_IN / 10)
        assert needed(seen(*before, dear)) == pytest.approx(4.5)
        assert needed(seen(*before, usual, dear)) == pytest.approx(4.5)
        assert needed(seen(*before, dear, usual)) == pytest.approx(4.5)
        assert needed(seen(*before, dear, dear)) == pytest.approx(45.0)


class TestStandingQueue:
    def test_it_stands_where_the_operator_was_always_busy(self) -> None:
        assert seen(*(window(0.99) for _ in range(5))).standing(5) == 2_000

    def test_what_bursts_leave_does_not_stand_however_busy_the_last_windows_looked(self) -> None:
        """Of one that fires every 10 s every look, 60 s apart, sees the same moment of its burst."""
        trail = seen(*map(window, SCATTERED), window(0.97), window(0.98))
        assert trail.standing(12) == 0


class TestUsefulTime:
    @pytest.mark.parametrize("busy", [0.5, 0.95])
    def test_what_the_end_of_a_window_cuts_off_is_made_up_for(self, busy: float) -> None:
        """38 → 36 → 37 after 22 hours with 10 % noise, where 36.7 are needed: of instances that are busy for 95 %
        of the time many were seen at 100 %, and none at 105 %."""
        graph = Dataflow.of((Operator(name="in", source=True), Operator(name="map")), [("in", "map")])
        seen_s = [min(60.0, 60 * busy * scattered) for scattered in (0.88, 0.94, 1.0, 1.06, 1.12)]
        readings = [
            Reading(operator="map", instance=i, window_s=60, useful_s=s, records_in=6_000, records_out=0)
            for i, s in enumerate(seen_s)
        ]
        snapshot = Snapshot(
            dataflow=graph, plan=Plan({"map": 5}), source_rates={"in": 500.0}, readings=tuple(readings)
        )
        (span,) = NO_EVIDENCE.with_snapshot(snapshot).trails["map"].spans
        assert span.useful_s == pytest.approx(5 * 60 * busy)


class TestBursts:
    """35 s windows, looked at every 30 s: nothing comes out in one interval of seven."""

    @staticmethod
    def firing(*quiet: int) -> Trail:
        return seen(
            *(
                replace(window(0.7), records_out={"sink": 0.0 if number in quiet else COMES_IN / 10})
                for number in range(14)
            )
        )

    def test_output_that_stops_again_and_again_comes_in_bursts(self) -> None:
        assert self.firing(5, 12).in_bursts

    def test_output_that_stopped_once_or_has_only_begun_does_not(self) -> None:
        assert not self.firing(5).in_bursts
        assert not self.firing(0).in_bursts
        assert not self.firing().in_bursts
