"""The input rate is raised until the output no longer follows: what is processed then is the capacity (the thesis,
4.3.1). Whoever holds a rate is handed in, so that this is rates in, throughputs out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from elastream.errors import ElastreamError, InvalidInput

_FOLLOWS = 0.9
"""The share of the offered rate from which on the output counts as following."""
_MOST_STEPS = 40

Hold = Callable[[float], float]
"""Offers a rate for a while: records per second that were processed."""


@dataclass(frozen=True, kw_only=True)
class CapacityStep:
    offered_per_s: float
    processed_per_s: float

    @property
    def follows(self) -> bool:
        return self.processed_per_s >= _FOLLOWS * self.offered_per_s


def ramp(hold: Hold, *, first_per_s: float, growth: float) -> Iterator[CapacityStep]:
    """One result for each rate; the last is the first that was not followed."""
    rate_per_s = first_per_s
    for _ in range(_MOST_STEPS):
        step = CapacityStep(offered_per_s=rate_per_s, processed_per_s=hold(rate_per_s))
        yield step
        if not step.follows:
            return
        rate_per_s *= growth
    raise ElastreamError(
        f"the output still follows at {rate_per_s / growth:.0f} records per second: begin with a higher rate"
    )


@dataclass(frozen=True, kw_only=True)
class MeasuredCapacity:
    """What an instance with so many cores can do."""

    cores: int
    steps: Sequence[CapacityStep]

    @property
    def per_s(self) -> float:
        """The throughput where the output no longer followed."""
        return self.steps[-1].processed_per_s


def core_counts(written: str) -> list[int]:
    """From `1,2,4`: each number once, in the order given."""
    try:
        found = [int(part) for part in written.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise InvalidInput(f"--cores: expected numbers from 1 on, with commas between them, found {written!r}")
    if len(set(found)) < len(found):
        raise InvalidInput(f"--cores: expected each number once, found {written!r}")
    return found
