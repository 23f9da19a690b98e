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
from typing import Protocol

from elastream.engines.simulated.checks import require_not_negative, require_positive
from elastream.errors import InvalidInput


class Capacity(Protocol):
    def total_per_s(self, n: int) -> float:
        """Records per second of n evenly loaded instances together, never negative."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PowerLaw:
    per_instance_per_s: float
    exponent: float = 1.0
    delay_cost: float = 0.0
    """Records per second that are lost for each second of delay."""
    delay_s: float = 0.0

    def __post_init__(self) -> None:
        require_positive("per_instance_per_s", self.per_instance_per_s)
        require_positive("exponent", self.exponent)
        require_not_negative("delay_cost", self.delay_cost)
        require_not_negative("delay_s", self.delay_s)

    def total_per_s(self, n: int) -> float:
        undelayed = self.per_instance_per_s * math.pow(n, self.exponent)
        return max(0.0, undelayed - self.delay_cost * self.delay_s)


def at_delay(capacity: Capacity, delay_s: float) -> Capacity:
    """The capacity on nodes with this largest delay; only a power law knows what delays cost."""
    return replace(capacity, delay_s=delay_s) if isinstance(capacity, PowerLaw) else capacity


@dataclass(frozen=True, kw_only=True, slots=True)
class Amdahl:
    per_instance_per_s: float
    serial_share: float

    def __post_init__(self) -> None:
        require_positive("per_instance_per_s", self.per_instance_per_s)
        if not 0 <= self.serial_share <= 1:
            raise InvalidInput(f"serial_share must be from 0 to 1, found {self.serial_share}")

    def total_per_s(self, n: int) -> float:
        return self.per_instance_per_s * n / (1 + self.serial_share * (n - 1))


@dataclass(frozen=True, kw_only=True, slots=True)
class Usl:
    per_instance_per_s: float
    contention: float
    coherence: float

    def __post_init__(self) -> None:
        require_positive("per_instance_per_s", self.per_instance_per_s)
        require_not_negative("contention", self.contention)
        require_not_negative("coherence", self.coherence)

    def total_per_s(self, n: int) -> float:
        slowdown = 1 + self.contention * (n - 1) + self.coherence * n * (n - 1)
        return self.per_instance_per_s * n / slowdown
