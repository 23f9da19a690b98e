"""Loads are pure: a rate depends on the load and the time, never on who asked before."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastream.arrivals.load import (
    FIRST_WALK_STEPS,
    Brownian,
    Constant,
    Load,
    Sine,
    Steps,
    Trace,
    bundled_trace,
    bundled_traces,
    read_trace,
)
from elastream.errors import InvalidInput

RATES = st.floats(min_value=0, max_value=1e9)
TIMES_S = st.floats(min_value=0, max_value=1e5)
LENGTHS_S = st.floats(min_value=1e-3, max_value=1e6)
DAY_S = 86_400
NOT_A_RATE = [-1.0, math.nan, math.inf, -math.inf]


@st.composite
def times_from_zero(draw: st.DrawFn, *, max_size: int = 20) -> tuple[float, ...]:
    """Whole milliseconds: points closer than rounding can tell apart say nothing about a load."""
    later_ms = draw(st.sets(st.integers(min_value=1, max_value=10**8), max_size=max_size - 1))
    return (0.0, *(time_ms / 1000 for time_ms in sorted(later_ms)))


@st.composite
def steps(draw: st.DrawFn) -> Steps:
    return Steps(steps=tuple((from_s, draw(RATES)) for from_s in draw(times_from_zero())))


@st.composite
def sines(draw: st.DrawFn) -> Sine:
    phase_s = draw(st.floats(min_value=-1e5, max_value=1e5))
    return Sine(mean=draw(RATES), amplitude=draw(RATES), period_s=draw(LENGTHS_S), phase_s=phase_s)


@st.composite
def brownians(draw: st.DrawFn) -> Brownian:
    minimum, start, maximum = sorted(draw(st.sets(RATES, min_size=3, max_size=3)))
    return Brownian(
        start=start,
        step_std=draw(RATES),
        step_s=draw(st.floats(min_value=10, max_value=1000)),
        minimum=minimum,
        maximum=draw(st.sampled_from([None, maximum])),
        seed=draw(st.integers(min_value=0, max_value=2**64)),
    )


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    times_s = draw(times_from_zero())
    return Trace(
        times_s=times_s,
        records_per_s=tuple(draw(RATES) for _ in times_s),
        speed=draw(st.floats(min_value=0.01, max_value=100)),
        scale=draw(st.floats(min_value=0.01, max_value=100)),
        repeat=draw(st.booleans()),
    )


ANY_LOAD: st.SearchStrategy[Load] = st.one_of(
    st.builds(Constant, records_per_s=RATES), steps(), sines(), brownians(), traces()
)


class TestEveryLoad:
    @given(load=ANY_LOAD, t_s=TIMES_S)
    def test_gives_a_finite_rate_that_is_not_negative(self, load: Load, t_s: float) -> None:
        rate = load.rate_at(t_s)
        assert math.isfinite(rate)
        assert rate >= 0

    @given(load=ANY_LOAD, times_s=st.lists(TIMES_S, min_size=1, max_size=8))
    def test_does_not_depend_on_the_order_of_the_questions(self, load: Load, times_s: list[float]) -> None:
        untouched = copy.deepcopy(load)
        forwards = [load.rate_at(t_s) for t_s in times_s]
        backwards = [untouched.rate_at(t_s) for t_s in reversed(times_s)]
        assert forwards == backwards[::-1]

    @given(load=ANY_LOAD)
    def test_holds_its_first_rate_before_the_start(self, load: Load) -> None:
        assert load.rate_at(-5.0) == load.rate_at(0.0)

    @given(load=ANY_LOAD, t_s=TIMES_S)
    def test_is_a_value(self, load: Load, t_s: float) -> None:
        """Experiments send loads to other processes and use them as keys."""
        rate = load.rate_at(t_s)
        sent = pickle.loads(pickle.dumps(load))
        assert sent == load
        assert hash(sent) == hash(load)
        assert sent.rate_at(t_s) == rate


class TestConstant:
    def test_is_the_same_at_all_times(self) -> None:
        load = Constant(records_per_s=250.0)
        assert [load.rate_at(t_s) for t_s in (0, 1.5, 1e9)] == [250.0] * 3

    @pytest.mark.parametrize("rate", NOT_A_RATE)
    def test_refuses_what_is_not_a_rate(self, rate: float) -> None:
        with pytest.raises(InvalidInput, match=rf"records_per_s must be .* at least 0, found {rate}"):
            Constant(records_per_s=rate)


class TestSteps:
    @pytest.mark.parametrize(
        ("t_s", "rate"), [(0, 10.0), (59.999, 10.0), (60, 30.0), (119, 30.0), (120, 0.0), (1e9, 0.0)]
    )
    def test_holds_each_rate_until_the_next(self, t_s: float, rate: float) -> None:
        assert Steps(steps=((0, 10.0), (60, 30.0), (120, 0.0))).rate_at(t_s) == rate

    @given(load=steps(), t_s=TIMES_S)
    def test_gives_the_last_step_that_has_begun(self, load: Steps, t_s: float) -> None:
        begun = [rate for from_s, rate in load.steps if from_s <= t_s]
        assert load.rate_at(t_s) == begun[-1]

    @pytest.mark.parametrize(
        ("bad", "message"),
        [
            ((), "expected at least one point, found none"),
            (((5, 1.0),), "expected the first time to be 0, found 5"),
            (((-1, 1.0), (0, 2.0)), "expected the first time to be 0, found -1"),
            (((0, 1.0), (9, 2.0), (9, 3.0)), "expected increasing times, found 9 after 9"),
            (((0, 1.0), (9, 2.0), (4, 3.0)), "expected increasing times, found 4 after 9"),
            (((0, 1.0), (math.nan, 2.0)), "time must be a finite number, found nan"),
            (((0, 1.0), (9, -2.0)), "rate must be a finite number of at least 0, found -2.0"),
            (((0, math.nan),), "rate must be a finite number of at least 0, found nan"),
        ],
    )
    def test_refuses_bad_steps(self, bad: tuple[tuple[float, float], ...], message: str) -> None:
        with pytest.raises(InvalidInput, match=f"steps: {message}"):
            Steps(steps=bad)


class TestSine:
    def test_rises_from_its_mean_and_comes_back(self) -> None:
        load = Sine(mean=100, amplitude=40, period_s=600)
        quarters = [load.rate_at(t_s) for t_s in (0, 150, 300, 450, 600)]
        assert quarters == pytest.approx([100, 140, 100, 60, 100])

    def test_phase_is_where_it_starts(self) -> None:
        assert Sine(mean=100, amplitude=40, period_s=600, phase_s=150).rate_at(0) == pytest.approx(140)

    def test_is_cut_off_at_zero(self) -> None:
        assert Sine(mean=10, amplitude=40, period_s=600).rate_at(450) == 0.0

    @pytest.mark.parametrize("name", ["mean", "amplitude", "period_s"])
    @pytest.mark.parametrize("bad", NOT_A_RATE)
    def test_refuses_bad_numbers(self, name: str, bad: float) -> None:
        good = {"mean": 1.0, "amplitude": 1.0, "period_s": 1.0}
        with pytest.raises(InvalidInput, match=rf"{name} must be .*, found {bad}"):
            Sine(**{**good, name: bad})

    def test_refuses_a_period_of_nothing(self) -> None:
        with pytest.raises(InvalidInput, match="period_s must be a finite number above 0, found 0"):
            Sine(mean=1, amplitude=1, period_s=0)

    def test_refuses_a_phase_that_is_not_a_number(self) -> None:
        with pytest.raises(InvalidInput, match="phase_s must be a finite number, found nan"):
            Sine(mean=1, amplitude=1, period_s=1, phase_s=math.nan)

    def test_refuses_a_crest_that_overflows(self) -> None:
        with pytest.raises(InvalidInput, match=r"mean \+ amplitude must be a finite number, found inf"):
            Sine(mean=1.7e308, amplitude=1.7e308, period_s=1)


class TestBrownian:
    def test_begins_at_its_start_and_holds_for_a_step(self) -> None:
        load = Brownian(start=100, step_std=10, step_s=60)
        assert load.rate_at(0) == load.rate_at(59.9) == 100
        assert load.rate_at(60) == load.rate_at(119.9) != 100

    def test_does_not_move_without_steps(self) -> None:
        load = Brownian(start=100, step_std=0, minimum=50, maximum=150)
        assert {load.rate_at(t_s) for t_s in range(0, DAY_S, 60)} == {100}

    @given(load=brownians(), t_s=TIMES_S)
    def test_stays_within_its_bounds(self, load: Brownian, t_s: float) -> None:
        assert load.minimum <= load.rate_at(t_s) <= (math.inf if load.maximum is None else load.maximum)

    def test_is_the_same_for_the_same_seed_and_another_for_another(self) -> None:
        def walk(seed: int) -> list[float]:
            load = Brownian(start=100, step_std=5, seed=seed)
            return [load.rate_at(t_s) for t_s in range(0, DAY_S, 60)]

        assert walk(7) == walk(7)
        assert walk(7) != walk(8)

    def test_a_walk_that_grows_keeps_what_it_said(self) -> None:
        load = Brownian(start=100, step_std=5, step_s=1, maximum=200, seed=3)
        last_s = 5 * FIRST_WALK_STEPS
        early = [load.rate_at(t_s) for t_s in range(FIRST_WALK_STEPS)]
        load.rate_at(last_s)
        assert [load.rate_at(t_s) for t_s in range(FIRST_WALK_STEPS)] == early
        asked_late_first = Brownian(start=100, step_std=5, step_s=1, maximum=200, seed=3)
        assert asked_late_first.rate_at(last_s) == load.rate_at(last_s)
        assert [asked_late_first.rate_at(t_s) for t_s in range(FIRST_WALK_STEPS)] == early

    def test_moves_as_far_as_its_steps_say(self) -> None:
        load = Brownian(start=1e6, step_std=10, step_s=1, seed=1)
        moves = [load.rate_at(t_s + 1) - load.rate_at(t_s) for t_s in range(10_000)]
        assert math.sqrt(sum(move * move for move in moves) / len(moves)) == pytest.approx(10, rel=0.05)

    def test_is_mirrored_at_the_bounds_and_not_stuck_there(self) -> None:
        load = Brownian(start=50, step_std=20, step_s=1, minimum=0, maximum=100, seed=1)
        walk = [load.rate_at(t_s) for t_s in range(10_000)]
        at_a_bound = sum(rate in (0, 100) for rate in walk)
        assert at_a_bound < 10
        assert sum(walk) / len(walk) == pytest.approx(50, abs=5)

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: Brownian(start=-1, step_std=1), "start must be .* at least 0, found -1"),
            (lambda: Brownian(start=math.nan, step_std=1), "start must be .*, found nan"),
            (lambda: Brownian(start=1, step_std=-1), "step_std must be .* at least 0, found -1"),
            (lambda: Brownian(start=1, step_std=math.inf), "step_std must be .*, found inf"),
            (lambda: Brownian(start=1, step_std=1, step_s=0), "step_s must be .* above 0, found 0"),
            (lambda: Brownian(start=1, step_std=1, minimum=-1), "minimum must be .* at least 0, found -1"),
            (lambda: Brownian(start=1, step_std=1, seed=-1), "seed must be .* at least 0, found -1"),
            (lambda: Brownian(start=1, step_std=1, maximum=math.nan), "maximum must be .*, found nan"),
            (
                lambda: Brownian(start=5, step_std=1, minimum=5, maximum=5),
                "maximum: expected more than the minimum, 5, found 5",
            ),
            (
                lambda: Brownian(start=9, step_std=1, minimum=1, maximum=5),
                "start: expected a rate within the bounds, 1 to 5, found 9",
            ),
            (
                lambda: Brownian(start=1, step_std=1, minimum=2),
                "start: expected a rate within the bounds, 2 to any, found 1",
            ),
        ],
    )
    def test_refuses_bad_numbers(self, make: Callable[[], Brownian], message: str) -> None:
        with pytest.raises(InvalidInput, match=message):
            make()


class TestTrace:
    trace = Trace(times_s=(0, 10, 30), records_per_s=(100, 200, 50))

    @pytest.mark.parametrize(
        ("t_s", "rate"), [(0, 100), (5, 150), (10, 200), (20, 125), (29, 57.5), (30, 50), (1e9, 50)]
    )
    def test_goes_straight_from_point_to_point_and_holds(self, t_s: float, rate: float) -> None:
        assert self.trace.rate_at(t_s) == pytest.approx(rate)

    @given(trace=traces(), share=st.floats(min_value=0, max_value=1), data=st.data())
    def test_stays_between_its_neighbours(self, trace: Trace, share: float, data: st.DataObject) -> None:
        last = len(trace.times_s) - 1
        index = data.draw(st.integers(min_value=0, max_value=last))
        following = min(index + 1, last)
        width_s = trace.times_s[following] - trace.times_s[index]
        rate = trace.rate_at((trace.times_s[index] + share * width_s) / trace.speed)
        low, high = sorted(trace.scale * trace.records_per_s[i] for i in (index, following))
        # An ulp of time at a point may fall into the stretch before it; rates within it differ by as little.
        slack = 1e-6 * max(trace.records_per_s) * trace.scale
        assert low - slack <= rate <= high + slack

    @given(trace=traces())
    def test_passes_through_every_point(self, trace: Trace) -> None:
        once = replace(trace, speed=1.0, scale=1.0)
        assert tuple(once.rate_at(time_s) for time_s in once.times_s) == once.records_per_s

    def test_speed_plays_it_faster(self) -> None:
        fast = replace(self.trace, speed=10)
        assert [fast.rate_at(t_s) for t_s in (0, 0.5, 1, 3)] == pytest.approx([100, 150, 200, 50])

    def test_scale_multiplies_its_rates(self) -> None:
        assert replace(self.trace, scale=0.1).rate_at(5) == pytest.approx(15)

    def test_repeat_leads_back_to_the_first_point(self) -> None:
        """The last stretch is 20 s long, so one more of 20 s closes the loop at 50 s."""
        looped = replace(self.trace, repeat=True)
        assert [looped.rate_at(t_s) for t_s in (30, 40, 50, 55, 105)] == pytest.approx([50, 75, 100, 150, 150])

    def test_repeat_with_speed(self) -> None:
        looped = replace(self.trace, repeat=True, speed=5)
        assert [looped.rate_at(t_s) for t_s in (8, 10, 11)] == pytest.approx([75, 100, 150])

    def test_a_day_of_minutes_repeats_after_a_day(self) -> None:
        looped = replace(bundled_trace("worldcup98"), repeat=True)
        assert all(looped.rate_at(t_s) == looped.rate_at(t_s + DAY_S) for t_s in range(0, DAY_S, 977))

    @pytest.mark.parametrize("repeat", [False, True])
    def test_one_point_is_a_constant(self, repeat: bool) -> None:
        trace = Trace(times_s=(0,), records_per_s=(7,), repeat=repeat)
        assert [trace.rate_at(t_s) for t_s in (0, 1, 1e9)] == [7, 7, 7]

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: Trace(times_s=(), records_per_s=()), "times_s: expected at least one point, found none"),
            (lambda: Trace(times_s=(0, 1), records_per_s=(5,)), "as many of each, found 2 times and 1 rates"),
            (lambda: Trace(times_s=(3,), records_per_s=(5,)), "expected the first time to be 0, found 3"),
            (lambda: Trace(times_s=(0, 0), records_per_s=(5, 5)), "increasing times, found 0 after 0"),
            (lambda: Trace(times_s=(0, math.inf), records_per_s=(5, 5)), "times_s: time must .* found inf"),
            (lambda: Trace(times_s=(0,), records_per_s=(-5,)), "records_per_s: rate must .* found -5"),
            (lambda: Trace(times_s=(0,), records_per_s=(math.nan,)), "records_per_s: rate must .* found nan"),
            (lambda: Trace(times_s=(0,), records_per_s=(5,), speed=0), "speed must be .* above 0, found 0"),
            (lambda: Trace(times_s=(0,), records_per_s=(5,), scale=-1), "scale must be .* above 0, found -1"),
            (
                lambda: Trace(times_s=(0,), records_per_s=(1e300,), scale=1e300),
                "the highest of records_per_s × scale must be a finite number, found inf",
            ),
        ],
    )
    def test_refuses_bad_points(self, make: Callable[[], Trace], message: str) -> None:
        with pytest.raises(InvalidInput, match=message):
            make()


class TestReadTrace:
    def write(self, folder: Path, text: str) -> Path:
        file = folder / "rates.csv"
        file.write_text(text, encoding="utf-8", newline="")
        return file

    def test_reads_points(self, tmp_path: Path) -> None:
        file = self.write(tmp_path, "time_s,records_per_s\n0,1.5\n60,3\n")
        expected = Trace(times_s=(0, 60), records_per_s=(1.5, 3))
        assert read_trace(file) == expected
        assert read_trace(str(file)) == expected

    @pytest.mark.parametrize(
        "text",
        [
            "\ufefftime_s,records_per_s\r\n0,1\r\n60,2\r\n",
            "time_s, records_per_s\n0, 1\n\n60, 2",
            "note,records_per_s,time_s\nquiet,1,0\nbusy,2,60\n",
        ],
        ids=["spreadsheet", "spaces and blank lines", "other columns"],
    )
    def test_takes_what_programs_write(self, tmp_path: Path, text: str) -> None:
        assert read_trace(self.write(tmp_path, text)) == Trace(times_s=(0, 60), records_per_s=(1, 2))

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", ", line 1: expected the header time_s,records_per_s, found nothing"),
            ("time_s,records_per_s\n", ": expected points after the header, found none"),
            (
                "time_s,rate\n0,1\n",
                ", line 1: expected the header time_s,records_per_s, found no records_per_s in 'time_s,rate'",
            ),
            (
                "0,1\n60,2\n",
                ", line 1: expected the header time_s,records_per_s, found no time_s in '0,1'",
            ),
            (
                "time_s,records_per_s\n0,1\n60,many\n",
                ", line 3: records_per_s must be a finite number of at least 0, found 'many'",
            ),
            (
                "time_s,records_per_s\n\nnoon,1\n",
                ", line 3: time_s must be a finite number of at least 0, found 'noon'",
            ),
            (
                "time_s,records_per_s\n0\n",
                ", line 2: records_per_s must be a finite number of at least 0, found nothing",
            ),
            (
                "time_s,records_per_s\n0,-1\n",
                ", line 2: records_per_s must be a finite number of at least 0, found '-1'",
            ),
            (
                "time_s,records_per_s\n0,nan\n",
                ", line 2: records_per_s must be a finite number of at least 0, found 'nan'",
            ),
            (
                "time_s,records_per_s\n0,inf\n",
                ", line 2: records_per_s must be a finite number of at least 0, found 'inf'",
            ),
            (
                "time_s,records_per_s\n60,1\n",
                ", line 2: time_s: expected the first time to be 0, found 60.0",
            ),
            (
                "time_s,records_per_s\n0,1\n60,1\n60,2\n",
                ", line 4: time_s: expected more than the line before, 60.0, found 60.0",
            ),
            (
                f"time_s,records_per_s\n0,1\n60,{'9' * 200_000}\n",
                ", line 3: not CSV: field larger than field limit (131072)",
            ),
        ],
        ids=lambda value: value[:40].replace("\n", "|"),
    )
    def test_names_the_file_and_the_line(self, tmp_path: Path, text: str, message: str) -> None:
        file = self.write(tmp_path, text)
        with pytest.raises(InvalidInput) as refused:
            read_trace(file)
        assert str(refused.value) == f"{file}{message}"

    def test_names_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidInput, match=r"none\.csv: cannot be read: No such file"):
            read_trace(tmp_path / "none.csv")

    def test_names_a_file_that_is_not_text(self, tmp_path: Path) -> None:
        file = tmp_path / "rates.csv"
        file.write_bytes(b"\xff\xfe\x00")
        with pytest.raises(InvalidInput, match=r"rates\.csv: expected a text file in UTF-8"):
            read_trace(file)


class TestBundledTraces:
    points = {  # noqa: RUF012 - read only
        "azure_functions": (1440, 60),
        "clarknet": (1440, 60),
        "google_jobs": (1440, 60),
        "nyc_taxi": (336, 1800),
        "worldcup98": (1440, 60),
    }

    def test_are_listed(self) -> None:
        assert bundled_traces() == tuple(self.points)

    @pytest.mark.parametrize("name", points)
    def test_load_without_gaps_and_with_a_peak(self, name: str) -> None:
        trace = bundled_trace(name)
        count, step_s = self.points[name]
        assert trace.times_s == tuple(step_s * i for i in range(count))
        mean = sum(trace.records_per_s) / count
        assert max(trace.records_per_s) > 1.5 * mean > 0
        assert min(trace.records_per_s) > 0, "a minute without a record would be a gap of the recording"

    @pytest.mark.parametrize("name", points)
    def test_are_small_and_tell_where_they_are_from(self, name: str) -> None:
        folder = files("elastream.arrivals") / "traces"
        assert len((folder / f"{name}.csv").read_bytes()) < 40_000
        assert f"`{name}.csv`" in (folder / "README.md").read_text(encoding="utf-8")

    def test_an_unknown_name_gets_the_nearest(self) -> None:
        with pytest.raises(InvalidInput, match=r"'worldcup89' \(did you mean 'worldcup98'\?\)"):
            bundled_trace("worldcup89")

    @pytest.mark.parametrize("name", ["", "README.md", "../traces/clarknet"])
    def test_only_a_listed_name_is_read(self, name: str) -> None:
        with pytest.raises(InvalidInput, match="no bundled trace is named"):
            bundled_trace(name)
