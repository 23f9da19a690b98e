"""Skew and stragglers, found in the readings of an operator's instances, or in the spread of its tasks.

Neither can be mended by more instances, and DS2 assumes that there is neither (§3.3). Averaging keeps its answer
at what would be right without them; naming them tells the user where to look.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from elastream.measurement import Measurement, Reading
from elastream.measurement.measurement import stands_out
from elastream.measurement.tasks import TaskSpread
from elastream.policies.proposal import Reason, ReasonKind

_STRAGGLING = 0.7  # of the median true rate


def imbalance(measured: Measurement) -> tuple[Reason, ...]:
    """The reasons to be given for one operator: at most one for skew and one for stragglers."""
    if measured.totals.tasks is not None:
        found = [_skew_of_tasks(measured.totals.tasks, measured)]
    elif len(measured.readings) < 2 or any(reading.instances > 1 for reading in measured.readings):
        return ()
    else:
        found = [_skew(measured), _stragglers(measured.readings)]
    return tuple(reason for reason in found if reason is not None)


def _skew_of_tasks(spread: TaskSpread, measured: Measurement) -> Reason | None:
    """More tasks than instances even each other out: what counts is a task above an instance's even share."""
    instances, even = measured.instances, measured.even_share(measured.instances)
    stands = stands_out(spread.records[-1], even * spread.records_total)
    if not stands or instances < 2 or spread.largest_share is None:
        return None
    text = (
        f"skew: one of {spread.tasks} tasks takes {spread.largest_share:.0%} of the records, "
        f"an even share of {instances} instances is {even:.0%}; more instances do not relieve it"
    )
    return Reason(kind=ReasonKind.SKEW, text=text)


def _skew(measured: Measurement) -> Reason | None:
    readings, even = measured.readings, measured.even_share(measured.instances)
    total = math.fsum(reading.records_in for reading in readings)
    if total == 0:
        return None
    hottest = max(readings, key=lambda reading: (reading.records_in, -reading.instance))
    if not stands_out(hottest.records_in, even * total):
        return None
    text = (
        f"skew: instance {hottest.instance} takes {hottest.records_in / total:.0%} of the records, "
        f"an even share is {even:.0%}; more instances do not relieve it"
    )
    return Reason(kind=ReasonKind.SKEW, text=text)


def _stragglers(readings: Sequence[Reading]) -> Reason | None:
    timed = [(reading, reading.true_per_s) for reading in readings if reading.records_in > 0]
    known = [(reading, rate) for reading, rate in timed if rate is not None]
    if len(known) < 3:
        return None  # of two instances, either may be the outlier
    usual = median(rate for _, rate in known)
    slow = sorted(reading.instance for reading, rate in known if rate < _STRAGGLING * usual)
    if not slow or len(slow) > len(known) / 4:
        return None
    slowest = min(rate for _, rate in known)
    named = f"instance {slow[0]}" if len(slow) == 1 else f"instances {', '.join(map(str, slow[:5]))}"
    text = f"straggler: {named} at {slowest / usual:.0%} of the usual true rate; look at its node"
    return Reason(kind=ReasonKind.STRAGGLER, text=text)
