"""Which measurements are kept: one for each configuration, the newest last, and none of what no longer holds.

A measurement that is far from an earlier one of the same configuration, or from what a model of all three
parameters says within its reach, means that the operator now behaves differently: everything before it is
forgotten.
"""

from __future__ import annotations

from dataclasses import replace
from math import hypot

from elastream.policies.mst.calibration import calibrate
from elastream.policies.mst.mst_model import NOISE, Sustained

NEW_WEIGHT = 0.3
"""Of a new measurement against what the earlier ones of the same configuration gave."""
CHANGED = 0.3
"""A relative difference that noise does not explain: what was learned before is out of date."""
_MOST_POINTS = 16  # of different configurations
_SAME_DELAY_S = 0.001  # delays are measured, too


def remember(known: tuple[Sustained, ...], new: Sustained) -> tuple[Sustained, ...]:
    same = next((point for point in known if _same_configuration(point, new)), None)
    expected = _expected_per_s(known, new) if same is None else same.records_per_s
    changed = max(CHANGED, 2 * new.relative_std)
    if expected is not None and abs(new.records_per_s - expected) > changed * expected:
        return (new,)
    if same is None:
        return (*known, new)[-_MOST_POINTS:]
    weight = _weight(same, new)
    merged = replace(
        same,
        records_per_s=same.records_per_s + weight * (new.records_per_s - same.records_per_s),
        windows=same.windows + 1,
        relative_std=max(NOISE, hypot((1 - weight) * same.relative_std, weight * new.relative_std)),
    )
    return (*(point for point in known if point is not same), merged)


def _weight(same: Sustained, new: Sustained) -> float:
    """Of the new one: as many times more as its variance is smaller."""
    alike = max(NEW_WEIGHT, 1 / (same.windows + 1))
    surer = (same.relative_std / new.relative_std) ** 2
    return alike * surer / (1 - alike + alike * surer)


def _same_configuration(one: Sustained, other: Sustained) -> bool:
    return one.instances == other.instances and abs(one.delay_s - other.delay_s) <= _SAME_DELAY_S


def _expected_per_s(known: tuple[Sustained, ...], new: Sustained) -> float | None:
    """By a model that knows enough to contradict; the simpler ones are expected to be off."""
    if len(known) <= 3:
        return None  # as many parameters as measurements: it goes through all of them, whatever they are
    model = calibrate(known)
    if model is None or not model.is_full or model.beyond(new.instances, new.delay_s):
        return None
    return model.mst_per_s(new.instances, new.delay_s) or None
