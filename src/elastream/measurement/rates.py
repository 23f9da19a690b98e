"""True and observed rates of an instance and of an operator: equations 1 to 6 of DS2.

    (1) true processing rate  = records in  / useful time      (3) observed processing rate = records in  / window
    (2) true output rate      = records out / useful time      (4) observed output rate     = records out / window
    (5) (6) an operator's true rates are the sums over its instances

An instance without useful time has no true rate: it is left out of the sums and of the average, so that an
idle instance neither lowers nor raises what its siblings were seen to be able to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from elastream.measurement.reading import Reading


def true_processing_rate(reading: Reading) -> float | None:
    return reading.records_in / reading.useful_s if reading.has_useful_time else None


def true_output_rate(reading: Reading, consumer: str) -> float | None:
    return reading.records_out_to(consumer) / reading.useful_s if reading.has_useful_time else None


def observed_processing_rate(reading: Reading) -> float:
    return reading.records_in / reading.window_s


def observed_output_rate(reading: Reading, consumer: str) -> float:
    return reading.records_out_to(consumer) / reading.window_s


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatorRates:
    """What an operator's instances did together. Sums are exact, so their order does not matter."""

    instances: int
    """How many reported."""
    useful_instances: int
    """How many of those had useful time, and so a true rate."""
    true_processing_per_s: float | None
    true_output_per_s: Mapping[str, float]
    observed_processing_per_s: float
    observed_output_per_s: Mapping[str, float]
    utilization: float
    """The mean share of the window that was useful."""
    backlog: float | None
    wait_out_share: float | None
    """The largest share of the window that an instance was held back by the operators after it."""
    wait_core_share: float | None
    """The share of the time that it wanted a core in which it had none."""
    latency_s: float | None
    records_in: float
    records_late: float | None = None
    """Dropped because they came behind the watermark."""

    @property
    def true_per_instance(self) -> float | None:
        """The average true processing rate of an instance, the divisor of equation 7."""
        if self.true_processing_per_s is None:
            return None
        return self.true_processing_per_s / self.useful_instances

    def selectivity(self, consumer: str) -> float | None:
        """Records out to one downstream operator for each record in (the ratio in equation 8).

        The counts tell it as well where the work was too quick to be timed; None where there was no work.
        """
        if self.true_processing_per_s:
            return self.true_output_per_s[consumer] / self.true_processing_per_s
        if self.observed_processing_per_s:
            return self.observed_output_per_s[consumer] / self.observed_processing_per_s
        return None


def operator_rates(readings: Sequence[Reading], consumers: Sequence[str]) -> OperatorRates:
    """Combine the readings of one operator's instances; there must be at least one."""
    useful = [reading for reading in readings if reading.has_useful_time]
    return OperatorRates(
        instances=len(readings),
        useful_instances=len(useful),
        true_processing_per_s=fsum(r.records_in / r.useful_s for r in useful) if useful else None,
        true_output_per_s={c: fsum(r.records_out_to(c) / r.useful_s for r in useful) for c in consumers},
        observed_processing_per_s=fsum(map(observed_processing_rate, readings)),
        observed_output_per_s={c: fsum(observed_output_rate(r, c) for r in readings) for c in consumers},
        utilization=fsum(r.useful_s / r.window_s for r in readings) / len(readings),
        backlog=_total([r.backlog for r in readings]),
        wait_out_share=_largest([None if r.wait_out_s is None else r.wait_out_s / r.window_s for r in readings]),
        wait_core_share=_wait_core_share(readings),
        latency_s=_largest([r.latency_s for r in readings]),
        records_in=fsum(r.records_in for r in readings),
        records_late=_total([r.records_late for r in readings]),
    )


def _wait_core_share(readings: Sequence[Reading]) -> float | None:
    waited_s = _total([reading.wait_core_s for reading in readings])
    if waited_s is None:
        return None
    wanted_s = waited_s + fsum(reading.useful_s for reading in readings)
    return waited_s / wanted_s if wanted_s > 0 else 0.0


def _total(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fsum(known) if known else None


def _largest(values: list[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
