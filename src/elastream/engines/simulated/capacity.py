"""How many records per second an operator's instances process together, as their number grows.

With α the rate of one instance alone and n the number of instances:

- `PowerLaw`: α·n^β − γ·δ. β = 1 is perfect scaling, which DS2 assumes; the general form is Gesscale's, whose
  last term is the price of the largest network delay δ between the nodes that the instances run on.
- `Amdahl`: α·n / (1 + σ·(n − 1)). A share σ of the work is serial; the total approaches α / σ.
- `Usl`: α·n / (1 + σ·(n − 1) + κ·n·(n − 1)), the universal scalability law. Instances also wait for each other
  in pairs, so that past a peak every further instance lowers the total.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Protocol

from elastream.checked import Checked, NotNegative, Numbers, Positive


class Capacity(Protocol):
    def total_per_s(self, n: int) -> float:
        """Records per second of n evenly loaded instances together, never negative."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PowerLaw(Checked):
    per_instance_per_s: Positive
    exponent: Annotated[float, Numbers("above 0 and at most 10", lambda value: 0 < value <= 10)] = 1.0
    delay_cost: NotNegative = 0.0
    """Records per second that are lost for each second of delay."""
    delay_s: NotNegative = 0.0

    def total_per_s(self, n: int) -> float:
        undelayed = self.per_instance_per_s * math.pow(n, self.exponent)
        return max(0.0, undelayed - self.delay_cost * self.delay_s)


def at_delay(capacity: Capacity, delay_s: float) -> Capacity:
    """The capacity on nodes with this largest delay; only a power law knows what delays cost."""
    return replace(capacity, delay_s=delay_s) if isinstance(capacity, PowerLaw) else capacity


@dataclass(frozen=True, kw_only=True, slots=True)
class Amdahl(Checked):
    per_instance_per_s: Positive
    serial_share: Annotated[float, Numbers("from 0 to 1", lambda value: 0 <= value <= 1)]

    def total_per_s(self, n: int) -> float:
        return self.per_instance_per_s * n / (1 + self.serial_share * (n - 1))


@dataclass(frozen=True, kw_only=True, slots=True)
class Usl(Checked):
    per_instance_per_s: Positive
    contention: NotNegative
    coherence: NotNegative

    def total_per_s(self, n: int) -> float:
        slowdown = 1 + self.contention * (n - 1) + self.coherence * n * (n - 1)
        return self.per_instance_per_s * n / slowdown
