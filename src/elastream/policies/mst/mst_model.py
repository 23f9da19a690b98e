"""Maximum sustainable throughput by instances and by the delay between their nodes: Gesscale's equations 1 to 3.

    (1) MST = α·n^β − γ·ND    (2) MST = α·n, from one measurement    (3) MST = α·n − γ·ND, from two

α is what one instance sustains, β how well instances work side by side, γ what each second of delay costs, and
ND the largest round trip between two of the nodes that the instances run on. `calibration.py`
finds the parameters.

The model is asked no further than it was seen to hold: for up to twice the most and down to half the fewest
instances that were measured, and, where it knows what delays cost, for up to twice the largest delay.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from elastream.checked import Checked, Count, NotNegative, Positive

REACH = 2.0
"""How many times further than it was measured the model is trusted."""
FAR_REACH = 4.0
"""The same of a model that knows its errors: they are those of a curve that holds, and far away it may not."""
NOISE = 0.02
"""The relative standard error of a measurement at saturation, by the paper."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sustained(Checked):
    """A measurement: what an operator processed while it was at its limit."""

    instances: Count
    delay_s: NotNegative = 0.0
    """The largest round trip between two of its nodes."""
    records_per_s: Positive
    windows: int = 1
    """How many windows went into it."""
    relative_std: Positive = NOISE
    """How far off it may be."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MstModel:
    alpha_per_s: float
    beta: float = 1.0
    gamma: float = 0.0
    """Records per second that are lost for each second of delay."""
    alpha_std: float
    beta_std: float | None = None
    """The standard error; None where the parameter was not fitted and has its default."""
    gamma_std: float | None = None
    fewest: int
    most: int
    """Instances that were measured."""
    largest_delay_s: float
    covariance: tuple[tuple[float, ...], ...] = ()
    """Of α, β and γ."""
    most_error: float | None = None
    """The largest relative standard error with which it is believed; None where its reach decides."""
    notes: tuple[str, ...] = ()
    """Why it is simpler than so many measurements would allow."""

    def mst_per_s(self, instances: int, delay_s: float = 0.0) -> float:
        return max(0.0, self.alpha_per_s * math.pow(instances, self.beta) - self.gamma * delay_s)

    def std_per_s(self, instances: int, delay_s: float = 0.0) -> float:
        """The standard error of what it says, from those of its parameters."""
        power = math.pow(instances, self.beta)
        gradient = (power, self.alpha_per_s * power * math.log(instances), -delay_s)
        products = (
            one * other * entry
            for one, row in zip(gradient, self.covariance, strict=bool(self.covariance))
            for other, entry in zip(gradient, row, strict=True)
        )
        return math.sqrt(max(0.0, math.fsum(products)))

    def relative_error(self, instances: int, delay_s: float = 0.0) -> float:
        said = self.mst_per_s(instances, delay_s)
        return self.std_per_s(instances, delay_s) / said if said > 0 else math.inf

    def beyond(self, instances: int, delay_s: float = 0.0) -> str | None:
        """What is too far from everything that was measured, as text; None where the model may be asked."""
        if self.most_error is not None:
            return self._unsure(instances, delay_s, self.most_error)
        if instances > REACH * self.most:
            return f"{instances:,} instances are more than {REACH:g} times the {self.most:,} that were measured"
        if instances * REACH < self.fewest:
            return f"{instances:,} instances are fewer than half the {self.fewest:,} that were measured"
        if self.gamma_std is not None and delay_s > REACH * self.largest_delay_s:
            seen = f"{1000 * self.largest_delay_s:.0f} ms that were measured"
            return f"a delay of {1000 * delay_s:.0f} ms is more than {REACH:g} times the {seen}"
        return None

    def _unsure(self, instances: int, delay_s: float, most_error: float) -> str | None:
        if instances > FAR_REACH * self.most:
            return (
                f"{instances:,} instances are more than {FAR_REACH:g} times the {self.most:,} that were measured"
            )
        error = self.relative_error(instances, delay_s)
        known = f"what {instances:,} instances sustain is known to ± {error:.0%}"
        return f"{known}, and should be to ± {most_error:.0%}" if error > most_error else None

    @property
    def is_full(self) -> bool:
        """Whether more than a proportional guess is known: how instances work side by side was seen."""
        return self.beta_std is not None

    def __str__(self) -> str:
        alpha = f"{_number(self.alpha_per_s)} (± {_number(self.alpha_std)})"
        power = "n" if self.beta_std is None else f"n^{self.beta:.2f} (± {self.beta_std:.2f})"
        if self.gamma_std is None:
            return f"{alpha} · {power}"
        return f"{alpha} · {power} − {_number(self.gamma)} (± {_number(self.gamma_std)}) · delay"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
