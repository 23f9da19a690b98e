"""Gesscale's performance model, from measurements of operators whose parameters are known."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastream.errors import InvalidInput
from elastream.policies.mst.calibration import calibrate, calibrate_proportional
from elastream.policies.mst.memory import remember
from elastream.policies.mst.mst_model import MstModel, Sustained


def truth(n: int, delay_s: float = 0.0, *, alpha: float = 100.0, beta: float = 0.8, gamma: float = 200.0) -> float:
    return alpha * n**beta - gamma * delay_s


def at(n: int, delay_s: float = 0.0, **parameters: float) -> Sustained:
    return Sustained(instances=n, delay_s=delay_s, records_per_s=truth(n, delay_s, **parameters))


def model_of(*points: Sustained) -> MstModel:
    found = calibrate(points)
    assert found is not None
    return found


SIX = (at(1), at(2, 0.05), at(3, 0.05), at(4, 0.1), at(5, 0.2), at(6, 0.3))


def test_nothing_measured_no_model() -> None:
    assert calibrate(()) is None
    assert calibrate_proportional(()) is None


def test_one_measurement_gives_alpha() -> None:
    model = model_of(at(2))
    assert (model.beta, model.gamma, model.beta_std, model.gamma_std) == (1.0, 0.0, None, None)
    assert model.mst_per_s(4) == pytest.approx(2 * truth(2))
    assert not model.is_full


def test_two_give_alpha_and_gamma() -> None:
    points = (at(1, beta=1.0), at(2, 0.1, beta=1.0))
    model = model_of(*points)
    assert (model.alpha_per_s, model.beta, model.gamma) == (pytest.approx(100), 1.0, pytest.approx(200))
    assert model.beta_std is None


@pytest.mark.parametrize("count", [3, 4, 6])
def test_three_or_more_give_all(count: int) -> None:
    model = model_of(*SIX[:count]) if count > 3 else model_of(at(1), at(3, 0.1), at(6, 0.3))
    found = (model.alpha_per_s, model.beta, model.gamma)
    assert found == (pytest.approx(100, rel=1e-3), pytest.approx(0.8, abs=2e-3), pytest.approx(200, rel=1e-2))
    assert model.is_full
    assert model.notes == ()


@settings(max_examples=60, deadline=None)
@given(alpha=st.floats(1, 1e6), beta=st.floats(0.4, 1.0), lost=st.floats(0, 0.8), order=st.permutations(range(6)))
def test_any_parameters_are_found_again(alpha: float, beta: float, lost: float, order: list[int]) -> None:
    gamma = lost * alpha / 0.3
    points = [at(SIX[i].instances, SIX[i].delay_s, alpha=alpha, beta=beta, gamma=gamma) for i in order]
    model = model_of(*points)
    for point in points:
        assert model.mst_per_s(point.instances, point.delay_s) == pytest.approx(point.records_per_s, rel=1e-3)


def test_the_uncertainty_covers_the_truth_and_shrinks_with_more_measurements() -> None:
    rng = random.Random(1)
    covered = 0
    for _ in range(50):
        noisy = [
            Sustained(instances=p.instances, delay_s=p.delay_s, records_per_s=p.records_per_s * rng.gauss(1, 0.02))
            for p in SIX
        ]
        model = model_of(*noisy)
        assert model.beta_std is not None
        covered += abs(model.beta - 0.8) <= 2 * model.beta_std
    assert covered >= 40
    few, many = model_of(at(1), at(3, 0.1), at(6, 0.3)), model_of(*SIX)
    assert few.gamma_std is not None
    assert many.gamma_std is not None
    assert many.gamma_std < few.gamma_std


def test_without_any_delay_three_give_alpha_and_beta() -> None:
    model = model_of(at(1), at(2), at(4))
    assert (model.beta, model.gamma, model.gamma_std) == (pytest.approx(0.8, abs=1e-3), 0.0, None)
    assert model.notes == ("no delay was measured, so γ keeps its default",)


def test_with_the_same_instances_everywhere_beta_stays_one() -> None:
    model = model_of(at(3, 0.0), at(3, 0.1), at(3, 0.2))
    assert (model.beta, model.beta_std) == (1.0, None)
    assert model.gamma == pytest.approx(200, rel=1e-3)
    assert model.notes == ("all have the same instances, so β keeps its default",)


def test_measurements_that_are_all_equal_give_alpha_only_and_say_so() -> None:
    model = model_of(at(2, 0.1), at(2, 0.1), at(2, 0.1))
    assert (model.beta_std, model.gamma_std) == (None, None)
    assert model.notes == ("all measurements are of one configuration, so only α is fitted",)


def test_measurements_that_contradict_each_other_leave_only_the_newest() -> None:
    points = [Sustained(instances=n, records_per_s=rate) for n, rate in ((1, 300.0), (2, 100.0), (3, 240.0))]
    model = model_of(*points)
    assert model.mst_per_s(3) == pytest.approx(240)
    assert model.beta_std is None
    assert "contradict each other" in model.notes[0]


def test_instances_that_do_less_the_more_there_are_contradict_the_model() -> None:
    points = [Sustained(instances=n, records_per_s=rate) for n, rate in ((1, 120.0), (2, 110.0), (3, 100.0))]
    assert "contradict each other" in model_of(*points).notes[0]


def test_the_model_is_not_asked_far_beyond_what_was_measured() -> None:
    model = model_of(at(2, 0.02), at(3, 0.05), at(4, 0.1))
    assert model.beyond(8, 0.2) is None
    assert model.beyond(1) is None
    assert model.beyond(9) == "9 instances are more than 2 times the 4 that were measured"
    assert model.beyond(4, 0.3) == "a delay of 300 ms is more than 2 times the 100 ms that were measured"
    assert model_of(at(4)).beyond(1) == "1 instances are fewer than half the 4 that were measured"


def test_equation_two_knows_nothing_of_delays() -> None:
    model = calibrate_proportional(SIX)
    assert model is not None
    assert (model.beta, model.gamma, model.notes) == (1.0, 0.0, ())
    assert model.mst_per_s(6, 0.3) == model.mst_per_s(6, 0.0)


def test_a_throughput_below_nothing_is_nothing() -> None:
    assert model_of(at(1), at(3, 0.1), at(6, 0.3)).mst_per_s(1, 10.0) == 0.0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"instances": 0, "records_per_s": 1.0}, "instances must be at least 1, found 0"),
        ({"instances": 1, "records_per_s": 0.0}, "records_per_s must be a finite number above 0, found 0"),
        ({"instances": 1, "records_per_s": float("nan")}, "records_per_s must be a finite number"),
        ({"instances": 1, "records_per_s": 1.0, "delay_s": -0.1}, "delay_s must be a finite number of at least 0"),
    ],
)
def test_what_cannot_be_a_measurement_is_refused(fields: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Sustained(**fields)  # type: ignore[arg-type]


# --- what is remembered -----------------------------------------------------------------------------------------


def remembered(*points: Sustained) -> tuple[Sustained, ...]:
    known: tuple[Sustained, ...] = ()
    for point in points:
        known = remember(known, point)
    return known


def test_each_configuration_is_kept_once_the_newest_last() -> None:
    known = remembered(at(1), at(2, 0.1), Sustained(instances=1, records_per_s=110.0))
    assert [(point.instances, point.windows) for point in known] == [(2, 1), (1, 2)]
    assert known[-1].records_per_s == pytest.approx(105)


def test_delays_that_differ_by_less_than_a_millisecond_are_the_same_configuration() -> None:
    assert len(remembered(at(2, 0.1), at(2, 0.1004))) == 1


def test_another_rate_of_the_same_configuration_forgets_everything_before() -> None:
    slower = Sustained(instances=2, delay_s=0.05, records_per_s=0.5 * truth(2, 0.05))
    assert remembered(*SIX, slower) == (slower,)


def test_a_rate_far_from_what_the_model_says_forgets_everything_before() -> None:
    slower = Sustained(instances=5, delay_s=0.1, records_per_s=0.5 * truth(5, 0.1))
    assert remembered(*SIX, slower) == (slower,)
    near = Sustained(instances=5, delay_s=0.1, records_per_s=0.9 * truth(5, 0.1))
    assert len(remembered(*SIX, near)) == 7


def test_far_away_the_model_is_not_asked_and_nothing_is_forgotten() -> None:
    assert len(remembered(*SIX, Sustained(instances=50, records_per_s=150.0))) == 7


def test_the_oldest_goes_when_there_are_many() -> None:
    known = remembered(*(at(n) for n in range(1, 30)))
    assert len(known) == 16
    assert known[0].instances == 14
