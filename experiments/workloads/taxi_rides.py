"""The load of Gesscale's evaluation: New York taxi rides of two days, replayed at ten times their speed.

The paper replays the first two days of May 2013, a Wednesday and a Thursday with about a million rides, ten times
as fast and every ride three times. Here the shape is that of the bundled trace `nyc_taxi`, whose third and fourth
day are a Wednesday and a Thursday too. It counts passengers by the half hour, so it is scaled to a million rides,
lies on a straight line between two counts, and the rides of each minute are drawn from a Poisson distribution.

The paper's load falls strongly at 120 and at 270 minutes of the replay. Taxis have one such fall a day, around
midnight, so two whole ones are in two days only if they do not begin near midnight; begun at four in the morning,
the falls are at 114 and at 264 minutes, and the small one in the afternoon of the second day at 216 (220 there).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import fsum

import numpy as np

from elastream.arrivals.load import Steps, bundled_trace

_DAY_S = 86_400.0
_MINUTE_S = 60.0


@dataclass(frozen=True, kw_only=True)
class TaxiRides:
    first_day: int = 2
    """Of the week, from 0 for Monday."""
    first_hour: float = 4.0
    """Of the day."""
    days: int = 2
    rides: float = 1_000_000.0
    """Of all days together, on average."""
    speed: float = 10.0
    replication: int = 3
    """Records for each ride."""

    @property
    def duration_s(self) -> float:
        return self.days * _DAY_S / self.speed

    def load(self, seed: int) -> Steps:
        """A rate for each minute of the replay."""
        expected = self._expected_rides()
        drawn = np.random.default_rng(seed).poisson(expected)
        rates = (float(rides) * self.replication / _MINUTE_S for rides in drawn)
        return Steps(steps=tuple((minute * _MINUTE_S, rate) for minute, rate in enumerate(rates)))

    def _expected_rides(self) -> list[float]:
        """In each minute of the replay, from the rate in its middle."""
        trace = replace(bundled_trace("nyc_taxi"), repeat=True)
        begins_s = self.first_day * _DAY_S + self.first_hour * 3600
        middles_s = (_MINUTE_S * (minute + 0.5) for minute in range(round(self.duration_s / _MINUTE_S)))
        shape = [trace.rate_at(begins_s + middle_s * self.speed) for middle_s in middles_s]
        return [self.rides * part / fsum(shape) for part in shape]
