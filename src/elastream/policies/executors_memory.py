"""What the rules for executors of whole jobs keep between two looks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class AllocationMemory:
    """Of Spark's dynamic allocation."""

    target: int = 0
    """That it asks the cluster for."""
    add: int = 1
    """How many more it asks for next: doubled each time."""
    adds_s: float | None = None
    """When, if tasks still wait then."""
    removes_s: float | None = None
    """When it next looks for idle executors, where it does not do so all the time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SmoothedLoad:
    """Of Elastic-Scaling: the sum of the shares of the interval that batches took, and of their weights."""

    shares: float = 1.0
    weights: float = 1.0

    def with_share(self, share: float, smoothing: float) -> SmoothedLoad:
        return SmoothedLoad(shares=smoothing * self.shares + share, weights=smoothing * self.weights + 1)

    @property
    def mean(self) -> float:
        return self.shares / self.weights


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecutorsMemory:
    allocation: AllocationMemory = AllocationMemory()
    executors: int | None = None
    """That dynamic allocation came to in its last look."""
    load: SmoothedLoad = SmoothedLoad()


NO_LOOKS = ExecutorsMemory()
